// Group B: keys and paging.
#include "case_test.hpp"

namespace crossfade::test {
namespace {

class KeyCases : public CaseTest {
 protected:
  // Loses the connection after each chunk of 100 rows, so that every position is read back from where it is
  // kept.
  void sweep_with_interruptions() {
    start(spec("b", "bigint", slowly()));
    advance_to(Phase::dry_run);
    failpoint::configure("chunk.after=error:08006");
    // A sweep gives up after so many lost connections, and the next one goes on.
    while (const auto code = code_of([&] { sweep_all(); })) ASSERT_EQ(code, ErrorCode::connection_lost);
    failpoint::configure("");
    EXPECT_EQ(value("SELECT sum(chunks) >= 3 FROM crossfade.unit"), "t");
    EXPECT_EQ(stale(), "0");
    EXPECT_EQ(value("SELECT sum(rows_written) = (SELECT count(*) FROM t) FROM crossfade.unit"), "t");
    quickly();
    advance_to(Phase::switched);
    advance_to(Phase::dropped);
  }
};

// 29: https://github.com/ExtendDB/extenddb/issues/357, 30: https://github.com/ether/ueberDB/issues/1128:
// ordered by the application's bytes, or by another collation than the index's.
TEST_F(KeyCases, KeysUnderAnIcuCollationAreAllMet) {
  sql("CREATE TABLE t (k text COLLATE \"en-x-icu\" PRIMARY KEY, b int);"
      "INSERT INTO t SELECT w || g, g FROM unnest(ARRAY['a_z','ab','B','a','Z','_x']) w, generate_series(1, "
      "60) g");
  sweep_with_interruptions();
}

TEST_F(KeyCases, KeysWhoseColumnsRunBothWaysAreAllMet) {
  sql("CREATE TABLE t (a int NOT NULL, c text NOT NULL, b int); CREATE UNIQUE INDEX ON t (a DESC, c NULLS "
      "FIRST);"
      "INSERT INTO t SELECT g % 2, 'x' || g, g FROM generate_series(1, 400) g");
  sweep_with_interruptions();
}

// 34: https://github.com/github/gh-ost/issues/744: (a, b) > (1, NULL) is neither true nor false.
TEST_F(KeyCases, ANullableUniqueIndexIsNoKey) {
  sql("CREATE TABLE t (a int NOT NULL, c int, b int, UNIQUE (a, c)); INSERT INTO t VALUES (1, NULL, 1), (1, "
      "NULL, 2)");
  std::string message;
  EXPECT_EQ(code_of([&] { start(); }, &message), ErrorCode::finding_refused);
  EXPECT_NE(message.find("no_usable_key"), std::string::npos) << message;
}

// Asked for again before the sweep begins, by its columns: an index that was made anew is as good.
TEST_F(KeyCases, AKeyThatIsGoneBeforeTheSweepShutsTheGate) {
  sql("CREATE TABLE t (id int, c int, b int, PRIMARY KEY (id, c)); INSERT INTO t VALUES (1, 1, 1), (2, 1, "
      "2)");
  start();
  advance_to(Phase::dry_run);
  sql("ALTER TABLE t DROP CONSTRAINT t_pkey; CREATE UNIQUE INDEX other ON t (id)");
  std::string message;
  EXPECT_EQ(code_of([&] { migrator().next("m"); }, &message), ErrorCode::finding_refused);
  EXPECT_NE(message.find("no_usable_key"), std::string::npos) << message;
  EXPECT_EQ(value("SELECT count(*) FROM pg_trigger WHERE tgrelid = 't'::regclass"), "0");
  sql("CREATE UNIQUE INDEX again ON t (c, id)");
  advance_to(Phase::switched);
}

TEST_F(KeyCases, APartialOrDeferrableUniqueIndexIsNoKey) {
  sql("CREATE TABLE t (a int NOT NULL, b int); CREATE UNIQUE INDEX ON t (a) WHERE a > 0;"
      "ALTER TABLE t ADD UNIQUE (a) DEFERRABLE");
  EXPECT_EQ(code_of([&] { start(); }), ErrorCode::finding_refused);
  sql("CREATE UNIQUE INDEX ON t (a)");
  start();
}

// 35: GitLab's BATCH_MIN_VALUE = 1: a sweep that begins at one.
TEST_F(KeyCases, NegativeZeroAndSmallestKeysAreMigrated) {
  sql("CREATE TABLE t (id int PRIMARY KEY, b int); INSERT INTO t VALUES (-5, 1), (0, 2), (3, 3), "
      "(-2147483648, 4)");
  start();
  advance_to(Phase::backfill);
  EXPECT_EQ(stale(), "0");
  EXPECT_EQ(shadow_of("id = -2147483648"), "4");
  advance_to(Phase::switched);
}

// 37: https://gitlab.com/gitlab-org/gitlab/-/merge_requests/93311: what is left of the range lies below the
// position.
TEST_F(KeyCases, ASweepWhoseRemainingRowsWereDeletedIsDone) {
  make_table();
  start(spec("b", "bigint", slowly()));
  advance_to(Phase::dry_run);
  stop_at("chunk.after");
  InBackground sweep([&] { sweep_all(); });
  wait_until_stopped();
  migrator().request_stop();
  let_go();
  EXPECT_EQ(sweep.end(), ErrorCode::interrupted) << sweep.message();
  sql("DELETE FROM t WHERE id > 50");
  const auto next = new_migrator();
  next->tune("m", {{"rows_per_second", "0"}});
  next->next("m", {.until = Phase::backfill, .confirm = {}, .accept = {}});
  EXPECT_EQ(stale(), "0");
  EXPECT_EQ(next->status("m").status, Status::settled);
}

// 39: https://github.com/xataio/pgroll/issues/211: a key that becomes part of a statement.
TEST_F(KeyCases, TextKeysAreParametersWhateverTheyHold) {
  sql("CREATE TABLE t (k text PRIMARY KEY, b int);"
      "INSERT INTO t SELECT k || CASE WHEN g = 0 THEN '' ELSE g::text END, 7 FROM unnest(ARRAY[$$O'Brien$$, "
      "'a\"b',"
      " '\\x', '', U&'\\+01F600', repeat('y', 2000), '{1,2}', 'NULL', '%s', '$1', E'a\\nb\\tc', '\\\\N', "
      "'\"']) k,"
      " generate_series(0, 20) g ON CONFLICT DO NOTHING");
  sweep_with_interruptions();
}

// 40: percona-toolkit's Changelog (PT-1616): a position that does not come back as it was.
TEST_F(KeyCases, ByteaKeysAreResumedExactly) {
  sql("CREATE TABLE t (k bytea PRIMARY KEY, b int);"
      "INSERT INTO t SELECT decode(lpad(to_hex(g), 8, '0'), 'hex') || '\\x00'::bytea, g FROM "
      "generate_series(0, 300) g;");
  super_sql(fmt::format("ALTER DATABASE {} SET bytea_output = 'escape'", database().name()));
  sweep_with_interruptions();
}

TEST_F(KeyCases, DateKeysAreResumedExactlyWhateverTheDateStyleOfTheRole) {
  sql("CREATE TABLE t (k date PRIMARY KEY, b int);"
      "INSERT INTO t SELECT date '2024-01-01' + g, g FROM generate_series(0, 300) g; INSERT INTO t VALUES"
      " ('infinity', 1), ('-infinity', 2), ('0044-03-15 BC', 3)");
  super_sql(fmt::format("ALTER DATABASE {} SET DateStyle = 'SQL, DMY'", database().name()));
  sweep_with_interruptions();
}

TEST_F(KeyCases, TimestampAndFloatKeysAreResumedExactly) {
  sql("CREATE TABLE t (k timestamptz, f float8, b int, PRIMARY KEY (k, f));"
      "INSERT INTO t SELECT timestamptz '2024-03-31 00:30+01' + g * interval '7 min 0.000001 s', g / "
      "3.0::float8, g"
      " FROM generate_series(0, 300) g; INSERT INTO t VALUES ('infinity', 'NaN', 1), ('-infinity', '-0', 2),"
      " ('infinity', '-infinity', 3)");
  super_sql(fmt::format(
      "ALTER DATABASE {0} SET TimeZone = 'Europe/Berlin'; ALTER DATABASE {0} SET extra_float_digits = 0",
      database().name()));
  sweep_with_interruptions();
}

// 42: percona-toolkit (PT-1114): nothing to copy, and a division by it.
TEST_F(KeyCases, AnEmptyTablePassesAllPhases) {
  make_table(0);
  start();
  advance_to(Phase::switched);
  advance_to(Phase::dropped);
}

TEST_F(KeyCases, ATableOfOneRowPassesAllPhases) {
  make_table(1);
  start();
  advance_to(Phase::switched);
  EXPECT_EQ(value("SELECT b FROM t"), "1");
  advance_to(Phase::dropped);
}

TEST_F(KeyCases, ATableWhoseRowsAreAllDeletedMeanwhilePassesAllPhases) {
  make_table();
  start(spec("b", "bigint", slowly()));
  advance_to(Phase::dry_run);
  stop_at("chunk.after");
  InBackground sweep([&] { sweep_all(); });
  wait_until_stopped();
  sql("DELETE FROM t");
  quickly();
  let_go();
  EXPECT_EQ(sweep.end(), std::nullopt) << sweep.message();
  EXPECT_EQ(migrator().status("m").units.done, migrator().status("m").units.total);
  advance_to(Phase::switched);
  advance_to(Phase::dropped);
}

// 43: https://github.com/xataio/pgroll/pull/298: the helper column is taken for the key.
TEST_F(KeyCases, TheMigratedColumnAndItsTwinAreNeverTheKey) {
  sql("CREATE TABLE t (b int NOT NULL UNIQUE, id int PRIMARY KEY); INSERT INTO t SELECT g, g FROM "
      "generate_series(1, 100) g;"
      "ALTER TABLE t DROP CONSTRAINT t_b_key; CREATE UNIQUE INDEX t_b ON t (b)");
  const auto plan = [&] {
    migrator();
    return migrator().plan({spec()});
  }();
  EXPECT_EQ(plan.key, "id");
  start();
  advance_to(Phase::compare);
  EXPECT_EQ(value("SELECT binding -> 'key' -> 'columns' -> 0 ->> 'name' FROM crossfade.migration"), "id");
  migrator().recapture("m");
  EXPECT_EQ(value("SELECT count(*) FROM crossfade.migration WHERE capture_high = '{100}'"), "1");
}

TEST_F(KeyCases, AnOnlyKeyThatWouldNotStayInOrderIsRefused) {
  sql("CREATE TABLE t (b int PRIMARY KEY)");
  EXPECT_EQ(code_of([&] { start(spec("b", "text")); }), ErrorCode::finding_refused);
}

// Rows written under the new name, past the old type and back again.
TEST_F(KeyCases, AnOnlyKeyBecomesAWiderInteger) {
  sql("CREATE TABLE t (b int GENERATED BY DEFAULT AS IDENTITY PRIMARY KEY, n text);"
      "INSERT INTO t (n) SELECT 'n' || g FROM generate_series(1, 300) g");
  start();
  advance_to(Phase::switched);
  EXPECT_TRUE(migrator().status("m").rollback.possible) << "what the way back does itself does not shut it";
  sql("INSERT INTO t (n) VALUES ('after')");
  EXPECT_EQ(value("SELECT b FROM t WHERE n = 'after'"), "301");
  sql("INSERT INTO t (b, n) VALUES (3000000000, 'far')");
  EXPECT_EQ(code_of([&] { migrator().rollback("m"); }), ErrorCode::rollback_refused);
  sql("DELETE FROM t WHERE n = 'far'; UPDATE t SET b = 1000 WHERE n = 'after'");
  migrator().rollback("m");
  advance_to(Phase::compare);
  EXPECT_EQ(value("SELECT b FROM t WHERE n = 'after'"), "1000");
  EXPECT_EQ(value("SELECT nextval('t_b_seq')"), "302");
  EXPECT_THROW(sql("INSERT INTO t (b, n) VALUES (3000000000, 'far')"), Error);
  advance_to(Phase::switched);
  sql("SELECT setval('t_b_seq', 2147483648)");
  EXPECT_EQ(code_of([&] { migrator().rollback("m"); }), ErrorCode::rollback_refused);
  sql("INSERT INTO t (n) VALUES ('wide')");
  advance_to(Phase::dropped);
  EXPECT_EQ(value("SELECT b FROM t WHERE n = 'wide'"), "2147483649");
}

// While the way back is prepared a value that the old key cannot hold fails; when it is given up, no longer.
TEST_F(KeyCases, AWayBackThatIsGivenUpLeavesTheKeyAsItWas) {
  sql("CREATE TABLE t (b int PRIMARY KEY, n text); INSERT INTO t SELECT g, 'n' FROM generate_series(1, 50) "
      "g");
  start();
  advance_to(Phase::switched);
  const auto checks = [&] {
    return value("SELECT count(*) FROM pg_constraint WHERE conrelid = 't'::regclass AND contype = 'c'");
  };
  sql("CREATE INDEX later ON t (b, n)");
  EXPECT_EQ(code_of([&] { migrator().rollback("m"); }), ErrorCode::rollback_refused);
  EXPECT_EQ(checks(), "0") << "nothing is prepared for a way back that is refused";
  sql("DROP INDEX later");
  failpoint::configure("switched_to_compare.before=error:57014");
  EXPECT_TRUE(code_of([&] { migrator().rollback("m"); }));
  failpoint::configure("");
  EXPECT_EQ(checks(), "1");
  EXPECT_THROW(sql("INSERT INTO t (b, n) VALUES (3000000000, 'far')"), Error);
  advance_to(Phase::dropped);
  EXPECT_EQ(checks(), "0");
  sql("INSERT INTO t (b, n) VALUES (3000000000, 'far')");
}

}  // namespace
}  // namespace crossfade::test
