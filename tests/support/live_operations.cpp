// What applications do to a table. In COPY and INSERT the columns are always named.
#include <fmt/format.h>

#include <algorithm>

#include "support/live_writers.hpp"

namespace crossfade::test {
namespace {

std::string columns(const Draw& draw) {
  return fmt::format("{}, {}, {}", draw.key_columns(), draw.table().column, draw.table().other);
}

std::string insert(Draw& draw, std::int64_t n) {
  return fmt::format("INSERT INTO {{table}} ({}) VALUES ({}, {}, {})", columns(draw), draw.key_list(n),
                     draw.value(), draw.number(1000));
}

std::string update_column(Draw& draw, std::int64_t n) {
  return fmt::format("UPDATE {{table}} SET {} = {} WHERE {}", draw.table().column, draw.value(),
                     draw.key_is(n));
}

std::string update_other(Draw& draw, std::int64_t n) {
  return fmt::format("UPDATE {{table}} SET {0} = {0} + 1 WHERE {1}", draw.table().other, draw.key_is(n));
}

std::string erase(Draw& draw, std::int64_t n) {
  return fmt::format("DELETE FROM {{table}} WHERE {}", draw.key_is(n));
}

LiveTransaction insert_or_update(Draw& draw) {
  const auto n = draw.churn();
  return {draw.lock_churn({n}),
          {fmt::format("{} ON CONFLICT ({}) DO UPDATE SET {} = EXCLUDED.{}, {} = EXCLUDED.{}",
                       insert(draw, n), draw.key_columns(), draw.table().column, draw.table().column,
                       draw.table().other, draw.table().other)}};
}

LiveTransaction insert_or_nothing(Draw& draw) {
  const auto n = draw.number(2) == 0 ? draw.churn() : draw.stable();
  return {draw.lock_churn({n}), {insert(draw, n) + " ON CONFLICT DO NOTHING"}};
}

LiveTransaction insert_without_column(Draw& draw) {
  const auto n = draw.fresh();
  return {{fmt::format("INSERT INTO {{table}} ({}, {}) VALUES ({}, {})", draw.key_columns(),
                       draw.table().other, draw.key_list(n), draw.number(1000))}};
}

LiveTransaction insert_from_select(Draw& draw) {
  return {{fmt::format("INSERT INTO {{table}} ({}) SELECT {}, {}, g FROM generate_series(1, 1) g",
                       columns(draw), draw.key_list(draw.fresh()), draw.value())}};
}

LiveTransaction insert_several(Draw& draw) {
  return {{fmt::format("INSERT INTO {{table}} ({}) VALUES ({}, {}, 1), ({}, {}, 2), ({}, DEFAULT, 3)",
                       columns(draw), draw.key_list(draw.fresh()), draw.value(), draw.key_list(draw.fresh()),
                       draw.value(), draw.key_list(draw.fresh()))}};
}

LiveTransaction copy_rows(Draw& draw) {
  const auto a = draw.fresh(), b = draw.fresh();
  return {{fmt::format("COPY {{table}} ({}) FROM STDIN", columns(draw)),
           fmt::format("VALUES ({}, {}, 7), ({}, {}, 8)", draw.key_list(a), draw.value(), draw.key_list(b),
                       draw.value())}};
}

LiveTransaction update_the_column(Draw& draw) { return {{update_column(draw, draw.stable())}}; }
LiveTransaction update_a_hot_row(Draw& draw) { return {{update_column(draw, draw.hot())}}; }
LiveTransaction update_another_column(Draw& draw) { return {{update_other(draw, draw.stable())}}; }

LiveTransaction update_both(Draw& draw) {
  const auto n = draw.stable();
  return {{update_other(draw, n)}, {update_column(draw, n)}, {update_other(draw, n)}};
}

LiveTransaction set_the_default(Draw& draw) {
  return {{fmt::format("UPDATE {{table}} SET {} = DEFAULT WHERE {}", draw.table().column,
                       draw.key_is(draw.stable()))}};
}

// Against the order in which a sweep locks rows, and with it.
LiveTransaction update_several(Draw& draw) {
  auto a = draw.stable(), b = draw.stable();
  if (draw.number(2) == 0) std::swap(a, b);
  return {draw.lock_several(), {update_column(draw, a)}, {update_other(draw, b)}};
}

LiveTransaction update_many_at_once(Draw& draw) {
  std::string any;
  for (int i = 0; i < 5; ++i) any += fmt::format("{}({})", i > 0 ? " OR " : "", draw.key_is(draw.stable()));
  return {draw.lock_several(),
          {fmt::format("UPDATE {{table}} SET {0} = {0} + 1, {1} = {1} WHERE {2}", draw.table().other,
                       draw.table().column, any)}};
}

LiveTransaction change_the_key(Draw& draw) {
  const auto from = draw.churn(), to = draw.churn();
  if (from == to) return {draw.lock_churn({from}), {update_other(draw, from)}};
  return {draw.lock_churn({from, to}),
          {erase(draw, to)},
          {fmt::format("UPDATE {{table}} SET {} WHERE {}", draw.key_becomes(to), draw.key_is(from))}};
}

LiveTransaction remove(Draw& draw) {
  const auto n = draw.churn();
  return {draw.lock_churn({n}), {erase(draw, n)}};
}

LiveTransaction remove_and_insert_again(Draw& draw) {
  const auto n = draw.churn();
  return {draw.lock_churn({n}), {erase(draw, n)}, {insert(draw, n)}};
}

LiveTransaction roll_back(Draw& draw) {
  const auto n = draw.churn();
  return {draw.lock_churn({n}),
          {erase(draw, n)},
          {insert(draw, n)},
          {update_column(draw, draw.hot())},
          {"ROLLBACK"}};
}

LiveTransaction roll_back_to_savepoint(Draw& draw) {
  const auto n = draw.churn();
  return {draw.lock_churn({n}),     {erase(draw, n)},         {insert(draw, n)}, {"SAVEPOINT a"},
          {update_column(draw, n)}, {erase(draw, n)},         {"ROLLBACK TO a"}, {update_other(draw, n)},
          {"SAVEPOINT b"},          {update_column(draw, n)}, {"RELEASE b"}};
}

}  // namespace

std::vector<LiveOperation> standard_operations(const std::vector<std::string>& without) {
  std::vector<LiveOperation> all{{"insert or update", insert_or_update},
                                 {"insert or nothing", insert_or_nothing},
                                 {"insert without the column", insert_without_column},
                                 {"insert from select", insert_from_select},
                                 {"insert several", insert_several},
                                 {"copy", copy_rows},
                                 {"update the column", update_the_column},
                                 {"update a hot row", update_a_hot_row},
                                 {"update another column", update_another_column},
                                 {"update both", update_both},
                                 {"set the default", set_the_default},
                                 {"update several", update_several},
                                 {"update many at once", update_many_at_once},
                                 {"change the key", change_the_key},
                                 {"remove", remove},
                                 {"remove and insert again", remove_and_insert_again},
                                 {"roll back", roll_back},
                                 {"roll back to a savepoint", roll_back_to_savepoint}};
  std::erase_if(all, [&](const auto& operation) {
    return std::ranges::find(without, operation.name) != without.end();
  });
  return all;
}

}  // namespace crossfade::test
