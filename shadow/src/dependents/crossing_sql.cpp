// The statements that move what hangs on the column from one side to the other. They run once, under ACCESS
// EXCLUSIVE, in one transaction with the rename of the columns, so each may rely on what the one before it
// left.
//
// No statement scans the table: SET NOT NULL finds the validated check and believes it, a NOT VALID check
// looks at nothing, renames and comments touch the catalog only.
#include <fmt/format.h>

#include <ranges>
#include <set>

#include "crossfade/shadow/dependents.hpp"
#include "not_null.hpp"

namespace crossfade {

namespace {

class Mover {
 public:
  Mover(const Migration& m, const QualifiedName& table) : m_(m), table_(table) {}

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
  void drop_index(const std::string& name) {
    sql_ += fmt::format("DROP INDEX {};\n", QualifiedName{table_.schema, name}.sql());
  }
  // The parts of a partitioned index trade their names with those of its counterpart, partition by partition:
  // `index` bears the name already, and its part on each partition bears that of the counterpart's. Read
  // under the lock, so that a partition that came meanwhile has its parts exchanged too.
  void exchange_parts(const std::string& index, const std::string& counterpart) {
    if (!m_.binding.key.partitioned) return;
    const auto parts = [&](const char* name, const std::string& root) {
      return fmt::format(R"sql({0} (oid, relation) AS (
    SELECT i.indexrelid, i.indrelid FROM pg_catalog.pg_index i WHERE i.indexrelid = {1}::regclass
    UNION ALL SELECT i.indexrelid, i.indrelid FROM {0} JOIN pg_catalog.pg_inherits h ON h.inhparent = {0}.oid
      JOIN pg_catalog.pg_index i ON i.indexrelid = h.inhrelid))sql",
                         name, quote_literal(QualifiedName{table_.schema, root}.sql()));
    };
    const auto between = quote_literal("cf_between_" + m_.row.id.short_hex());
    const auto body =
        fmt::format(R"sql(DECLARE
  part record;
BEGIN
  FOR part IN WITH RECURSIVE {0}, {1}
    SELECT n.nspname AS schema, a.relname AS one, b.relname AS other FROM ones JOIN others USING (relation)
    JOIN pg_catalog.pg_class a ON a.oid = ones.oid JOIN pg_catalog.pg_class b ON b.oid = others.oid
    JOIN pg_catalog.pg_namespace n ON n.oid = a.relnamespace WHERE relation <> {2}::oid ORDER BY a.oid LOOP
    EXECUTE pg_catalog.format('ALTER INDEX %I.%I RENAME TO %I', part.schema, part.one, {3});
    EXECUTE pg_catalog.format('ALTER INDEX %I.%I RENAME TO %I', part.schema, part.other, part.one);
    EXECUTE pg_catalog.format('ALTER INDEX %I.%I RENAME TO %I', part.schema, {3}, part.other);
  END LOOP;
END)sql",
                    parts("ones", index), parts("others", counterpart), m_.row.table_oid.value, between);
    sql_ += fmt::format("DO {};\n", quote_literal(body));
  }
  void comment_index(const std::string& name, const std::optional<std::string>& text) {
    sql_ += fmt::format("COMMENT ON INDEX {} IS {};\n", QualifiedName{table_.schema, name}.sql(),
                        quote_nullable(text));
  }
  void rename_statistics(const Dependent& entry, const std::string& from, const std::string& to) {
    sql_ += fmt::format("ALTER STATISTICS {} RENAME TO {};\n", QualifiedName{entry.schema, from}.sql(),
                        quote_identifier(to));
  }
  // What the table says of the index by its name, once the index bears it.
  void roles_of(const Dependent& entry) {
    if (entry.replica_identity) alter("REPLICA IDENTITY USING INDEX " + quote_identifier(entry.name));
    if (entry.clustered) alter("CLUSTER ON " + quote_identifier(entry.name));
  }
  // The index loses its name to the constraint that it becomes.
  void add_constraint(const Dependent& entry, const std::string& index) {
    if (entry.leafwise) {
      for (const auto& leaf : entry.leaves) {
        sql_ +=
            fmt::format("ALTER TABLE {} ADD CONSTRAINT {} {} USING INDEX {};\n", leaf.table.sql(),
                        quote_identifier(leaf.index), entry.constraint_kind, quote_identifier(leaf.index));
      }
      // Makes the table's of them, by the names that its parts had.
      sql_ += entry.create_sql;
      return;
    }
    alter(fmt::format("ADD CONSTRAINT {} {} USING INDEX {}", quote_identifier(entry.name),
                      entry.constraint_kind, quote_identifier(index)));
    if (entry.old_sql) comment_index(entry.name, entry.old_sql);
    sql_ += entry.create_sql;
    roles_of(entry);
  }
  std::string take() { return std::move(sql_); }

 private:
  const Migration& m_;
  const QualifiedName& table_;
  std::string sql_;
};

}  // namespace

