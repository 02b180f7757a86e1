// The order of a key is that of its index, whichever way its columns run.
#include <fmt/format.h>

#include <set>

#include "crossfade/core/catalog.hpp"
#include "crossfade/shadow/key_sql.hpp"
#include "support/database_test.hpp"

namespace crossfade::test {
namespace {

class KeyOrderTest : public DatabaseTest {
 protected:
  // 6000 rows, of which 2000 have each leading value but for one that is alone.
  void prepare(const std::string& columns) {
    session_.script(
        "CREATE TABLE public.t (a int NOT NULL, b text COLLATE \"C\" NOT NULL, c int NOT NULL, v int);"
        "INSERT INTO public.t SELECT CASE WHEN g = 77 THEN 9 ELSE g % 3 END, chr(97 + g % 7) || g % 50, g, g"
        " FROM generate_series(1, 6000) g;");
    session_.script(fmt::format("CREATE UNIQUE INDEX i ON public.t ({});", columns));
    session_.script("ANALYZE public.t");
    key_ = *choose_key(session_, read_table(session_, table_)->oid, {});
  }

  std::vector<std::string> keys(const std::string& order) {
    std::vector<std::string> keys;
    for (const auto& row :
         session_.exec(fmt::format("SELECT {} FROM public.t t ORDER BY {}", key_text_sql(key_, "t"), order))
             .rows)
      keys.push_back(text_of(row[0]));
    return keys;
  }

  std::string plan(const std::string& sql, const SqlParams& params) {
    std::string text;
    for (const auto& row : session_.exec("EXPLAIN (COSTS OFF) " + sql, params).rows)
      text += text_of(row[0]) + "\n";
    return text;
  }

  // From bound to bound to the end: each range holds the rows between, and all together every row once.
  void walk(const std::vector<std::string>& all, std::int64_t step) {
    std::optional<Key> low;
    std::size_t met = 0;
    while (true) {
      const auto high = nth_key(session_, table_, key_, {low, std::nullopt}, step);
      const std::string from = low ? "$1::text[]" : "", to = high ? "$2::text[]" : "";
      const auto found = session_.exec(
          fmt::format(
              "SELECT {0} FROM ONLY public.t t WHERE {1} AND $1::text IS NOT DISTINCT FROM $1::text AND"
              " $2::text IS NOT DISTINCT FROM $2::text ORDER BY {2}",
              key_text_sql(key_, "t"), key_range_sql(key_, "t", from, to), key_order_sql(key_, "t")),
          {low ? SqlValue(array_literal(*low)) : SqlValue(),
           high ? SqlValue(array_literal(*high)) : SqlValue()});
      for (const auto& row : found.rows) {
        ASSERT_LT(met, all.size());
        ASSERT_EQ(text_of(row[0]), all[met++]);
      }
      if (!high) break;
      ASSERT_EQ(static_cast<std::int64_t>(found.size()), step);
      low = high;
    }
    EXPECT_EQ(met, all.size());
  }

  SqlSession session_ = SqlSession::connect({dsn(), "test"});
  const QualifiedName table_{"public", "t"};
  KeyFacts key_;
};

TEST_F(KeyOrderTest, EveryRowIsMetOnceInTheOrderOfTheIndex) {
  struct Case {
    std::string index, order;
  };
  const std::vector<Case> cases{{"a, b DESC, c", "a, b DESC, c"},
                                {"a DESC, c", "a, c DESC"},  // read backwards
                                {"a DESC NULLS LAST, b, c DESC NULLS LAST", "a, b DESC, c"},
                                {"a, b, c DESC NULLS LAST", "a, b, c DESC"},
                                {"a DESC, b DESC, c DESC NULLS LAST", "a, b, c"}};
  for (const auto& [index, order] : cases) {
    SCOPED_TRACE(index);
    prepare(index);
    const auto all = keys(order);
    walk(all, 457);
    EXPECT_EQ(array_literal(*greatest_key(session_, table_, key_)), array_literal(parse_key(all.back())));
    session_.script("DROP TABLE public.t");
  }
}

TEST_F(KeyOrderTest, TheIndexServesOrderAndRange) {
  for (const auto* index : {"a, b DESC, c", "a DESC, c", "a DESC NULLS LAST, b, c DESC",
                            "a NULLS FIRST, b, c", "a DESC NULLS LAST, c DESC NULLS LAST"}) {
    SCOPED_TRACE(index);
    prepare(index);
    const auto ordered =
        plan(fmt::format("SELECT 1 FROM ONLY public.t t ORDER BY {} LIMIT 5", key_order_sql(key_, "t")), {});
    EXPECT_NE(ordered.find("using i"), std::string::npos) << ordered;
    EXPECT_EQ(ordered.find("Sort"), std::string::npos) << ordered;
    EXPECT_EQ(plan(greatest_key_sql(table_, key_), {}).find("Sort"), std::string::npos);
    const auto all = keys(key_order_sql(key_, "t"));
    const SqlParams bounds{all[1000], all[1100]};
    const auto range = plan(fmt::format("SELECT count(*) FROM ONLY public.t t WHERE {}",
                                        key_range_sql(key_, "t", "$1::text[]", "$2::text[]")),
                            bounds);
    EXPECT_EQ(range.find("Seq Scan"), std::string::npos) << range;
    EXPECT_TRUE(range.find("using i ") != std::string::npos || range.find("on i\n") != std::string::npos)
        << range;
    session_.script("DROP TABLE public.t");
  }
}

TEST_F(KeyOrderTest, AnIndexThatRunsOneWayIsPreferred) {
  session_.script(
      "CREATE TABLE public.t (a int NOT NULL, b int NOT NULL, c int NOT NULL);"
      "CREATE UNIQUE INDEX mixed ON public.t (a, b DESC); CREATE UNIQUE INDEX plain ON public.t (a, b, c);");
  EXPECT_EQ(choose_key(session_, read_table(session_, table_)->oid, {})->index_name, "public.plain");
  session_.script("DROP INDEX public.plain");
  key_ = *choose_key(session_, read_table(session_, table_)->oid, {});
  EXPECT_EQ(key_.index_name, "public.mixed");
  EXPECT_FALSE(key_.columns[0].descending);
  EXPECT_TRUE(key_.columns[1].descending);
}

}  // namespace
}  // namespace crossfade::test
