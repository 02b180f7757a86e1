// CHECK and FOREIGN KEY. Both are followers that come back NOT VALID in the switch, where nothing is read,
// and are validated online after it. Earlier they would be able to fail a write that the old column takes. A
// foreign key of a partitioned table cannot be NOT VALID: it comes back valid, of what its leaves have by
// then (forerunners.hpp).
#include <fmt/format.h>

#include "crossfade/core/error.hpp"
#include "leafwise_key.hpp"
#include "reading.hpp"

namespace crossfade {

namespace {

constexpr const char* kConstraint = R"sql(
SELECT k.contype::text, k.conname, pg_get_constraintdef(k.oid), k.convalidated, obj_description(k.oid,
    'pg_constraint'),
  coalesce(k.conbin::text ~ ':varattno 0 ', false), k.conislocal AND k.coninhcount = 0,
  k.conrelid = $2::oid AND $3::int2 = ANY (k.conkey)
FROM pg_constraint k WHERE k.oid = $1::oid)sql";

std::string as_not_valid(const std::string& definition) {
  return definition.ends_with(" NOT VALID") ? definition : definition + " NOT VALID";
}

// The statements are the same for both kinds. entry_name: unique within the kind.
Dependent& carry(Reading& reading, DependentKind kind, const SqlResult::Row& row, const std::string& table,
                 const std::string& entry_name) {
  const auto name = text_of(row[1]);
  auto& entry = reading.carry(kind, entry_name);
  entry.remove_sql = fmt::format("ALTER TABLE {} DROP CONSTRAINT {};\n", table, quote_identifier(name));
  entry.create_sql = fmt::format("ALTER TABLE {} ADD CONSTRAINT {} {};\n", table, quote_identifier(name),
                                 as_not_valid(text_of(row[2]))) +
                     comment_sql(fmt::format("CONSTRAINT {} ON {}", quote_identifier(name), table), row[4]);
  entry.validated = bool_of(row[3]);
  return entry;
}

// $1 constraint. Foreign tables have no foreign keys.
constexpr const char* kLeafwise = R"sql(
SELECT t.relkind = 'p', k.conrelid, n.nspname, t.relname, c.relkind = 'p',
  (SELECT string_agg(DISTINCT quote_ident(pg_get_userbyid(l.relowner)), ', ')
   FROM {} p JOIN pg_class l ON l.oid = p.relid WHERE NOT pg_has_role(l.relowner, 'USAGE'))
FROM pg_constraint k JOIN pg_class t ON t.oid = k.conrelid JOIN pg_namespace n ON n.oid = t.relnamespace
JOIN pg_class c ON c.oid = k.confrelid WHERE k.oid = $1::oid)sql";

// Why a foreign key of a partitioned table cannot have forerunners; empty when it can, or needs none.
std::string not_leafwise(const SqlResult::Row& facts, const SqlResult::Row& constraint) {
  if (!bool_of(facts[0])) return {};
  if (bool_of(facts[4])) return "a partitioned table refers to a partitioned one";
  if (!bool_of(constraint[3])) return "the table is partitioned, and it is NOT VALID";
  if (facts[5]) return "partitions belong to " + *facts[5];
  return {};
}

// Turns the entry of a foreign key into one of a partitioned table.
void make_leafwise(const SqlResult::Row& facts, const SqlResult::Row& constraint, Dependent& entry) {
  LeafwiseKey key;
  key.oid = Oid{static_cast<std::uint32_t>(int_of(facts[1]))};
  key.table = {text_of(facts[2]), text_of(facts[3])};
  key.constraint = text_of(constraint[1]);
  key.definition = text_of(constraint[2]);
  key.comment = constraint[4];
  entry.leafwise = true;
  entry.validated = false;
  entry.remove_sql = remove_leafwise_sql(key);
  entry.create_sql = create_leafwise_sql(key);
}

SqlResult::Row leafwise_facts(Reading& reading, const Reference& reference) {
  return reading.session
      .exec(fmt::format(kLeafwise, partition_tree_sql("k.conrelid")), {std::to_string(reference.oid)})
      .one("foreign key");
}