std::string let_keys_go_sql(const QualifiedName& table, const Ledger& ledger) {
  std::string sql;
  for (const auto& entry : ledger.carried | std::views::reverse) {
    if (entry.kind != DependentKind::unique_constraint || !is_own_twin(entry)) continue;
    if (entry.leafwise)
      sql += entry.remove_sql;
    else
      sql += fmt::format("ALTER TABLE {} DROP CONSTRAINT {};\n", table.sql(), quote_identifier(entry.name));
  }
  return sql;
}

namespace {

std::string of_sequences(const Ledger& ledger, std::optional<std::string> Dependent::*statement) {
  std::string sql;
  for (const auto& entry : ledger.carried) {
    if (entry.kind == DependentKind::sequence || entry.kind == DependentKind::identity)
      sql += (entry.*statement).value_or("");
  }
  return sql;
}

}  // namespace

std::string sequences_over_sql(const Ledger& ledger) { return of_sequences(ledger, &Dependent::new_sql); }
std::string sequences_back_sql(const Ledger& ledger) { return of_sequences(ledger, &Dependent::old_sql); }

std::vector<std::string> locked_beside(const Ledger& ledger) {
  std::set<std::string> relations;
  for (const auto& entry : ledger.carried) relations.insert(entry.locks.begin(), entry.locks.end());
  return {relations.begin(), relations.end()};
}

std::string shadow_settings_sql(const Migration& m, const QualifiedName& table, const Ledger& ledger) {
  Mover mover(m, table);
  for (const auto& entry : ledger.carried) {
    if (entry.kind == DependentKind::column_setting) mover.column(m.names.new_column, entry.create_sql);
  }
  return mover.take();
}

namespace {

void twin_over(Mover& mover, const Migration& m, const Dependent& entry) {
  if (entry.kind == DependentKind::unique_constraint) {
    // The old column's own index went with the constraint; its spare stays, if it has one.
    mover.add_constraint(entry, m.generated.twin(entry.name));
  } else if (entry.kind == DependentKind::statistics) {
    mover.rename_statistics(entry, entry.name, m.generated.retired(entry.name));
    mover.rename_statistics(entry, m.generated.twin(entry.name), entry.name);
  } else {
    if (entry.shed)
      mover.drop_index(entry.name);
    else
      mover.rename_index(entry.name, m.generated.retired(entry.name));
    mover.rename_index(m.generated.twin(entry.name), entry.name);
    if (!entry.shed) mover.exchange_parts(entry.name, m.generated.retired(entry.name));
    if (entry.old_sql) mover.comment_index(entry.name, entry.old_sql);
    mover.roles_of(entry);
  }
}

void twin_back(Mover& mover, const Migration& m, const Dependent& entry) {
  if (entry.kind == DependentKind::unique_constraint) {
    mover.add_constraint(entry, m.generated.retired(entry.name));
  } else if (entry.kind == DependentKind::statistics) {
    mover.rename_statistics(entry, entry.name, m.generated.twin(entry.name));
    mover.rename_statistics(entry, m.generated.retired(entry.name), entry.name);
  } else {
    mover.rename_index(entry.name, m.generated.twin(entry.name));
    mover.rename_index(m.generated.retired(entry.name), entry.name);
    if (!entry.shed) mover.exchange_parts(entry.name, m.generated.twin(entry.name));
    if (entry.old_sql) {
      mover.comment_index(m.generated.twin(entry.name), std::nullopt);
      if (entry.shed) mover.comment_index(entry.name, entry.old_sql);
    }
    mover.roles_of(entry);
  }
}

}  // namespace

