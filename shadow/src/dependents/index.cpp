// Indexes, and the constraints that stand on one: the twin is made by the words of the old one, over the new
// column.
#include <fmt/format.h>

#include <algorithm>
#include <optional>
#include <set>
#include <utility>

#include "crossfade/core/error.hpp"
#include "leafwise_key.hpp"
#include "not_null.hpp"
#include "reading.hpp"

namespace crossfade {

namespace {

// $1 index, $2 the migrated column, $3 it and those that move together with it; {reads}: the index depends on
// column x. What PostgreSQL says of the index is taken apart at places that are known for sure: what stands
// before USING is made of the names, and the predicate is the end.
constexpr const char* kIndex = R"sql(
SELECT c.relname, i.indisunique, coalesce(s.spcname, ''), obj_description(i.indexrelid, 'pg_class'),
  pg_get_indexdef(i.indexrelid),
  format('CREATE %sINDEX %I ON %s%I.%I USING ', CASE WHEN i.indisunique THEN 'UNIQUE ' ELSE '' END, c.relname,
         CASE WHEN t.relkind = 'p' THEN 'ONLY ' ELSE '' END, n.nspname, t.relname),
  ' WHERE ' || pg_get_expr(i.indpred, i.indrelid),
  i.indisreplident, i.indisclustered,
  NOT coalesce($2::int2 = ANY ((i.indkey::int2[])[0:i.indnkeyatts - 1]), false) AS not_in_key,
  -- Everything but a plain column: an expression or a predicate that reads a column that moves.
  ARRAY(SELECT x FROM unnest($3::int2[]) x WHERE {reads} AND (
      coalesce(i.indexprs::text ~ (':varattno ' || x || ' '), false)
      OR coalesce(i.indpred::text ~ (':varattno ' || x || ' '), false))),
  concat_ws(', ',
    CASE WHEN NOT (i.indisvalid AND i.indisready AND i.indislive) THEN 'it is not valid' END,
    CASE WHEN i.indisexclusion THEN 'it backs an exclusion constraint' END,
    CASE WHEN i.indexprs::text ~ ':varattno 0 ' OR i.indpred::text ~ ':varattno 0 '
      THEN 'it reads the whole row, which has one more column then' END,
    CASE WHEN EXISTS (SELECT 1 FROM pg_attribute a WHERE a.attrelid = i.indexrelid
                      AND coalesce(a.attstattarget, -1) >= 0)
      THEN 'a column of it has a statistics target' END,
    CASE WHEN EXISTS (SELECT 1 FROM pg_constraint f WHERE f.contype = 'f' AND f.conindid = i.indexrelid
                      AND NOT $3::int2[] && f.confkey)
      THEN 'a foreign key refers to it by its other columns' END,
    CASE WHEN EXISTS (SELECT 1 FROM pg_depend d WHERE d.classid = 'pg_class'::regclass
                      AND d.objid = i.indexrelid AND d.deptype IN ('e', 'x'))
      THEN 'it depends on an extension' END),
  i.indisprimary,
  -- PostgreSQL 14 has no such column.
  coalesce(to_jsonb(i) ->> 'indnullsnotdistinct', 'false'),
  ARRAY(SELECT x FROM unnest($3::int2[]) x WHERE x = ANY ((i.indkey::int2[])[0:i.indnkeyatts - 1])),
  (SELECT coalesce(min(x), 0) FROM unnest($3::int2[]) x WHERE x = ANY (i.indkey) OR {reads})
FROM pg_index i JOIN pg_class c ON c.oid = i.indexrelid JOIN pg_class t ON t.oid = i.indrelid
JOIN pg_namespace n ON n.oid = t.relnamespace LEFT JOIN pg_tablespace s ON s.oid = c.reltablespace
WHERE i.indexrelid = $1::oid)sql";

constexpr const char* kReads =
    "EXISTS (SELECT 1 FROM pg_depend d WHERE d.classid = 'pg_class'::regclass AND d.objid = i.indexrelid"
    " AND d.refclassid = 'pg_class'::regclass AND d.refobjid = i.indrelid AND d.refobjsubid = x)";

// A definition without its beginning, and apart from its predicate when that is where it ends.
struct Words {
  std::string definition, predicate;
};

std::optional<Words> words_of(const std::string& whole, const std::string& beginning,
                              const std::optional<std::string>& where) {
  if (!whole.starts_with(beginning)) return std::nullopt;
  auto definition = whole.substr(beginning.size());
  if (!where) return Words{definition, ""};
  if (!definition.ends_with(*where)) return std::nullopt;
  definition.resize(definition.size() - where->size());
  return Words{definition, where->substr(std::string_view(" WHERE ").size())};
}

enum class IndexOf { nothing, constraint };

class IndexReader {
 public:
  IndexReader(Reading& reading, const Reference& reference) : reading_(reading), reference_(reference) {}

