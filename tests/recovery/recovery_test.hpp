// What the recovery tests share: a small table with a live application, the real binary, and an oracle that
// can be asked at any moment, also in the middle of a phase.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "crossfade/core/phase.hpp"
#include "support/application_session.hpp"
#include "support/database_test.hpp"
#include "support/live_writers.hpp"
#include "support/program.hpp"

namespace crossfade::test {

using Arguments = std::vector<std::string>;

struct TableOptions {
  int rows = 3000;
  std::string tuning = {};     // lines of [tuning]
  std::string switching = {};  // lines of [switch]
};

// table public.t (id, b, n, note), whose b goes from integer to bigint; twin public.t_twin; migration m.
class RecoveryTest : public DatabaseTest {
 protected:
  // Table, twin, schema crossfade and spec file. Nothing is registered yet.
  void make_table(const TableOptions& options = {});
  // The application: every transaction does the same to table and twin.
  void start_writers(int writers = 2);
  void stop_writers() { writers_.reset(); }
  LiveWriters& writers() { return *writers_; }

  // The real binary, to its end. failpoints: the value of CROSSFADE_FAILPOINTS.
  ProgramResult crossfade(const Arguments& arguments, const std::string& failpoints = {});
  Program launch(const Arguments& arguments, const std::string& failpoints = {});
  // Which ends with 0; shows its output otherwise.
  void succeed(const Arguments& arguments, const std::string& failpoints = {});
  // Which the failpoint kills.
  void killed(const Arguments& arguments, const std::string& failpoints);
  // `start`, and `next` until `phase` is settled.
  void advance_to(Phase phase);
  static Arguments next(Phase until);
  static Arguments back(Phase to);

  // A file for wait:FILE. reached(): the program stands there; open(): lets it go.
  std::string gate(const std::string& name) const { return (folder_.path() / name).string(); }
  void wait_until_reached(const std::string& gate, Program& program) const;
  void open(const std::string& gate) const { write_text(gate, ""); }

  Phase phase();
  std::string status();
  std::string shadow_column();  // physical name of the other column; empty when there is none
  // How many rows changed phase, and that they form one unbroken chain that ends in the phase of now.
  int transitions();

  // What must hold at every moment, whoever was killed where: the application met no error, its rows are what
  // it wrote, the catalog is the one of the phase, no swept row differs, and the history is unbroken.
  void check_whole();
  // And every row is in step: after a settled backfill, and after it in every phase with two sides.
  void check_in_step();
  // The catalog is the one of before make_table() ended.
  void check_restored();

  // Of the application's rows: changes with every write of anybody.
  std::string versions_of_rows();

  std::string spec_path() const { return (folder_.path() / "spec.toml").string(); }
  // Where the binary connects, and its Redis; empty: the server, none.
  std::string binary_dsn_, redis_;
  // What hangs on the table beside its index, and the column's new type; for make_table.
  std::string ddl_, new_type_ = "bigint";
  // What its environment has beside that.
  Program::Environment more_;

 private:
  Program::Environment environment(const std::string& failpoints) const;
  ApplicationSession& observer();  // opened again after a restart of the server

  PrivateFolder folder_{"recovery"};
  std::vector<std::string> before_;
  std::unique_ptr<ApplicationSession> observer_;
  int observed_start_ = 0;
  std::unique_ptr<LiveWriters> writers_;
};

}  // namespace crossfade::test
