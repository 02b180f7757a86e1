// The ledger: what hangs on the column, from a complete catalog inventory by oid and attnum. Each object is
// carried or refused by name; nothing is lost silently.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "crossfade/core/catalog.hpp"
#include "crossfade/core/finding.hpp"
#include "crossfade/core/sql_session.hpp"
#include "crossfade/shadow/binding.hpp"

namespace crossfade {

// How each kind goes over to the new column. dependent_rules() says it in words.
enum class DependentKind {
  // Properties of the column, set on one side and taken off the other.
  not_null,
  default_value,
  comment,
  column_setting,  // statistics target, options, storage, compression, collation
  // Twins: built online beside the old object, and given its name at the switch.
  index,
  unique_constraint,  // also PRIMARY KEY
  statistics,
  // Followers: taken away before the names move and made again by the same words after it; since they name
  // the column, those words mean whichever column bears its name. The same pair serves both directions.
  check,
  foreign_key,
  policy,
  rule,
  trigger,
  sql_function,
  publication,
  column_grant,
  sequence,  // owned by the column: serial
  identity,
  view,
};
std::string_view to_text(DependentKind kind);
bool is_follower(DependentKind kind);

// One carried object. Members beyond kind and name are those of its kind.
struct Dependent {
  DependentKind kind = DependentKind::index;
  std::string name;  // the object's, unique within its kind: for an object beside the table as SQL shows it
  // default: the old one, as SQL. comment, twins: the comment's text. sequence, identity: run before the lock
  // on the way back (new_sql: on the way there).
  std::optional<std::string> old_sql;
  std::optional<std::string> new_sql;  // default: of the new column, as SQL; absent when forward gives NULL

  // Twins. An index: from after USING to before TABLESPACE. Statistics: "(kinds) ON columns".
  std::string definition;                 // over the old column
  std::string twin_definition;            // over the new one, which bears its shadow name there
  std::string predicate, twin_predicate;  // of a partial index
  bool from_sequence = false;             // default: it draws from a sequence
  bool unique = false;
  // The old index could refuse what the new one takes (two rows get the same old value, an expression fails):
  // the switch drops it, and a way back owes it. It reads so over the old column under its retired name.
  bool shed = false;
  std::string retired_definition, retired_predicate;
  std::string tablespace;       // empty: the default one of the database
  std::string constraint_kind;  // UNIQUE or PRIMARY KEY
  bool replica_identity = false, clustered = false;
  std::string schema, settings;  // statistics: where it lies; what follows ALTER STATISTICS name, if anything
  // It stands on several columns that move together: the one whose migration builds it and moves it. Empty in
  // that one's ledger; the entries of the others say that it is there.
  std::string carried_by;