  // The entry, not yet in the ledger; nullopt when the index was refused.
  std::optional<Dependent> read(std::uint32_t oid, IndexOf of) {
    const auto found = reading_.session.exec(
        fmt::format(kIndex, fmt::arg("reads", kReads)),
        {std::to_string(oid), std::to_string(reading_.facts.attnum), reading_.moving_attnums()});
    const auto& row = found.one("index");
    Dependent index;
    index.name = text_of(row[0]);
    index.unique = bool_of(row[1]);
    index.tablespace = text_of(row[2]);
    index.old_sql = row[3];
    index.replica_identity = bool_of(row[7]);
    index.clustered = bool_of(row[8]);
    index.carried_by = reading_.carried_by(int_of(row[15]));
    auto why = text_of(row[11]);
    const auto also = [&](const std::string& reason) { why += (why.empty() ? "" : ", ") + reason; };
    const auto computed = numbers_of(row[10]);
    if (!computed.empty() && !reading_.keeps_values())
      also("it computes with the column, and the conversion is not proved to keep every value");
    const bool in_key = !bool_of(row[9]);
    for (const auto& [is_so, role] : {std::pair(index.replica_identity, "it is the replica identity"),
                                      std::pair(bool_of(row[12]), "it is the primary key")}) {
      // The switch would have to read every row under the lock.
      if (is_so && in_key && !proves_not_null(reading_.column))
        also(fmt::format("{}, and the new column is not proved NOT NULL before the switch", role));
    }
    const auto nulls = text_of(row[13]) == "true" ? NullsInIndex::collide : NullsInIndex::differ;
    index.shed = may_fail_after_switch(index.unique ? numbers_of(row[14]) : std::set<int>{}, nulls, computed);
    if (reading_.table.kind == "p") {
      if (index.replica_identity) also("the table is partitioned, and it is the replica identity");
      if (index.shed)
        also("the table is partitioned, and kept on the old column it could refuse what the new one takes");
      // Its old column's index is built again before a way back, on the partitions of then.
      if (of == IndexOf::constraint) index.shed = true;
      if (const auto parts = own_index_parts(reading_.session, oid))
        also(fmt::format(
            "parts of it have a direction, options, a tablespace, a comment or a use of their own: {}",
            *parts));
    }
    if (why.empty()) {
      const auto words = words_of(text_of(row[4]), text_of(row[5]), row[6]);
      if (!words)
        also("its definition cannot be taken apart");
      else if (const auto reason = translate(index, *words, row[6].has_value()))
        also(*reason);
    }
    if (!why.empty()) {
      reading_.refuse(reference_, why);
      return std::nullopt;
    }
    if (index.unique && in_key) tell_of_collisions(nulls);
    tell_of_unique(index);
    tell_of_size(!in_key);
    check_tablespace(index);
    return index;
  }

 private:
  static std::set<int> numbers_of(const SqlValue& array) {
    std::set<int> numbers;
    for (const auto& number : parse_array(text_of(array))) numbers.insert(static_cast<int>(int_of(number)));
    return numbers;
  }

  // Kept on the old columns, the index could refuse what the new ones take: two rows get the same old value
  // in one that tells them apart, or it computes with a value that the new type holds and the old one only
  // just (b + 1).
  bool may_fail_after_switch(const std::set<int>& tell_apart, NullsInIndex nulls,
                             const std::set<int>& computed) const {
    return std::ranges::any_of(moving_together(reading_.column), [&](const ColumnBinding* moving) {
      const auto& backward = moving->backward;
      if (tell_apart.contains(moving->old_attnum) && !keeps_distinct(backward, nulls)) return true;
      return computed.contains(moving->old_attnum) && (!backward || backward->totality != Totality::total);
    });
  }

  // Made on the clone and read back there: PostgreSQL says whether the new type can do it, and how it reads
  // over the shadow.
  std::optional<std::string> translate(Dependent& index, const Words& words, bool partial) {
    const auto& clone = reading_.clone();
    const auto statement = fmt::format("CREATE INDEX cf_twin ON {} USING {}{}{}", clone.sql(),
                                       words.definition, partial ? " WHERE " : "", words.predicate);
    if (auto objection = clone.objection(statement)) return objection;
    const auto read = [&](auto over) {
      const auto where =
          (clone.*over)(statement,
                        "coalesce((SELECT ' WHERE ' || pg_get_expr(indpred, indrelid) FROM pg_index"
                        " WHERE indexrelid = 'pg_temp.cf_twin'::regclass), '')");
      return words_of((clone.*over)(statement, "pg_get_indexdef('pg_temp.cf_twin'::regclass)"),
                      fmt::format("CREATE INDEX cf_twin ON pg_temp.{} USING ",
                                  display_identifier(reading_.table.name.name)),
                      partial ? std::optional(where) : std::nullopt);
    };
    const auto over_shadow = read(&Clone::over_shadow);
    const auto over_retired = index.shed ? read(&Clone::over_retired) : Words{};
    if (!over_shadow || !over_retired) return "its definition cannot be taken apart";
    index.definition = words.definition;
    index.predicate = words.predicate;
    index.twin_definition = over_shadow->definition;
    index.twin_predicate = over_shadow->predicate;
    index.retired_definition = over_retired->definition;
    index.retired_predicate = over_retired->predicate;
    return std::nullopt;
  }

