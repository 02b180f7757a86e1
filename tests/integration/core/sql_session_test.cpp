#include "crossfade/core/sql_session.hpp"

#include <gtest/gtest.h>

#include <functional>
#include <thread>

#include "support/database_test.hpp"
#include "support/lossy_proxy.hpp"

namespace crossfade::test {
namespace {

class SqlSessionTest : public DatabaseTest {
 protected:
  // As Crossfade connects: settings pinned, search_path pg_catalog.
  SqlSession door(const std::string& text) const {
    ConnectOptions options;
    options.dsn = text;
    options.application_name = "crossfade/test/door";
    return SqlSession::connect(options);
  }
  SqlSession door() const { return door(dsn()); }
  void terminate(const SqlSession& session) {
    super_sql("SELECT pg_terminate_backend($1::int, 20000)", {std::to_string(session.backend_pid())});
  }
};

Error error_of(const std::function<void()>& call) {
  try {
    call();
  } catch (const Error& error) {
    return error;
  }
  ADD_FAILURE() << "nothing was thrown";
  return Error(ErrorCode::internal_error, "nothing was thrown");
}

TEST_F(SqlSessionTest, TrustsNoRoleSetting) {
  for (const char* setting :
       {"search_path = 'public'", "DateStyle = 'German, DMY'", "IntervalStyle = 'iso_8601'",
        "TimeZone = 'Asia/Tokyo'", "extra_float_digits = 0", "bytea_output = 'escape'",
        "standard_conforming_strings = off", "statement_timeout = '1min'", "lock_timeout = '1s'",
        "default_transaction_isolation = 'serializable'", "default_transaction_read_only = on",
        "synchronous_commit = off", "quote_all_identifiers = on", "client_min_messages = 'debug1'",
        "row_security = on", "idle_session_timeout = '10s'", "jit = on"}) {
    super_sql(std::string("ALTER ROLE app_owner IN DATABASE ") + database().name() + " SET " + setting);
  }
  SqlSession session = door();
  const auto shown = [&](const char* name) {
    return text_of(session.exec("SELECT current_setting($1)", {name}).one(name)[0]);
  };
  EXPECT_EQ(shown("search_path"), "pg_catalog");
  EXPECT_EQ(shown("DateStyle"), "ISO, YMD");
  EXPECT_EQ(shown("IntervalStyle"), "postgres");
  EXPECT_EQ(shown("TimeZone"), "UTC");
  EXPECT_EQ(shown("extra_float_digits"), "3");
  EXPECT_EQ(shown("bytea_output"), "hex");
  EXPECT_EQ(shown("standard_conforming_strings"), "on");
  EXPECT_EQ(shown("statement_timeout"), "0");
  EXPECT_EQ(shown("lock_timeout"), "0");
  EXPECT_EQ(shown("idle_session_timeout"), "0");
  EXPECT_EQ(shown("idle_in_transaction_session_timeout"), "1min");
  EXPECT_EQ(shown("transaction_isolation"), "read committed");
  EXPECT_EQ(shown("transaction_read_only"), "off");
  EXPECT_EQ(shown("synchronous_commit"), "on");
  EXPECT_EQ(shown("quote_all_identifiers"), "off");
  EXPECT_EQ(shown("client_min_messages"), "warning");
  EXPECT_EQ(shown("row_security"), "off");
  EXPECT_EQ(shown("client_encoding"), "UTF8");
  EXPECT_EQ(shown("jit"), "off");
  EXPECT_EQ(shown("application_name"), "crossfade/test/door");
}

TEST_F(SqlSessionTest, AnEvilFunctionInTheRolesSearchPathIsNotCalled) {
  sql("CREATE SCHEMA evil;"
      "CREATE FUNCTION evil.set_config(text, text, boolean) RETURNS text LANGUAGE plpgsql"
      " AS 'BEGIN RAISE EXCEPTION ''called''; END'");
  super_sql("ALTER ROLE app_owner IN DATABASE " + database().name() + " SET search_path = evil, pg_catalog");
  EXPECT_EQ(text_of(door().exec("SHOW search_path").one("search_path")[0]), "pg_catalog");
}

TEST_F(SqlSessionTest, KnowsTheIdentityOfTheServer) {
  SqlSession session = door();
  const ServerIdentity& identity = session.identity();
  EXPECT_EQ(std::to_string(identity.version_num), value("SHOW server_version_num"));
  EXPECT_EQ(std::to_string(identity.database_oid),
            value("SELECT oid FROM pg_database WHERE datname = current_database()"));
  EXPECT_EQ(identity.timeline, "00000001");
  EXPECT_EQ(identity.system_identifier, super_value("SELECT system_identifier FROM pg_control_system()"));
}

TEST_F(SqlSessionTest, ConnectsWithoutTheRightToReadTheControlFile) {
  super_sql("REVOKE EXECUTE ON FUNCTION pg_control_system() FROM PUBLIC");
  SqlSession session = door();
  EXPECT_EQ(session.identity().system_identifier, "");
  EXPECT_EQ(session.identity().timeline, "00000001");
}

TEST_F(SqlSessionTest, ParametersKeepNullsAndHostileText) {
  SqlSession session = door();
  const std::vector<SqlValue> values{std::nullopt,     "",     "NULL", "it's", "back\\slash",
                                     "tab\tnewline\n", "ünï→", "{\"}"};
  for (const SqlValue& given : values) {
    EXPECT_EQ(session.exec("SELECT $1::text", {given}).one("text")[0], given);
    EXPECT_EQ(session.exec_prepared("SELECT $1::text", {given}).one("text")[0], given);
  }
}

TEST_F(SqlSessionTest, RefusesANulByteInsteadOfCuttingTheValue) {
  SqlSession session = door();
  const std::string text("a\0b", 3);
  EXPECT_EQ(error_of([&] { session.exec("SELECT $1::text", {text}); }).code(), ErrorCode::internal_error);
  EXPECT_EQ(text_of(session.exec("SELECT 1").one("one")[0]), "1");
}

TEST_F(SqlSessionTest, CountsAffectedRows) {
  SqlSession session = door();
  session.exec("CREATE TABLE public.t(a int)");
  EXPECT_EQ(session.exec("INSERT INTO public.t SELECT generate_series(1, 5)").affected_rows, 5);
  EXPECT_EQ(session.exec_prepared("DELETE FROM public.t WHERE a > $1", {"2"}).affected_rows, 3);
}

TEST_F(SqlSessionTest, AScriptGivesTheLastStatementsRows) {
  SqlSession session = door();
  const SqlResult result =
      session.script("CREATE TABLE public.t(a int); INSERT INTO public.t VALUES (1), (2); TABLE public.t");
  EXPECT_EQ(result.size(), 2U);
}

TEST_F(SqlSessionTest, AFailedScriptLeavesNoTransactionAndNoLockBehind) {
  sql("CREATE TABLE t(a int)");
  SqlSession session = door();
  const Error error = error_of([&] {
    session.script("BEGIN; LOCK TABLE public.t; INSERT INTO public.t VALUES (1); SELECT 1/0; COMMIT");
  });
  EXPECT_EQ(error.sqlstate(), "22012");
  EXPECT_EQ(error.effect(), Effect::none);
  EXPECT_EQ(value("SELECT count(*) FROM t"), "0");
  session.exec("INSERT INTO public.t VALUES (2)");
  EXPECT_EQ(value("SELECT a FROM t"), "2");
  EXPECT_EQ(super_value("SELECT count(*) FROM pg_locks WHERE relation = 't'::regclass"), "0");
}

TEST_F(SqlSessionTest, PreparesOncePerText) {
  SqlSession session = door();
  session.exec_prepared("SELECT $1::int + 1", {"1"});
  session.exec_prepared("SELECT $1::int + 1", {"2"});
  EXPECT_EQ(int_of(session.exec("SELECT count(*) FROM pg_prepared_statements").one("count")[0]), 1);
}

TEST_F(SqlSessionTest, ReplansAPreparedStatementThatTheTableLeftBehind) {
  SqlSession session = door();
  session.exec("CREATE TABLE public.t(a int)");
  session.exec_prepared("SELECT * FROM public.t");
  session.exec("ALTER TABLE public.t ADD COLUMN b int");
  EXPECT_EQ(error_of([&] { session.exec_prepared("SELECT * FROM public.t"); }).sqlstate(), "0A000");
  EXPECT_NO_THROW(session.exec_prepared("SELECT * FROM public.t"));
}

TEST_F(SqlSessionTest, CollectsWarnings) {
  SqlSession session = door();
  session.exec("DO $$ BEGIN RAISE WARNING 'mind the gap'; END $$");
  const std::vector<std::string> notices = session.take_notices();
  ASSERT_EQ(notices.size(), 1U);
  EXPECT_NE(notices[0].find("mind the gap"), std::string::npos);
  EXPECT_TRUE(session.take_notices().empty());
}

TEST_F(SqlSessionTest, CancelFromAnotherThreadEndsTheStatement) {
  SqlSession session = door();
  std::thread canceller([&] {
    wait_until_true("SELECT state = 'active' FROM pg_stat_activity WHERE pid = $1::int",
                    {std::to_string(session.backend_pid())});
    session.cancel();
  });
  const Error error = error_of([&] { session.exec("SELECT pg_sleep(100)"); });
  canceller.join();
  EXPECT_TRUE(error.is_query_canceled());
  EXPECT_TRUE(session.is_open());
  EXPECT_EQ(text_of(session.exec("SELECT 1").one("one")[0]), "1");
}

TEST_F(SqlSessionTest, LockTimeoutIsObeyedAndCanBeTakenBack) {
  sql("CREATE TABLE t(a int)");
  SqlSession holder = door();
  Transaction held(holder);
  holder.exec("LOCK TABLE public.t");
  SqlSession session = door();
  session.set_lock_timeout(std::chrono::milliseconds(10));
  EXPECT_TRUE(error_of([&] { session.exec("TABLE public.t"); }).is_lock_not_available());
  session.set_lock_timeout(std::chrono::milliseconds(0));
  EXPECT_EQ(text_of(session.exec("SHOW lock_timeout").one("lock_timeout")[0]), "0");
}

// Transactions.

TEST_F(SqlSessionTest, ATransactionLeftWithoutCommitIsRolledBack) {
  sql("CREATE TABLE t(a int)");
  SqlSession session = door();
  {
    Transaction transaction(session);
    session.exec("INSERT INTO public.t VALUES (1)");
  }
  EXPECT_FALSE(session.in_transaction());
  {
    Transaction transaction(session);
    session.exec("INSERT INTO public.t VALUES (2)");
    transaction.commit();
  }
  EXPECT_EQ(value("SELECT string_agg(a::text, ',') FROM t"), "2");
}

// https://github.com/taylorwilsdon/open-webui-postgres-migration/pull/27: COMMIT of an aborted transaction
// answers ROLLBACK, not an error.
TEST_F(SqlSessionTest, CommitAfterASwallowedErrorThrowsAndCommitsNothing) {
  sql("CREATE TABLE t(a int)");
  SqlSession session = door();
  session.begin();
  session.exec("INSERT INTO public.t VALUES (1)");
  EXPECT_EQ(error_of([&] { session.exec("SELECT 1/0"); }).sqlstate(), "22012");
  const Error error = error_of([&] { session.commit(); });
  EXPECT_EQ(error.code(), ErrorCode::internal_error);
  EXPECT_FALSE(session.in_transaction());
  EXPECT_EQ(value("SELECT count(*) FROM t"), "0");
  session.begin();
  session.exec("INSERT INTO public.t VALUES (2)");
  EXPECT_NO_THROW(session.commit());
  EXPECT_EQ(value("SELECT a FROM t"), "2");
}

TEST_F(SqlSessionTest, AConstraintThatFailsAtCommitIsAnErrorOfCommit) {
  sql("CREATE TABLE p(a int PRIMARY KEY);"
      "CREATE TABLE c(a int REFERENCES p DEFERRABLE INITIALLY DEFERRED)");
  SqlSession session = door();
  session.begin();
  session.exec("INSERT INTO public.c VALUES (1)");
  const Error error = error_of([&] { session.commit(); });
  EXPECT_EQ(error.sqlstate(), "23503");
  EXPECT_EQ(error.effect(), Effect::none);
  EXPECT_FALSE(session.in_transaction());
  EXPECT_EQ(value("SELECT count(*) FROM c"), "0");
}

// Lost answers: https://github.com/TableProApp/TablePro/pull/2765.

TEST_F(SqlSessionTest, ACommitWhoseAnswerIsLostIsUnknownThoughApplied) {
  sql("CREATE TABLE t(a int)");
  LossyProxy proxy(server());
  SqlSession session = door(proxy.dsn(database().name(), "app_owner"));
  session.begin();
  session.exec("INSERT INTO public.t VALUES (1)");
  proxy.lose_answer_to("COMMIT");
  const Error error = error_of([&] { session.commit(); });
  EXPECT_EQ(error.code(), ErrorCode::connection_lost);
  EXPECT_EQ(error.effect(), Effect::unknown);
  EXPECT_EQ(value("SELECT count(*) FROM t"), "1");
}

TEST_F(SqlSessionTest, ACommitThatIsLostOnItsWayIsUnknownThoughNotApplied) {
  sql("CREATE TABLE t(a int)");
  LossyProxy proxy(server());
  SqlSession session = door(proxy.dsn(database().name(), "app_owner"));
  session.begin();
  session.exec("INSERT INTO public.t VALUES (1)");
  proxy.lose_message("COMMIT");
  const Error error = error_of([&] { session.commit(); });
  EXPECT_EQ(error.code(), ErrorCode::connection_lost);
  EXPECT_EQ(error.effect(), Effect::unknown);
  EXPECT_EQ(value("SELECT count(*) FROM t"), "0");
}

TEST_F(SqlSessionTest, ALostStatementInsideATransactionChangedNothing) {
  sql("CREATE TABLE t(a int)");
  LossyProxy proxy(server());
  SqlSession session = door(proxy.dsn(database().name(), "app_owner"));
  session.begin();
  proxy.lose_answer_to("INSERT");
  const Error error = error_of([&] { session.exec("INSERT INTO public.t VALUES ($1)", {"1"}); });
  EXPECT_EQ(error.code(), ErrorCode::connection_lost);
  EXPECT_EQ(error.effect(), Effect::none);
  EXPECT_EQ(value("SELECT count(*) FROM t"), "0");
}

TEST_F(SqlSessionTest, ALostAutocommitStatementOrScriptIsUnknown) {
  sql("CREATE TABLE t(a int)");
  LossyProxy proxy(server());
  for (const bool as_script : {false, true}) {
    SqlSession session = door(proxy.dsn(database().name(), "app_owner"));
    proxy.lose_answer_to("INSERT");
    const Error error = error_of([&] {
      if (as_script)
        session.script("BEGIN; INSERT INTO public.t VALUES (1); COMMIT");
      else
        session.exec_prepared("INSERT INTO public.t VALUES ($1)", {"1"});
    });
    EXPECT_EQ(error.code(), ErrorCode::connection_lost) << error.message();
    EXPECT_EQ(error.effect(), Effect::unknown);
  }
  EXPECT_EQ(proxy.losses(), 2);
}

TEST_F(SqlSessionTest, NothingIsLostThroughAProxyThatLosesNothing) {
  sql("CREATE TABLE t(a int)");
  LossyProxy proxy(server());
  SqlSession session = door(proxy.dsn(database().name(), "app_owner"));
  session.begin();
  session.exec("INSERT INTO public.t VALUES (1)");
  EXPECT_NO_THROW(session.commit());
  EXPECT_EQ(value("SELECT count(*) FROM t"), "1");
}

// https://github.com/junhoyeo/tokscale/pull/919: a session that comes back by itself believes that it still
// owns its lock.
TEST_F(SqlSessionTest, ALostSessionNeverComesBack) {
  SqlSession session = door();
  session.exec("SELECT pg_advisory_lock(42)");
  terminate(session);
  for (int call = 1; call <= 5; ++call) {
    EXPECT_EQ(error_of([&] { session.exec("SELECT 1"); }).code(), ErrorCode::connection_lost)
        << "call " << call;
    EXPECT_EQ(error_of([&] { session.begin(); }).code(), ErrorCode::connection_lost) << "call " << call;
  }
  EXPECT_FALSE(session.is_open());
  EXPECT_EQ(
      super_value("SELECT count(*) FROM pg_stat_activity WHERE application_name = 'crossfade/test/door'"),
      "0");
  EXPECT_EQ(value("SELECT pg_try_advisory_lock(42)"), "t");
}

TEST_F(SqlSessionTest, ATransactionCutByTheServerChangedNothing) {
  sql("CREATE TABLE t(a int)");
  SqlSession session = door();
  session.begin();
  session.exec("INSERT INTO public.t VALUES (1)");
  terminate(session);
  const Error error = error_of([&] { session.exec("INSERT INTO public.t VALUES (2)"); });
  EXPECT_EQ(error.code(), ErrorCode::connection_lost);
  EXPECT_EQ(error.effect(), Effect::none);
  EXPECT_FALSE(session.in_transaction());
  EXPECT_EQ(error_of([&] { session.commit(); }).code(), ErrorCode::connection_lost);
  EXPECT_EQ(value("SELECT count(*) FROM t"), "0");
}

TEST_F(SqlSessionTest, AServerCrashLosesTheSessionAndNothingElse) {
  sql("CREATE TABLE t(a int)");
  SqlSession session = door();
  session.begin();
  session.exec("INSERT INTO public.t VALUES (1)");
  server().restart();
  EXPECT_EQ(error_of([&] { session.exec("SELECT 1"); }).code(), ErrorCode::connection_lost);
  EXPECT_NO_THROW(session.rollback());
  EXPECT_EQ(value("SELECT count(*) FROM t"), "0");
}

// Classification: https://github.com/t8y2/dbx/issues/4631. The text is the server's language and decides
// nothing.

TEST_F(SqlSessionTest, ClassifiesByStateWhateverTheTextSays) {
  SqlSession session = door();
  const auto raised = [&](const std::string& text, const std::string& state) {
    return error_of([&] {
      session.script("DO $$ BEGIN RAISE EXCEPTION '" + text + "' USING ERRCODE = '" + state + "'; END $$");
    });
  };
  EXPECT_TRUE(raised("Verklemmung entdeckt", "40P01").is_serialization_or_deadlock());
  EXPECT_TRUE(raised("ne peut pas sérialiser un accès", "40001").is_serialization_or_deadlock());
  EXPECT_TRUE(raised("Zeitlimit für Sperre", "55P03").is_lock_not_available());
  EXPECT_TRUE(raised("Anfrage wird storniert", "57014").is_query_canceled());
  EXPECT_EQ(raised("keine Berechtigung für Tabelle t", "42501").code(), ErrorCode::permission_denied);
  EXPECT_EQ(raised("Relation existiert nicht", "42P01").code(), ErrorCode::undefined_table);
  EXPECT_EQ(raised("Spalte existiert nicht", "42703").code(), ErrorCode::undefined_column);

  const Error english = raised("deadlock detected", "22012");
  EXPECT_FALSE(english.is_serialization_or_deadlock());
  EXPECT_EQ(english.code(), ErrorCode::statement_failed);
  EXPECT_EQ(english.sqlstate(), "22012");
  EXPECT_FALSE(raised("canceling statement due to lock timeout", "P0001").is_lock_not_available());
}

TEST_F(SqlSessionTest, AConnectionErrorRaisedByAStatementIsNoLostConnection) {
  SqlSession session = door();
  const Error error = error_of([&] {
    session.exec(
        "DO $$ BEGIN RAISE EXCEPTION 'could not connect to server \"far\"' USING ERRCODE = '08001'; END $$");
  });
  EXPECT_EQ(error.code(), ErrorCode::statement_failed);
  EXPECT_TRUE(error.sqlstate().starts_with("08"));
  EXPECT_TRUE(session.is_open());
  EXPECT_EQ(text_of(session.exec("SELECT 1").one("one")[0]), "1");
}

TEST_F(SqlSessionTest, RealErrorsKeepStateMessageAndDetail) {
  sql("CREATE TABLE t(a int PRIMARY KEY)");
  SqlSession session = door();
  session.exec("INSERT INTO public.t VALUES (1)");
  const Error unique = error_of([&] { session.exec("INSERT INTO public.t VALUES (1)"); });
  EXPECT_EQ(unique.sqlstate(), "23505");
  EXPECT_EQ(unique.message(), "duplicate key value violates unique constraint \"t_pkey\"");
  EXPECT_NE(unique.hint().find("(a)=(1)"), std::string::npos);
  const Error table = error_of([&] { session.exec("TABLE public.nothing"); });
  EXPECT_EQ(table.code(), ErrorCode::undefined_table);
  EXPECT_EQ(table.message(), "relation \"public.nothing\" does not exist");
  EXPECT_EQ(table.hint(), "");
  EXPECT_EQ(error_of([&] { session.exec("SELECT b FROM public.t"); }).code(), ErrorCode::undefined_column);
  EXPECT_EQ(error_of([&] { session.script("SET transaction_read_only = on; DROP TABLE public.t"); }).code(),
            ErrorCode::read_only_server);
}

TEST_F(SqlSessionTest, PermissionDeniedNamesTheGrant) {
  super_sql("CREATE TABLE secret(a int); CREATE SCHEMA closed; CREATE TABLE closed.t(a int)");
  SqlSession session = door();
  const Error table = error_of([&] { session.exec("SELECT * FROM public.secret"); });
  EXPECT_EQ(table.code(), ErrorCode::permission_denied);
  EXPECT_EQ(table.sqlstate(), "42501");
  EXPECT_NE(table.hint().find("GRANT SELECT ON secret TO app_owner"), std::string::npos) << table.hint();
  const Error schema = error_of([&] { session.exec("SELECT * FROM closed.t"); });
  EXPECT_NE(schema.hint().find("GRANT USAGE, CREATE ON SCHEMA closed TO app_owner"), std::string::npos)
      << schema.hint();
}

TEST_F(SqlSessionTest, ThatAGrantIsNamedIsSqlWhateverTheNames) {
  super_sql(
      "DO $$ BEGIN CREATE ROLE \"An Owner\" LOGIN; EXCEPTION WHEN duplicate_object THEN NULL; END $$;"
      "CREATE TABLE \"My T\"(a int);"
      "REVOKE TEMPORARY ON DATABASE " +
      database().name() + " FROM PUBLIC");
  SqlSession session = door(server().dsn(database().name(), "'An Owner'"));
  const Error table = error_of([&] { session.exec("SELECT * FROM public.\"My T\""); });
  EXPECT_EQ(table.hint(), "GRANT SELECT ON \"My T\" TO \"An Owner\"");
  const Error temporary = error_of([&] { session.exec("CREATE TEMP TABLE x (a int)"); });
  EXPECT_EQ(temporary.hint(), "GRANT TEMPORARY ON DATABASE " + database().name() + " TO \"An Owner\"");
}

}  // namespace
}  // namespace crossfade::test