CarriedSql carry_over_sql(const Migration& m, const QualifiedName& table, const Ledger& ledger,
                          bool not_null_check_valid) {
  Mover properties(m, table), twins(m, table), released(m, table);
  const auto& now = m.names.new_column;
  const auto& before = m.names.old_column;
  for (const auto& entry : ledger.carried) {
    if (is_own_twin(entry)) {
      twin_over(twins, m, entry);
    } else if (entry.kind == DependentKind::default_value) {
      properties.default_value(before, std::nullopt);
      properties.default_value(now, entry.new_sql);
    } else if (entry.kind == DependentKind::comment) {
      properties.comment(before, std::nullopt);
      properties.comment(now, entry.old_sql);
    } else if (entry.kind == DependentKind::not_null) {
      if (not_null_check_valid) {
        properties.column(now, "SET NOT NULL");
        properties.alter("DROP CONSTRAINT " + quote_identifier(new_not_null_check(m)));
      } else {
        // dual_write may have been left between adding the check and validating it.
        properties.alter("DROP CONSTRAINT IF EXISTS " + quote_identifier(new_not_null_check(m)));
        properties.alter(add_not_null_check(new_not_null_check(m), now));
      }
      // A primary key or a replica identity has left the column by then, and would not have let it go before.
      released.column(before, "DROP NOT NULL");
    }
  }
  return {properties.take(), twins.take(), released.take()};
}

CarriedSql carry_back_sql(const Migration& m, const QualifiedName& table, const Ledger& ledger,
                          bool old_check_valid) {
  Mover properties(m, table), twins(m, table), released(m, table);
  const auto& back = m.names.old_column;
  const auto& leaving = m.names.new_column;
  for (const auto& entry : ledger.carried) {
    if (is_own_twin(entry)) {
      twin_back(twins, m, entry);
    } else if (entry.kind == DependentKind::default_value) {
      properties.default_value(leaving, std::nullopt);
      properties.default_value(back, entry.old_sql);
    } else if (entry.kind == DependentKind::comment) {
      properties.comment(leaving, std::nullopt);
      properties.comment(back, entry.old_sql);
    } else if (entry.kind == DependentKind::not_null) {
      properties.alter("DROP CONSTRAINT IF EXISTS " + quote_identifier(new_not_null_check(m)));
      if (old_check_valid) {
        properties.column(back, "SET NOT NULL");
        properties.alter("DROP CONSTRAINT " + quote_identifier(old_not_null_check(m)));
      } else {
        properties.alter(add_not_null_check(old_not_null_check(m), back));
      }
      released.column(leaving, "DROP NOT NULL");
      if (proves_not_null(m.binding.column))
        released.alter(add_not_null_check(new_not_null_check(m), leaving));
    }
  }
  return {properties.take(), twins.take(), released.take()};
}

namespace {

// The views on the column and those on them.
std::string view_closure_sql(const Migration& m) {
  return fmt::format(R"sql(views AS (
  SELECT w.ev_class AS oid FROM pg_catalog.pg_depend d JOIN pg_catalog.pg_rewrite w ON w.oid = d.objid
    AND w.rulename = '_RETURN'
    WHERE d.classid = 'pg_catalog.pg_rewrite'::regclass AND d.refclassid = 'pg_catalog.pg_class'::regclass
      AND d.refobjid = {0}::oid AND d.refobjsubid = {1}
  UNION SELECT w.ev_class FROM views JOIN pg_catalog.pg_depend d ON d.refobjid = views.oid
    AND d.refclassid = 'pg_catalog.pg_class'::regclass AND d.classid = 'pg_catalog.pg_rewrite'::regclass
    AND d.deptype = 'n' JOIN pg_catalog.pg_rewrite w ON w.oid = d.objid AND w.rulename = '_RETURN'))sql",
                     m.row.table_oid.value, m.binding.column.old_attnum);
}

}  // namespace

std::string view_oids_sql(const Migration& m) {
  return fmt::format(
      "(WITH RECURSIVE {} SELECT coalesce(pg_catalog.array_agg(oid ORDER BY oid), '{{}}') FROM views)",
      view_closure_sql(m));
}