  // The twin stands beside live writes before the switch: it may refuse what the old index takes.
  void tell_of_collisions(NullsInIndex nulls) {
    if (keeps_distinct(reading_.column.forward, nulls)) return;
    reading_.findings.push_back(
        {Severity::refuse, "twin_unique_may_reject", reference_.identity,
         fmt::format(
             "{} is unique, and two values that differ in column {} are not proved to differ in the "
             "new one: from dual_write on its twin may fail, with 23505, a write that is valid today.",
             reference_.description, reading_.object()),
         "Let the dry run count the rows that would collide, and accept it; or drop the index before the "
         "migration and build it again after it."});
  }

  void tell_of_unique(const Dependent& index) {
    if (!index.unique) return;
    reading_.findings.push_back(
        {Severity::warn, "twin_unique_may_reject", reference_.identity,
         fmt::format("While {} and its twin stand side by side, INSERT … ON CONFLICT on one of them "
                     "can fail with 23505 when two sessions insert the same value at once.",
                     reference_.description),
         "Let the application repeat such an INSERT, as after any unique violation."});
  }

  // A btree entry is at most a third of a page: a longer value fails the write.
  void tell_of_size(bool not_in_key) {
    const auto& column = reading_.column;
    if (not_in_key || column.forward.totality == Totality::total) return;
    const bool unbounded = bool_of(
        reading_.session.exec("SELECT typlen < 0 FROM pg_type WHERE oid = $1::regtype", {column.new_type})
            .one("type")[0]);
    if (!unbounded || column.new_type.find('(') != std::string::npos) return;
    reading_.findings.push_back(
        {Severity::warn, "twin_unique_may_reject", reference_.identity,
         fmt::format("The twin of {} refuses a value of the new column that takes more than about "
                     "2700 bytes.",
                     reference_.description),
         "Make sure that the forward expression makes no such value, or drop the index."});
  }

  void check_tablespace(const Dependent& index) {
    if (index.tablespace.empty()) return;
    const auto row = reading_.session
                         .exec("SELECT has_tablespace_privilege($1, 'CREATE'), quote_ident(current_user)",
                               {index.tablespace})
                         .one("privilege");
    if (bool_of(row[0])) return;
    reading_.findings.push_back(
        {Severity::refuse, "missing_privilege", display_identifier(index.tablespace),
         fmt::format("Role {} may not build the twin of {} in tablespace {}.", text_of(row[1]),
                     reference_.description, display_identifier(index.tablespace)),
         fmt::format("GRANT CREATE ON TABLESPACE {} TO {};", display_identifier(index.tablespace),
                     text_of(row[1]))});
  }

  Reading& reading_;
  const Reference& reference_;
};

}  // namespace

void take_index(Reading& reading, const Reference& reference) {
  auto index = IndexReader(reading, reference).read(reference.oid, IndexOf::nothing);
  if (!index) return;
  index->kind = DependentKind::index;
  reading.ledger.carried.push_back(std::move(*index));
}

void take_index_constraint(Reading& reading, const Reference& reference) {
  const auto row =
      reading.session
          .exec(
              "SELECT k.conindid, k.contype = 'p', k.condeferrable, k.conname,"
              " obj_description(k.oid, 'pg_constraint'), c.reloptions IS NOT NULL OR c.reltablespace <> 0,"
              " pg_get_constraintdef(k.oid) FROM pg_constraint k JOIN pg_class c ON c.oid = k.conindid"
              " WHERE k.oid = $1::oid",
              {std::to_string(reference.oid)})
          .one("constraint");
  // A unique index cannot wait for the end of the transaction as the constraint does, and the twin is one
  // until the switch.
  if (bool_of(row[2]))
    return reading.refuse(reference, "it is DEFERRABLE, and its twin could not be until the switch");
  auto index =
      IndexReader(reading, reference).read(static_cast<std::uint32_t>(int_of(row[0])), IndexOf::constraint);
  if (!index) return;
  index->kind = DependentKind::unique_constraint;
  index->constraint_kind = bool_of(row[1]) ? "PRIMARY KEY" : "UNIQUE";
  index->name = text_of(row[3]);
  index->create_sql = comment_sql(
      fmt::format("CONSTRAINT {} ON {}", quote_identifier(index->name), reading.table.name.sql()), row[4]);
  if (reading.table.kind == "p") {
    // The words of the constraint do not have them.
    if (bool_of(row[5]))
      return reading.refuse(reference, "the table is partitioned, and its index has options or a tablespace");
    const LeafwiseKey key{reading.table.name, reading.table.oid, index->name, text_of(row[6]), row[4]};
    index->leafwise = true;
    index->remove_sql = remove_leafwise_sql(key);
    index->create_sql = create_leafwise_sql(key);
    if (index->old_sql)
      index->create_sql +=
          comment_sql("INDEX " + QualifiedName{reading.table.name.schema, index->name}.sql(), index->old_sql);
  }
  reading.ledger.carried.push_back(std::move(*index));
}

}  // namespace crossfade
