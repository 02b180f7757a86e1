// What the ledger does not carry is refused by the plan, by name; and when it has gone, as the hint says, the
// life is that of any column.
#include <fmt/format.h>

#include "ledger_case.hpp"

namespace crossfade::test {
namespace {

class RefusedCasesTest : public LedgerLifecycleTest {
 protected:
  std::string refusals() {
    std::string told;
    for (const auto& finding : migrator_->plan({spec()}).refusals) {
      EXPECT_EQ(finding.id, "dependent_not_carried") << finding.message;
      EXPECT_FALSE(finding.hint.empty()) << finding.message;
      told += finding.message + "\n";
    }
    return told;
  }
};

TEST_P(RefusedCasesTest, IsNamedAndTheLifeGoesOnWithoutIt) {
  const auto& c = GetParam();
  make();
  const auto with_it = lines();
  const auto told = refusals();
  EXPECT_NE(told.find(c.told), std::string::npos) << told;
  EXPECT_THROW(start(), Error);
  EXPECT_EQ(lines(), with_it) << "nothing was touched";
  sql(c.undo);
  EXPECT_EQ(refusals(), "");
  before_ = lines();
  start();
  live();
}

LedgerCase refused(const std::string& name, const std::string& ddl, const std::string& told,
                   const std::string& undo, const std::string& column = "b",
                   const std::string& type = "bigint") {
  LedgerCase c{name, ddl, type, column};
  c.told = told;
  c.undo = undo;
  return c;
}

const std::string kTriggerFunction =
    "CREATE FUNCTION f() RETURNS trigger LANGUAGE plpgsql AS 'BEGIN RETURN NEW; END';";

const std::vector<LedgerCase> kRefused{
    refused("NondeterministicCollation",
            "CREATE COLLATION c (provider = icu, locale = 'und', deterministic = false);"
            "ALTER TABLE t ALTER d TYPE text COLLATE c",
            "nondeterministic collation public.c", "ALTER TABLE t ALTER d TYPE text COLLATE \"C\"", "d",
            "character varying(50)"),
    refused("DeferrableUnique", "ALTER TABLE t ADD CONSTRAINT c UNIQUE (b) DEFERRABLE",
            "constraint c on table", "ALTER TABLE t DROP CONSTRAINT c, ADD CONSTRAINT c UNIQUE (b)"),
    refused("IndexOfTheWholeRow",
            "CREATE FUNCTION f(t) RETURNS int IMMUTABLE LANGUAGE sql AS 'SELECT 1';"
            "CREATE INDEX i ON t (f(t))",
            "index public.i", "DROP INDEX i; DROP FUNCTION f(t)"),
    refused("IndexWithAStatisticsTarget",
            "CREATE INDEX i ON t ((b + 1)); ALTER INDEX i ALTER 1 SET STATISTICS 9", "index public.i",
            "ALTER INDEX i ALTER 1 SET STATISTICS -1"),
    refused("Exclude", "ALTER TABLE t ADD CONSTRAINT c EXCLUDE USING btree (b WITH =)",
            "constraint c on table", "ALTER TABLE t DROP CONSTRAINT c"),
    refused("GeneratedColumn", "ALTER TABLE t ADD g int GENERATED ALWAYS AS (b + 1) STORED",
            "column g of table", "ALTER TABLE t DROP g"),
    refused("MaterializedView", "CREATE MATERIALIZED VIEW v AS SELECT b FROM t", "Materialized view public.v",
            "DROP MATERIALIZED VIEW v"),
    refused("MaterializedViewOfAView",
            "CREATE VIEW v AS SELECT id, b FROM t; CREATE MATERIALIZED VIEW w AS SELECT b FROM v",
            "Materialized view public.w", "DROP MATERIALIZED VIEW w"),
    refused("CheckOfTheWholeRow", "ALTER TABLE t ADD CONSTRAINT c CHECK (t IS NOT NULL)",
            "constraint c on table", "ALTER TABLE t DROP CONSTRAINT c"),
    refused("WhenOverTheWholeRow",
            kTriggerFunction + "CREATE TRIGGER g BEFORE INSERT ON t FOR EACH ROW WHEN (NEW.b > 0 AND NEW IS"
                               " DISTINCT FROM NULL) EXECUTE FUNCTION f()",
            "trigger g on table", "DROP TRIGGER g ON t"),
    refused("PolicyOverTheWholeRow", "CREATE POLICY p ON t USING (b > 0 AND t IS NOT NULL)",
            "policy p on table", "DROP POLICY p ON t"),
    refused("ForeignKeyOfAnotherColumn",
            "ALTER TABLE t ADD CONSTRAINT u UNIQUE (b); CREATE TABLE c (b int CONSTRAINT k REFERENCES t (b))",
            "constraint k on table public.c", "ALTER TABLE c DROP CONSTRAINT k"),
};
INSTANTIATE_TEST_SUITE_P(dependents_refused, RefusedCasesTest, ::testing::ValuesIn(kRefused),
                         [](const auto& tested) { return tested.param.name; });

// What cannot be made again is refused by the plan, not found out by the switch. `check` is the name told.
class RefusedByThePlanTest : public LedgerLifecycleTest {};

TEST_P(RefusedByThePlanTest, ByName) {
  const auto& c = GetParam();
  sql(kLedgerTable + c.ddl);
  Migrator migrator({.dsn = dsn(), .redis = "", .operator_name = "ada", .host = "lovelace"});
  migrator.init();
  const auto report = migrator.plan(
      {fmt::format("[migration]\nname = \"m\"\ntable = \"public.t\"\n[[column]]\nname = \"{0}\"\n"
                   "type = \"{1}\"\nforward = \"{0}::{1}\"\nbackward = \"{0}::text\"\n",
                   c.column, c.type)});
  std::string told;
  for (const auto& finding : report.refusals)
    if (finding.id == "dependent_not_carried") told += finding.message + "\n";
  EXPECT_NE(told.find(c.check), std::string::npos) << told;
}

INSTANTIATE_TEST_SUITE_P(
    dependents_refused_views, RefusedByThePlanTest,
    ::testing::Values(
        LedgerCase{"DefaultOfAView",
                   "CREATE VIEW v AS SELECT id, d FROM t; ALTER VIEW v ALTER d SET DEFAULT 'no number'",
                   "integer", "d", "public.v"},
        LedgerCase{"RuleOfAView",
                   "CREATE TABLE log (d date); CREATE VIEW v AS SELECT id, d FROM t;"
                   "CREATE RULE r AS ON INSERT TO v DO INSTEAD INSERT INTO log VALUES (NEW.d::date)",
                   "integer", "d", "public.v"},
        LedgerCase{"RuleThatUsesALaterView",
                   "CREATE VIEW v AS SELECT id, d FROM t; CREATE VIEW w AS SELECT id, d FROM v;"
                   "CREATE RULE r AS ON DELETE TO v DO INSTEAD DELETE FROM w WHERE id = OLD.id",
                   "character varying(50)", "d", "rule r on view"}),
    [](const auto& tested) { return tested.param.name; });

}  // namespace
}  // namespace crossfade::test