void take_check(Reading& reading, const Reference& reference, const SqlResult::Row& row) {
  if (bool_of(row[5]))
    return reading.refuse(reference, "it reads the whole row, which has one more column then");
  const auto& clone = reading.clone();
  const auto statement =
      fmt::format("ALTER TABLE {} ADD CONSTRAINT cf_check {}", clone.sql(), text_of(row[2]));
  if (const auto objection = clone.objection(statement)) return reading.refuse(reference, *objection);
  auto& entry = carry(reading, DependentKind::check, row, reading.table.name.sql(), text_of(row[1]));
  entry.holds =
      text_of(reading.session
                  .exec("SELECT pg_get_expr(conbin, conrelid) FROM pg_constraint WHERE oid = $1::oid",
                        {std::to_string(reference.oid)})
                  .one("check")[0]);
}

constexpr const char* kForeignKey = R"sql(
SELECT quote_ident(n.nspname) || '.' || quote_ident(c.relname),
  (SELECT string_agg(quote_ident(a.attname), ', ' ORDER BY p) FROM generate_subscripts(k.confkey, 1) p
     JOIN pg_attribute a ON a.attrelid = k.confrelid AND a.attnum = k.confkey[p]),
  (SELECT string_agg(quote_ident(a.attname), ', ' ORDER BY p) FROM generate_subscripts(k.conkey, 1) p
     JOIN pg_attribute a ON a.attrelid = k.conrelid AND a.attnum = k.conkey[p]),
  has_table_privilege(k.confrelid, 'REFERENCES'), quote_ident(current_user), k.confrelid = k.conrelid
FROM pg_constraint k JOIN pg_class c ON c.oid = k.confrelid JOIN pg_namespace n ON n.oid = c.relnamespace
WHERE k.oid = $1::oid)sql";

void take_foreign_key(Reading& reading, const Reference& reference, const SqlResult::Row& row) {
  const auto far = reading.session.exec(kForeignKey, {std::to_string(reference.oid)}).one("foreign key");
  const auto partner = text_of(far[0]);
  // Another value may have no partner, and the application's write would fail for it.
  if (!reading.keeps_values())
    return reading.refuse(reference, "the conversion is not proved to keep every value");
  if (!bool_of(far[3])) {
    reading.findings.push_back(
        {Severity::refuse, "missing_privilege", partner,
         fmt::format("Role {} may not make {} again.", text_of(far[4]), reference.description),
         fmt::format("GRANT REFERENCES ON {} TO {};", partner, text_of(far[4]))});
    return;
  }
  // A temporary table can refer to nothing but another.
  const auto& clone = reading.clone();
  const auto objection = clone.objection(
      fmt::format("CREATE TEMP TABLE cf_partner (LIKE {0}); ALTER TABLE pg_temp.cf_partner ADD UNIQUE ({1});"
                  "ALTER TABLE {2} ADD FOREIGN KEY ({3}) REFERENCES pg_temp.cf_partner ({1})",
                  partner, text_of(far[1]), clone.sql(), text_of(far[2])));
  if (objection) return reading.refuse(reference, *objection);
  const auto leafwise = leafwise_facts(reading, reference);
  if (const auto why = not_leafwise(leafwise, row); !why.empty()) return reading.refuse(reference, why);
  auto& entry = carry(reading, DependentKind::foreign_key, row, reading.table.name.sql(), text_of(row[1]));
  if (bool_of(leafwise[0])) make_leafwise(leafwise, row, entry);
  if (!bool_of(far[5])) entry.locks = {partner};
}

// $1 constraint, $2 table that is referred to, $3 column.
constexpr const char* kReferring = R"sql(
SELECT format_type(a.atttypid, a.atttypmod), n.nspname, c.relname, c.relkind IN ('r', 'p'),
  pg_has_role(c.relowner, 'USAGE'), pg_get_userbyid(c.relowner), quote_ident(current_user),
  k.conrelid = $2::oid, k.conparentid <> 0, c.oid