std::string views_mark_sql(const Migration& m) {
  return fmt::format(R"sql((WITH RECURSIVE {},
facts AS (
  SELECT pg_catalog.format('view %s %s', v.oid, v.xmin) AS fact FROM views
    JOIN pg_catalog.pg_class v ON v.oid = views.oid
  UNION ALL SELECT pg_catalog.format('column %s %s %s', a.attrelid, a.attnum, a.xmin) FROM views
    JOIN pg_catalog.pg_attribute a ON a.attrelid = views.oid
  UNION ALL SELECT pg_catalog.format('rule %s %s', w.oid, w.xmin) FROM views
    JOIN pg_catalog.pg_rewrite w ON w.ev_class = views.oid
  UNION ALL SELECT pg_catalog.format('trigger %s %s', t.oid, t.xmin) FROM views
    JOIN pg_catalog.pg_trigger t ON t.tgrelid = views.oid
  UNION ALL SELECT pg_catalog.format('default %s %s', d.oid, d.xmin) FROM views
    JOIN pg_catalog.pg_attrdef d ON d.adrelid = views.oid
  UNION ALL SELECT pg_catalog.format('comment %s %s %s', d.objoid, d.objsubid, d.description) FROM views
    JOIN pg_catalog.pg_description d ON d.objoid = views.oid AND d.classoid = 'pg_catalog.pg_class'::regclass)
SELECT pg_catalog.md5(coalesce(pg_catalog.string_agg(fact, '|' ORDER BY fact), '')) FROM facts))sql",
                     view_closure_sql(m));
}

namespace {

// Of each partition: what refers to its column, which has the name but not always the number of the table's.
// Triggers of ours come and go with the table's.
std::string partition_marks_sql(const Migration& m) {
  if (!m.binding.key.partitioned) return {};
  return fmt::format(
      R"sql(UNION ALL SELECT pg_catalog.format('partition %s depend %s %s %s %s', a.attrelid, d.classid,
      d.objid, d.objsubid, d.deptype)
    FROM {tree} p JOIN pg_catalog.pg_attribute a ON a.attrelid = p.relid AND a.attname = {column}
    JOIN pg_catalog.pg_depend d ON d.refclassid = 'pg_catalog.pg_class'::regclass AND d.refobjid = a.attrelid
      AND d.refobjsubid = a.attnum
    WHERE NOT EXISTS (SELECT 1 FROM pg_catalog.pg_trigger t
      WHERE d.classid = 'pg_catalog.pg_trigger'::regclass
      AND t.oid = d.objid AND pg_catalog.right(t.tgname::text, {length}) = {suffix})
  UNION ALL SELECT pg_catalog.format('partition %s column %s %s %s %s %s', a.attrelid, a.attnotnull, a.attacl,
      a.attstorage, a.attstattarget, pg_catalog.col_description(a.attrelid, a.attnum))
    FROM {tree} p JOIN pg_catalog.pg_attribute a ON a.attrelid = p.relid AND a.attname = {column})sql",
      fmt::arg("tree", partition_tree_sql(fmt::format("{}::oid", m.row.table_oid.value))),
      fmt::arg("column", quote_literal(m.names.old_column)),
      fmt::arg("suffix", quote_literal("_" + m.row.id.short_hex())),
      fmt::arg("length", 1 + m.row.id.short_hex().size()));
}

}  // namespace

