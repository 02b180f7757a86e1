// Rows of schema crossfade: the only truth about a migration. Every reader gets a value; nothing is cached.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "crossfade/core/finding.hpp"
#include "crossfade/core/identifier.hpp"
#include "crossfade/core/ids.hpp"
#include "crossfade/core/phase.hpp"
#include "crossfade/core/sql_session.hpp"
#include "crossfade/core/tuning.hpp"

namespace crossfade {

// The row of crossfade.migration. Optional members are absent before the phase that sets them.
struct MigrationRow {
  MigrationId id;
  // Of a member of a group: the migration that it follows. It bears the leader's name, and has its own table
  // and column, passes, units and ledger; its token is the leader's.
  std::optional<MigrationId> leader;
  bool shares_table = false;  // another migration of the group is on the same table
  std::string name;
  Oid table_oid;
  QualifiedName table;             // as it is named at the time of reading; as registered when it is gone
  QualifiedName registered_table;  // as it was named at start
  Mode mode = Mode::swap;
  std::string spec_text, spec_hash;
  std::string binding;  // jsonb: bound columns and key, see shadow/binding.hpp
  Phase phase = Phase::planned;
  Status status = Status::settled;
  std::string reason;  // why it failed or is paused
  Epoch epoch;
  Token token;  // what writers present; drawn at each acquisition
  Token mark;   // the value of crossfade.sweep that exempts our writes from the capture trigger
  std::optional<std::string> capture_xid;     // xid8 of the transaction that installed the capture
  std::optional<Key> capture_high;            // greatest key at capture; absent when the table was empty
  std::optional<std::string> last_write_xid;  // xid8 at or after our last write of the shadow
  std::string fingerprint;                    // jsonb, see shadow/fingerprint.hpp; empty before backfill
  std::string system_identifier, timeline;
  std::uint32_t database_oid = 0;
  std::string operator_name, version, created_at, phase_since;
  bool stop_requested = false;
  // The lease of the runner.
  int runner_pid = 0;
  std::string runner_host, runner_operator, lease_until;
  bool lease_live = false;  // by PostgreSQL's clock, at the time of reading
};

struct TransitionRecord {
  std::int64_t number = 0;
  std::string from, to, event, operator_name, host, version, at, evidence;
};

// What an operator did beside phase changes: start, pause, resume, tune, adopt, recapture.
struct ActionRecord {
  std::string at, action, phase, operator_name, host, version;
  std::string detail;  // json object
};

enum class LockMode { none, for_update };

class StateStore {
 public:
  explicit StateStore(SqlSession& session) : session_(session) {}

  // NAME means the open one, else the newest; never a member. Throws unknown_migration naming the known ones.
  MigrationRow find(const std::string& name);
  MigrationRow get(const MigrationId& id, LockMode lock = LockMode::none);
  std::optional<MigrationRow> find_open(const std::string& name);
  std::optional<MigrationRow> find_open_on(Oid table);
  std::vector<MigrationRow> list();  // without members
  // The migration and its members, itself first, the others by id.
  std::vector<MigrationRow> group(const MigrationId& leader, LockMode lock = LockMode::none);

  MigrationId new_id();
  // Inserts the migration (phase planned, settled) and its tuning; draws token and mark. In the caller's
  // transaction.
  void insert(const MigrationRow& row, const Tuning& tuning);

  Tuning tuning(const MigrationId& id, const Tuning& defaults);
  void set_tuning(const MigrationId& id, std::string_view key, std::string_view value, std::string_view who);

  std::vector<TransitionRecord> history(const MigrationId& id);
  // Oldest first.
  std::vector<ActionRecord> actions(const MigrationId& id);
  // In the caller's transaction, with what it tells of. The phase is the migration's of that moment.
  void record_action(const MigrationId& id, std::string_view action, std::string_view who,
                     std::string_view host, const std::string& detail = "{}");
  std::vector<Acceptance> acceptances(const MigrationId& id);
  void accept(const MigrationId& id, const Acceptance& acceptance, std::string_view who,
              std::string_view host);

  // Status changes that are not phase changes, by compare-and-set on (phase, status). False when the row
  // moved on.
  bool set_status(const MigrationId& id, Phase phase, Status from, Status to, const std::string& reason);
  void request_stop(const MigrationId& id, bool stop);
  // Remembers a transaction id at or after our last write of the new column: snapshots older than it would
  // read stale values after a switch. Asks for no token: a runner that was superseded wrote nevertheless, and
  // a stamp too many only makes the switch more careful.
  void stamp_last_write(const MigrationId& id);

 private:
  SqlSession& session_;
};

// What a phase change writes beside its effect. Composed into the same message as the effect.
struct PhaseChange {
  MigrationId id;
  Phase from, to;
  Status status;
  std::string event, operator_name, host;
  std::string evidence = "{}";           // json object
  std::vector<std::string> assignments;  // further SET items of crossfade.migration, SQL
};
// UPDATE of the migration row and INSERT of the history row, ';'-terminated. Requires: the row is locked.
std::string phase_change_sql(const PhaseChange& change);

}  // namespace crossfade