FROM pg_constraint k CROSS JOIN generate_subscripts(k.confkey, 1) p
JOIN pg_attribute a ON a.attrelid = k.conrelid AND a.attnum = k.conkey[p]
JOIN pg_class c ON c.oid = k.conrelid JOIN pg_namespace n ON n.oid = c.relnamespace
WHERE k.oid = $1::oid AND k.confkey[p] = $3::int2)sql";

// The ledger of the referring column carries it; that each has one is asked of the group. One that has the
// new type already is no member: its column stays, and its constraint is taken away and made again from here.
void take_referring_key(Reading& reading, const Reference& reference, const SqlResult::Row& row) {
  const auto from =
      reading.session
          .exec(kReferring, {std::to_string(reference.oid), std::to_string(reading.table.oid.value),
                             std::to_string(reading.facts.attnum)})
          .one("referring column");
  if (text_of(from[0]) != reading.column.new_type || bool_of(from[8])) return;
  // Another value would have no partner when the constraint is validated again.
  if (!reading.keeps_values())
    return reading.refuse(reference, "the conversion is not proved to keep every value");
  const QualifiedName table{text_of(from[1]), text_of(from[2])};
  if (!bool_of(from[3])) {
    reading.findings.push_back(
        {Severity::refuse, "not_supported_yet", table.display(),
         fmt::format("{} cannot be made again NOT VALID: table {} is not an ordinary one.",
                     reference.description, table.display()),
         "Drop the constraint before the migration and add it again after it."});
    return;
  }
  if (!bool_of(from[4])) {
    reading.findings.push_back(
        {Severity::refuse, "missing_privilege", table.display(),
         fmt::format("Role {} may not make {} again: table {} belongs to {}.", text_of(from[6]),
                     reference.description, table.display(), display_identifier(text_of(from[5]))),
         fmt::format("Run as the owner, or GRANT {} TO {};", display_identifier(text_of(from[5])),
                     text_of(from[6]))});
    return;
  }
  const auto leafwise = leafwise_facts(reading, reference);
  if (const auto why = not_leafwise(leafwise, row); !why.empty()) return reading.refuse(reference, why);
  auto& entry = carry(reading, DependentKind::foreign_key, row, table.sql(), reference.identity);
  if (bool_of(leafwise[0])) make_leafwise(leafwise, row, entry);
  entry.referring = Oid{static_cast<std::uint32_t>(int_of(from[9]))};
  entry.constraint = text_of(row[1]);
  if (!bool_of(from[7])) entry.locks = {table.sql()};
}

}  // namespace

void take_constraint(Reading& reading, const Reference& reference) {
  const auto found = reading.session.exec(
      kConstraint, {std::to_string(reference.oid), std::to_string(reading.table.oid.value),
                    std::to_string(reading.facts.attnum)});
  const auto& row = found.one("constraint");
  const auto type = text_of(row[0]);
  const bool follows = reading.column.follows_foreign_keys && type == "f", own = bool_of(row[7]);
  if (reference.from_elsewhere && follows && reading.table.kind == "p")
    return reading.refuse(reference, "it refers to a partitioned table");
  if (reference.from_elsewhere && follows && !own) return take_referring_key(reading, reference, row);
  if (!bool_of(row[6])) return reading.refuse(reference, "it is inherited");
  // One that refers to the column by others of the same table, and from it to others, is its own.
  if (reference.from_elsewhere && !(follows && own)) {
    return reading.refuse(
        reference.identity,
        fmt::format("{} refers to column {} from another table or column.", reference.description,
                    reading.object()),
        "Let it follow: follow_foreign_keys = true in [switch]; or drop it before the migration and add it "
        "again after it.");
  }
  if (type == "p" || type == "u") return take_index_constraint(reading, reference);
  if (type == "c") return take_check(reading, reference, row);
  if (type == "f") return take_foreign_key(reading, reference, row);
  reading.refuse(reference, "it cannot be made again without a scan under the lock");
}

}  // namespace crossfade