  // Followers; column_setting: create_sql is what follows ALTER COLUMN name.
  std::string remove_sql, create_sql;  // statements, ';'-terminated; either may be empty
  bool validated = false;              // check, foreign_key: VALIDATE follows online
  std::string holds;                   // check: the condition, over whichever column bears the name
  std::vector<std::string> locks;      // further relations that the statements lock, as SQL shows them
  // foreign_key of another column that refers to the migrated one and has the new type already, so that it
  // stays as it is and has no ledger of its own: the table that refers, and the constraint's bare name.
  std::optional<Oid> referring;
  std::string constraint;
  // Of a partitioned table. foreign_key: each leaf has a forerunner of it before the switch
  // (forerunners.hpp). unique_constraint: each leaf has an index of its own, of which the switch makes its
  // constraint before that of the table; `leaves` is not stored, and found for the switch
  // (find_leaf_indexes).
  bool leafwise = false;
  struct LeafIndex {
    QualifiedName table;
    std::string index;
    bool operator==(const LeafIndex&) const = default;
  };
  std::vector<LeafIndex> leaves = {};
  bool operator==(const Dependent&) const = default;
};

// An object that this ledger's migration builds beside the old one and moves.
bool is_own_twin(const Dependent& entry);

struct Ledger {
  std::vector<Dependent> carried;
  const Dependent* find(DependentKind kind) const;  // not_null, default_value, comment: at most one
};

// Reads everything that refers to the column and splits it: carried entries, and findings for the rest
// (dependent_not_carried names each object, its kind and what to do). In the caller's transaction, because a
// default is evaluated through the bound forward function; everything made for that is undone. Repeated in a
// later phase before the switch it passes over the migration's own objects, which it knows by the id in their
// names. Requires: `column` was bound without a refusal.
Ledger take_inventory(SqlSession& session, const TableFacts& table, const ColumnBinding& column,
                      std::vector<Finding>& findings);

// A row that would violate `check` (by a query of one column, its key as text, at most one row) if the
// column `physical` bore the name of the migrated one. Reads the table until it finds one.
std::string violation_sql(SqlSession& session, const Migration& migration, const QualifiedName& table,
                          const Dependent& check, const std::string& physical);

// What hangs on the column now and did not when the ledger was stored, or the other way round: one
// dependent_changed (refuse) for each. For the phases before the switch.
std::vector<Finding> ledger_changes(const Ledger& stored, const Ledger& found);
// Phase switched: what hangs on the new column and is not of the ledger, or has another definition by now;
// one dependent_added (refuse) for each.
std::vector<Finding> added_since_switch(SqlSession& session, const Migration& switched, const Ledger& ledger);
// Phase switched: what hangs on the old column and is not the migration's own; one old_column_in_use (refuse)
// for each. DROP COLUMN would fail for it, or (an index, a constraint) take it along without a word.
std::vector<Finding> hanging_on_old_column(SqlSession& session, const Migration& switched);
// Scalar SQL expressions of type text that change whenever anything that refers to the old column is added,
// removed or altered by others. Without parameters, so that they can stand in a block of the switch. Views
// are gone under the lock: they have a mark of their own, read before they are dropped, and the other mark
// leaves out those of `except_views` (an array of oids as text, which view_oids_sql gives).
std::string dependents_mark_sql(const Migration& migration, const std::string& except_views = "{}");
std::string views_mark_sql(const Migration& migration);
std::string view_oids_sql(const Migration& migration);

// Replaces what is stored.
void store_ledger(SqlSession& session, const MigrationId& id, const Ledger& ledger);
Ledger load_ledger(SqlSession& session, const MigrationId& id);

// --- Statements of the switch, under its lock; names are those before the statement runs ---------------

// The unique constraints and primary keys of the side that is left. Run before the names move, in either
// direction, after everything that relies on them has gone (Dependent::remove_sql of the followers).
std::string let_keys_go_sql(const QualifiedName& table, const Ledger& ledger);
// Sequences go over to the new column, and back; run before the table is locked. From then on nobody draws
// from them until the transaction has ended.
std::string sequences_over_sql(const Ledger& ledger);
std::string sequences_back_sql(const Ledger& ledger);
// The relations beside the table that the switch locks, as SQL shows them; each once, in no order.
std::vector<std::string> locked_beside(const Ledger& ledger);
// The new column's own settings. Run where it comes into being.
std::string shadow_settings_sql(const Migration& migration, const QualifiedName& table, const Ledger& ledger);

// What goes over to the other side, in three parts. Each is done for all columns that move together before
// the next, since a key may stand on several of them: it needs all of them NOT NULL, and lets none of those
// that it leaves be anything else.
struct CarriedSql {
  std::string properties;  // default, comment, NOT NULL where it goes
  std::string twins;       // names of indexes and statistics; constraints
  std::string released;    // NOT NULL where it was
  std::string all() const { return properties + twins + released; }
};
// To the new column: default, NOT NULL (by the validated check, or a NOT VALID check that is validated
// afterwards), comment and index names; taken off the old one. Run after the column names moved:
// `table`."name" is the new column.
CarriedSql carry_over_sql(const Migration& switched, const QualifiedName& table, const Ledger& ledger,
                          bool not_null_check_valid);
// Back to the old column: the mirror image. NOT NULL returns at once where `old_check_valid` (it must where
// needs_not_null), else as a NOT VALID check, which settle_not_null makes real; that binds every row version
// written from then on, so a misfit that left NULL in the old column must be closed first.
CarriedSql carry_back_sql(const Migration& compare, const QualifiedName& table, const Ledger& ledger,
                          bool old_check_valid);
// A primary key or a replica identity stands on the column, and needs it NOT NULL in the moment of the
// switch.
bool needs_not_null(const Ledger& ledger);

// A trigger of the user made again by `definition`, with its firing state (pg_trigger.tgenabled) and comment.
// Triggers fire in the order of their names, so nothing else changes.
std::string recreate_trigger_sql(const QualifiedName& table, const std::string& name,
                                 const std::string& definition, const std::string& state,
                                 const SqlValue& comment);

// --- For people --------------------------------------------------------------------------------------

struct DependentRule {
  std::string_view object;   // as PostgreSQL calls it
  std::string_view answer;   // carried, refused, or both by a condition
  std::string_view how;      // carried: what happens; refused: why
  std::string_view phase;    // in which it happens; empty when refused
  std::string_view lock;     // the strongest lock beyond the switch's own; empty when none
  std::string_view finding;  // the id under which it is refused or told; empty when never
};
const std::vector<DependentRule>& dependent_rules();

}  // namespace crossfade
