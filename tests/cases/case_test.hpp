// What the cases share: a table t whose column b goes from integer to bigint, and a migrator in this process.
#pragma once

#include <fmt/format.h>

#include <filesystem>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "crossfade/core/failpoint.hpp"
#include "crossfade/cutover/migrator.hpp"
#include "support/application_session.hpp"
#include "support/database_test.hpp"
#include "support/files.hpp"

namespace crossfade::test {

// A call in a thread of its own, and how it ended.
class InBackground {
 public:
  explicit InBackground(std::function<void()> call)
      : thread_([this, call = std::move(call)] { run(call); }) {}
  ~InBackground() {
    if (thread_.joinable()) thread_.join();
  }
  InBackground(const InBackground&) = delete;
  InBackground& operator=(const InBackground&) = delete;

  // Waits for the end. nullopt: it returned.
  std::optional<ErrorCode> end() {
    if (thread_.joinable()) thread_.join();
    return code_;
  }
  const std::string& message() const { return message_; }  // after end()

 private:
  void run(const std::function<void()>& call) {
    try {
      call();
    } catch (const Error& error) {
      code_ = error.code();
      message_ = error.what();
    }
  }
  std::optional<ErrorCode> code_;
  std::string message_;
  std::thread thread_;  // last: it uses the others
};

class CaseTest : public DatabaseTest {
 protected:
  ~CaseTest() override { failpoint::configure(""); }

  // t (id int PRIMARY KEY, b int) with rows 1 … rows.
  void make_table(int rows = 1000) {
    sql(
        fmt::format("CREATE TABLE t (id int PRIMARY KEY, b int);"
                    "INSERT INTO t SELECT g, g FROM generate_series(1, {}) g",
                    rows));
  }

  // The migration m of one column of public.t. more: further lines of [[column]] and sections after it.
  static std::string spec(const std::string& column = "b", const std::string& type = "bigint",
                          const std::string& more = {}) {
    return fmt::format(
        "[migration]\nname = \"m\"\ntable = \"public.t\"\n[[column]]\nname = \"{}\"\ntype = \"{}\"\n{}\n"
        "[drop]\nsoak = \"0s\"\n",
        column, type, more);
  }
  // One worker whose chunks are of 100 rows, five a second.
  static std::string slowly() { return "[tuning]\nworkers = 1\nrows_per_second = 500\n"; }
  void quickly() { migrator().tune("m", {{"rows_per_second", "0"}}); }

  Migrator& migrator() {
    if (!migrator_) migrator_ = new_migrator();
    return *migrator_;
  }
  std::unique_ptr<Migrator> new_migrator() const {
    auto made = std::make_unique<Migrator>(
        MigratorOptions{.dsn = dsn(), .redis = redis_, .operator_name = "ada", .host = "lovelace"});
    made->init();
    return made;
  }

  void start(const std::string& text = spec(), const std::vector<Acceptance>& accept = {}) {
    migrator().start({text}, accept);
  }
  void advance_to(Phase phase, const std::vector<Acceptance>& accept = {}) {
    migrator().next("m", {.until = phase, .confirm = phase == Phase::dropped ? "m" : "", .accept = accept});
    ASSERT_EQ(migrator().status("m").phase, phase);
  }
  // The backfill, until it is settled.
  void sweep_all() { migrator().next("m", {.until = Phase::backfill, .confirm = {}, .accept = {}}); }
  void roll_back_to(Phase phase) { migrator().rollback("m", {.to = phase, .accept = {}}); }
  // The code of the error that a call ends with; nullopt when it does not.
  static std::optional<ErrorCode> code_of(const std::function<void()>& call, std::string* message = nullptr) {
    try {
      call();
    } catch (const Error& error) {
      if (message != nullptr) *message = error.message();
      return error.code();
    }
    return std::nullopt;
  }

  // Stands at the failpoint until let_go().
  void stop_at(const std::string& failpoint) {
    migrator();  // a new one would clear the failpoints
    gate_ = (folder_.path() / fmt::format("gate_{}", ++gates_)).string();
    failpoint::configure(failpoint + "=wait:" + gate_);
  }
  void wait_until_stopped() {
    wait_until([this] { return std::filesystem::exists(gate_ + ".reached"); }, "the failpoint");
  }
  void let_go() { write_text(gate_, ""); }

  // The physical name of the other column, as SQL.
  std::string shadow() {
    return value(
        "SELECT quote_ident(attname) FROM pg_attribute WHERE attrelid = 't'::regclass AND attnum > 0"
        " AND NOT attisdropped AND attname LIKE '%\\_cf%'");
  }
  std::string shadow_of(const std::string& condition) {
    return value(fmt::format("SELECT {} FROM t WHERE {}", shadow(), condition));
  }
  // Rows whose shadow is not forward(old); {} is the old column.
  std::string stale(const std::string& forward = "b::bigint") {
    return value(fmt::format("SELECT count(*) FROM t WHERE ({})::text IS DISTINCT FROM ({})::text", shadow(),
                             forward));
  }

  std::string redis_;

 private:
  PrivateFolder folder_{"case"};
  std::unique_ptr<Migrator> migrator_;
  std::string gate_;
  int gates_ = 0;
};

}  // namespace crossfade::test
