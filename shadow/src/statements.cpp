#include "crossfade/shadow/statements.hpp"

#include "comparator_sql.hpp"
#include "crossfade/core/error.hpp"
#include "crossfade/shadow/key_sql.hpp"
#include "crossfade/shadow/rejects.hpp"
#include "profile_sql.hpp"
#include "range_marks.hpp"
#include "sweep_sql.hpp"

namespace crossfade {

namespace {

// Both bounds are there; a text depends on nothing else of a range.
const KeyRange& bounded() {
  static const KeyRange range{Key{}, Key{}};
  return range;
}

// As a phase writes it, with parameters in place of the keys.
std::string bounded_sql(const Migration& m) {
  return key_range_sql(m.binding.key, "t", "$1::text[]", "$2::text[]");
}

Statement marks(const Migration& m, const QualifiedName& table) {
  return {
      "where ranges may end, by the statistics",
      range_marks_sql(table, m.binding.key, key_range_sql(m.binding.key, "r", "$3::text[]", "$4::text[]")),
      "ACCESS SHARE on " + table.display()};
}

std::string reading(const QualifiedName& table) { return "ACCESS SHARE on " + table.display(); }

Equality equality_of(SqlSession& session, const std::string& type) {
  Savepoint undone(session);
  try {
    session.exec(equality_probe_sql(type));
    return Equality::by_operator;
  } catch (const Error& error) {
    if (error.sqlstate() != "42883") throw;
    undone.rollback();
    return Equality::by_image;
  }
}

}  // namespace

std::string_view to_text(Blocks blocks) {
  switch (blocks) {
    case Blocks::nothing:
      return "nothing";
    case Blocks::rows:
      return "rows";
    case Blocks::table:
      return "table";
  }
  return "";
}

std::vector<Statement> sweep_statements(const Migration& m, const QualifiedName& table) {
  const auto writing = "ROW EXCLUSIVE on " + table.display() + " and locks of the rows that it writes";
  const bool may_fail = !m.binding.column.forward.try_function.empty();
  const std::string leaf = m.binding.key.partitioned ? ", said of each leaf by its own name" : "";
  const auto chunk = [&](ChunkWay way, ChunkForm::Share share = ChunkForm::Share::all) {
    return chunk_sql(m, table, {way, RangeBy::key, ChunkForm::Low::bound, share});
  };
  std::vector<Statement> list{
      {"where the next chunk ends" + leaf, nth_key_sql(table, m.binding.key, bounded()), reading(table)},
      {"a chunk" + leaf, chunk(ChunkWay::plain), writing, Blocks::rows, true},
      {"a chunk of one share of the rows" + leaf, chunk(ChunkWay::plain, ChunkForm::Share::one), writing,
       Blocks::rows, true},
      {"a chunk around rows that others hold" + leaf, chunk(ChunkWay::careful), writing, Blocks::rows,
       false}};
  if (may_fail) {
    list.push_back({"a chunk with rows whose expression fails" + leaf, chunk(ChunkWay::tolerant), writing,
                    Blocks::rows, true});
  }
  list.push_back(
      {"a row that still differs after its chunk" + leaf, differing_keys_sql(m, table, {}), reading(table)});
  list.push_back(
      {"a row that was set aside", write_row_sql(m, table, RowOf::leftover), writing, Blocks::rows, true});
  if (may_fail) {
    list.push_back({"how a rejected row is now", reject_state_sql(m, table), reading(table)});
    list.push_back({"a rejected row that is fine by now", write_row_sql(m, table, RowOf::table), writing,
                    Blocks::rows, true});
  }
  return list;
}

std::vector<Statement> dry_run_statements(SqlSession& session, const Migration& m,
                                          const QualifiedName& table) {
  const auto& column = m.binding.column;
  const auto equality = equality_of(session, column.old_type);
  const bool may_fail =
      !column.forward.try_function.empty() || (column.backward && !column.backward->try_function.empty());
  std::vector<Statement> list{
      {"the last key to read", greatest_key_sql(table, m.binding.key), reading(table)},
      marks(m, table),
      {"where the next range ends", nth_key_sql(table, m.binding.key, bounded()), reading(table)},
      {"a range", profile_range_sql(m, table, equality, Tolerance::strict, bounded_sql(m)), reading(table)}};
  if (may_fail) {
    list.push_back({"a range with rows whose expression fails",
                    profile_range_sql(m, table, equality, Tolerance::tolerant, bounded_sql(m)),
                    reading(table)});
  }
  return list;
}

std::vector<Statement> comparison_statements(const Migration& m, const QualifiedName& table,
                                             CompareDirection direction) {
  std::vector<Statement> list{
      {"the last key to compare", greatest_key_sql(table, m.binding.key), reading(table)},
      marks(m, table),
      {"where the next range ends", nth_key_sql(table, m.binding.key, bounded()), reading(table)},
      {"a range", range_counts_sql(m, table, direction, Tolerance::strict, bounded_sql(m)), reading(table)},
      {"a range in which rows seem to differ",
       range_verdicts_sql(m, table, direction, Tolerance::strict, bounded_sql(m)), reading(table)}};
  if (may_fail(m, direction)) {
    list.push_back({"a range with rows whose expression fails",
                    range_verdicts_sql(m, table, direction, Tolerance::tolerant, bounded_sql(m)),
                    reading(table)});
  }
  list.push_back(
      {"rows that seem to differ, once more", keyed_verdicts_sql(m, table, direction), reading(table)});
  if (direction == CompareDirection::backward)
    list.push_back({"how a noted row is now", misfit_state_sql(m, table), reading(table)});
  if (direction == CompareDirection::forward || m.binding.column.backward) {
    list.push_back({"only on crossfade diffs --repair", repair_sql(m, table, direction),
                    "ROW EXCLUSIVE on " + table.display() + " and the lock of the row", Blocks::rows, true});
  }
  return list;
}

}  // namespace crossfade
