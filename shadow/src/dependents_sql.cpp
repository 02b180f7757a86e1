// The statements that move what hangs on the column from one side to the other. They run once, under ACCESS
// EXCLUSIVE, in one transaction with the rename of the columns, so each may rely on what the one before it
// left.
//
// No statement scans the table: SET NOT NULL finds the validated check and believes it, a NOT VALID check
// looks at nothing, renames and comments touch the catalog only.
#include <fmt/format.h>

#include "crossfade/shadow/dependents.hpp"
#include "not_null.hpp"

namespace crossfade {

namespace {

class Mover {
 public:
  explicit Mover(const QualifiedName& table) : table_(table) {}

  void column(const std::string& name, const std::string& action) {
    sql_ += fmt::format("ALTER TABLE {} ALTER COLUMN {} {};\n", table_.sql(), quote_identifier(name), action);
  }
  void alter(const std::string& action) { sql_ += fmt::format("ALTER TABLE {} {};\n", table_.sql(), action); }
  void default_value(const std::string& name, const std::optional<std::string>& value) {
    column(name, value ? "SET DEFAULT " + *value : "DROP DEFAULT");
  }
  void comment(const std::string& name, const std::optional<std::string>& text) {
    sql_ += fmt::format("COMMENT ON COLUMN {}.{} IS {};\n", table_.sql(), quote_identifier(name),
                        quote_nullable(text));
  }
  void rename_index(const std::string& from, const std::string& to) {
    sql_ += fmt::format("ALTER INDEX {} RENAME TO {};\n", QualifiedName{table_.schema, from}.sql(),
                        quote_identifier(to));
  }
  void comment_index(const std::string& name, const std::optional<std::string>& text) {
    sql_ += fmt::format("COMMENT ON INDEX {} IS {};\n", QualifiedName{table_.schema, name}.sql(),
                        quote_nullable(text));
  }
  std::string take() { return std::move(sql_); }

 private:
  const QualifiedName& table_;
  std::string sql_;
};

}  // namespace

std::string carry_over_sql(const Migration& m, const QualifiedName& table, const Ledger& ledger,
                           bool not_null_check_valid) {
  Mover mover(table);
  const auto& now = m.names.new_column;
  const auto& before = m.names.old_column;
  for (const auto& entry : ledger.carried) {
    switch (entry.kind) {
      case DependentKind::default_value:
        mover.default_value(before, std::nullopt);
        mover.default_value(now, entry.new_sql);
        break;
      case DependentKind::not_null:
        mover.column(before, "DROP NOT NULL");
        if (not_null_check_valid) {
          mover.column(now, "SET NOT NULL");
          mover.alter("DROP CONSTRAINT " + quote_identifier(new_not_null_check(m)));
        } else {
          // dual_write may have been left between adding the check and validating it.
          mover.alter("DROP CONSTRAINT IF EXISTS " + quote_identifier(new_not_null_check(m)));
          mover.alter(add_not_null_check(new_not_null_check(m), now));
        }
        break;
      case DependentKind::comment:
        mover.comment(before, std::nullopt);
        mover.comment(now, entry.old_sql);
        break;
      case DependentKind::index:
        mover.rename_index(entry.name, m.generated.retired(entry.name));
        mover.rename_index(m.generated.twin(entry.name), entry.name);
        if (entry.old_sql) mover.comment_index(entry.name, entry.old_sql);
        break;
    }
  }
  return mover.take();
}

std::string carry_back_sql(const Migration& m, const QualifiedName& table, const Ledger& ledger) {
  Mover mover(table);
  const auto& back = m.names.old_column;
  const auto& leaving = m.names.new_column;
  for (const auto& entry : ledger.carried) {
    switch (entry.kind) {
      case DependentKind::default_value:
        mover.default_value(leaving, std::nullopt);
        mover.default_value(back, entry.old_sql);
        break;
      case DependentKind::not_null:
        mover.column(leaving, "DROP NOT NULL");
        mover.alter("DROP CONSTRAINT IF EXISTS " + quote_identifier(new_not_null_check(m)));
        mover.alter(add_not_null_check(old_not_null_check(m), back));
        if (proves_not_null(m.binding.column))
          mover.alter(add_not_null_check(new_not_null_check(m), leaving));
        break;
      case DependentKind::comment:
        mover.comment(leaving, std::nullopt);
        mover.comment(back, entry.old_sql);
        break;
      case DependentKind::index:
        mover.rename_index(entry.name, m.generated.twin(entry.name));
        mover.rename_index(m.generated.retired(entry.name), entry.name);
        if (entry.old_sql) mover.comment_index(m.generated.twin(entry.name), std::nullopt);
        break;
    }
  }
  return mover.take();
}

std::string dependents_mark_sql(const Migration& m) {
  return fmt::format(R"sql((
WITH ours AS (
  SELECT t.oid FROM pg_catalog.pg_trigger t WHERE t.tgrelid = {table}
    AND pg_catalog.right(t.tgname::text, {length}) = {suffix}),
facts AS (
  SELECT pg_catalog.format('depend %s %s %s %s', d.classid, d.objid, d.objsubid, d.deptype) AS fact
    FROM pg_catalog.pg_depend d WHERE d.refclassid = 'pg_catalog.pg_class'::regclass AND d.refobjid = {table}
      AND d.refobjsubid = {attnum}
      AND NOT (d.classid = 'pg_catalog.pg_trigger'::regclass AND d.objid IN (SELECT oid FROM ours))
  UNION ALL SELECT pg_catalog.format('index %s %s %s %s %s %s', c.oid, c.relname, c.reloptions,
      c.reltablespace, pg_catalog.obj_description(c.oid, 'pg_class'), i.xmin)
    FROM pg_catalog.pg_index i JOIN pg_catalog.pg_class c ON c.oid = i.indexrelid
    WHERE i.indrelid = {table} AND {attnum}::int2 = ANY (i.indkey)
  UNION ALL SELECT pg_catalog.format('constraint %s %s', k.oid, k.xmin) FROM pg_catalog.pg_constraint k
    WHERE (k.conrelid = {table} AND {attnum}::int2 = ANY (k.conkey)
           AND pg_catalog.right(k.conname::text, {length}) <> {suffix})
       OR (k.confrelid = {table} AND {attnum}::int2 = ANY (k.confkey))
  UNION ALL SELECT pg_catalog.format('default %s %s', a.oid, a.xmin) FROM pg_catalog.pg_attrdef a
    WHERE a.adrelid = {table} AND a.adnum = {attnum}
  UNION ALL SELECT pg_catalog.format('column %s %s %s %s %s %s %s', a.attnotnull, a.attacl,
      (SELECT pg_catalog.array_agg(o) FROM pg_catalog.unnest(a.attoptions) o WHERE o NOT LIKE 'pg\_attver=%'),
      a.attstorage, a.attcompression, a.attstattarget, pg_catalog.col_description(a.attrelid, a.attnum))
    FROM pg_catalog.pg_attribute a WHERE a.attrelid = {table} AND a.attnum = {attnum})
SELECT pg_catalog.md5(coalesce(pg_catalog.string_agg(fact, '|' ORDER BY fact), '')) FROM facts))sql",
                     fmt::arg("table", fmt::format("{}::oid", m.row.table_oid.value)),
                     fmt::arg("attnum", m.binding.column.old_attnum),
                     fmt::arg("suffix", quote_literal("_" + m.row.id.short_hex())),
                     fmt::arg("length", 1 + m.row.id.short_hex().size()));
}

}  // namespace crossfade