std::string dependents_mark_sql(const Migration& m, const std::string& except_views) {
  return fmt::format(R"sql((
WITH ours AS (
  SELECT t.oid FROM pg_catalog.pg_trigger t WHERE t.tgrelid = {table}
    AND pg_catalog.right(t.tgname::text, {length}) = {suffix}),
facts AS (
  SELECT pg_catalog.format('depend %s %s %s %s', d.classid, d.objid, d.objsubid, d.deptype) AS fact
    FROM pg_catalog.pg_depend d WHERE d.refclassid = 'pg_catalog.pg_class'::regclass AND d.refobjid = {table}
      AND d.refobjsubid = {attnum}
      AND NOT (d.classid = 'pg_catalog.pg_trigger'::regclass AND d.objid IN (SELECT oid FROM ours))
      AND NOT EXISTS (SELECT 1 FROM pg_catalog.pg_rewrite w WHERE d.classid =
          'pg_catalog.pg_rewrite'::regclass
        AND w.oid = d.objid AND w.ev_class = ANY ({views}::oid[]))
      AND NOT EXISTS (SELECT 1 FROM pg_catalog.pg_class c WHERE d.classid = 'pg_catalog.pg_class'::regclass
        AND c.oid = d.objid AND (pg_catalog.right(c.relname::text, {length}) = {suffix} OR c.relkind = 'S'))
  UNION ALL SELECT pg_catalog.format('index %s %s %s %s %s %s', c.oid, c.relname, c.reloptions,
      c.reltablespace, pg_catalog.obj_description(c.oid, 'pg_class'), i.xmin)
    FROM pg_catalog.pg_index i JOIN pg_catalog.pg_class c ON c.oid = i.indexrelid
    WHERE i.indrelid = {table} AND {attnum}::int2 = ANY (i.indkey)
      AND pg_catalog.right(c.relname::text, {length}) <> {suffix}
  UNION ALL SELECT pg_catalog.format('row %s %s', d.objid, coalesce(p.xmin, r.xmin, f.xmin, s.xmin, b.xmin))
    FROM pg_catalog.pg_depend d
    LEFT JOIN pg_catalog.pg_policy p ON d.classid = 'pg_catalog.pg_policy'::regclass AND p.oid = d.objid
    LEFT JOIN pg_catalog.pg_rewrite r ON d.classid = 'pg_catalog.pg_rewrite'::regclass AND r.oid = d.objid
    LEFT JOIN pg_catalog.pg_proc f ON d.classid = 'pg_catalog.pg_proc'::regclass AND f.oid = d.objid
    LEFT JOIN pg_catalog.pg_statistic_ext s ON d.classid = 'pg_catalog.pg_statistic_ext'::regclass AND s.oid
        = d.objid
    LEFT JOIN pg_catalog.pg_publication_rel b ON d.classid = 'pg_catalog.pg_publication_rel'::regclass
      AND b.oid = d.objid
    WHERE d.refclassid = 'pg_catalog.pg_class'::regclass AND d.refobjid = {table} AND d.refobjsubid = {attnum}
      AND (r.oid IS NULL OR r.ev_class <> ALL ({views}::oid[])) AND coalesce(p.xmin, r.xmin, f.xmin, s.xmin,
          b.xmin) IS NOT NULL
  UNION ALL SELECT pg_catalog.format('constraint %s %s', k.oid, k.xmin) FROM pg_catalog.pg_constraint k
    WHERE (k.conrelid = {table} AND {attnum}::int2 = ANY (k.conkey)
           AND pg_catalog.right(k.conname::text, {length}) <> {suffix})
       OR (k.confrelid = {table} AND {attnum}::int2 = ANY (k.confkey))
  UNION ALL SELECT pg_catalog.format('default %s %s', a.oid, a.xmin) FROM pg_catalog.pg_attrdef a
    WHERE a.adrelid = {table} AND a.adnum = {attnum}
  {partitions}
  UNION ALL SELECT pg_catalog.format('column %s %s %s %s %s %s %s', a.attnotnull, a.attacl,
      (SELECT pg_catalog.array_agg(o) FROM pg_catalog.unnest(a.attoptions) o WHERE o NOT LIKE 'pg\_attver=%'),
      a.attstorage, a.attcompression, a.attstattarget, pg_catalog.col_description(a.attrelid, a.attnum))
    FROM pg_catalog.pg_attribute a WHERE a.attrelid = {table} AND a.attnum = {attnum})
SELECT pg_catalog.md5(coalesce(pg_catalog.string_agg(fact, '|' ORDER BY fact), '')) FROM facts))sql",
                     fmt::arg("table", fmt::format("{}::oid", m.row.table_oid.value)),
                     fmt::arg("views", quote_literal(except_views)),
                     fmt::arg("partitions", partition_marks_sql(m)),
                     fmt::arg("attnum", m.binding.column.old_attnum),
                     fmt::arg("suffix", quote_literal("_" + m.row.id.short_hex())),
                     fmt::arg("length", 1 + m.row.id.short_hex().size()));
}

}  // namespace crossfade
