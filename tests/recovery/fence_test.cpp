// A chunk that stood at the table's lock while the world changed writes nothing, whatever way its plan was
// made. And one that would close a cycle of waiting sessions is gone before PostgreSQL chooses a victim.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <random>

#include "crossfade/core/cursor_cache.hpp"
#include "crossfade/core/identifier.hpp"
#include "crossfade/core/state_store.hpp"
#include "crossfade/phases/phase_handler.hpp"
#include "recovery_test.hpp"
#include "sweep_sql.hpp"

namespace crossfade::test {
namespace {

// How the server comes to the chunk's plan.
enum class Plan {
  literal,  // analysed when it arrives
  custom,   // analysed before, planned anew
  generic,  // analysed and planned before
};
constexpr Plan kPlans[] = {Plan::literal, Plan::custom, Plan::generic};

constexpr ChunkForm kForm{ChunkWay::plain, RangeBy::key, ChunkForm::Low::open, ChunkForm::Share::all};
constexpr const char* kStranger = "00000000-0000-0000-0000-000000000000";

class FenceTest : public RecoveryTest {
 protected:
  using Worker = std::unique_ptr<ApplicationSession>;

  // In phase compare, with a replay that owes the whole table: every row is out of step, and nobody sees it.
  void prepare() {
    make_table({.rows = 500, .tuning = {}, .switching = {}});
    advance_to(Phase::compare);
    sql("UPDATE crossfade.migration SET status = 'running'");
    sql("INSERT INTO crossfade.pass (migration_id, kind) SELECT id, 'replay' FROM crossfade.migration");
    sql("INSERT INTO crossfade.unit (pass_id, number, relation, high, lease_token) SELECT max(id), 1,"
        " 't'::regclass, '{100000}', gen_random_uuid() FROM crossfade.pass");
    make_stale();
  }

  void make_stale() {
    sql(fmt::format(
        "BEGIN; SELECT set_config('crossfade.sweep', (SELECT mark::text FROM crossfade.migration), true);"
        "UPDATE t SET {} = -1; COMMIT",
        shadow_column()));
  }

  Migration migration() {
    auto door = session();
    return migration_of(StateStore(door).get(MigrationId{value("SELECT id FROM crossfade.migration")}));
  }

  // The eleven parameters of a chunk over the whole table.
  std::vector<std::string> parameters(const Migration& m, const std::string& token) {
    const auto unit = sql("SELECT pass_id, lease_token FROM crossfade.unit ORDER BY pass_id DESC LIMIT 1");
    const auto typed = [](std::string_view text, std::string_view type) {
      return fmt::format("{}::{}", quote_literal(text), type);
    };
    return {typed(m.row.id.text, "uuid"),
            typed(token, "uuid"),
            typed(to_text(m.row.phase), "text"),
            typed(m.row.mark.text, "text"),
            typed(*unit[0][0], "bigint"),
            "1::integer",
            typed(*unit[0][1], "uuid"),
            "NULL::text[]",
            "NULL::integer",
            "NULL::integer",
            "NULL::text[]",
            typed("{100000}", "text[]"),
            "NULL::integer",
            "NULL::integer",
            "NULL::text[]",
            "true",
            "NULL::text[]",
            typed("{100000}", "text[]")};
  }

  // A session that is about to run the chunk by that kind of plan.
  Worker make_worker(const Migration& m, Plan plan) {
    auto worker = std::make_unique<ApplicationSession>(dsn(), "SET search_path = pg_catalog");
    if (plan == Plan::literal) return worker;
    worker->run(plan == Plan::custom ? "SET plan_cache_mode = force_custom_plan"
                                     : "SET plan_cache_mode = force_generic_plan");
    worker->run(
        "PREPARE chunk (uuid, uuid, text, text, bigint, integer, uuid, text[], integer, integer, text[],"
        " text[], integer, integer, text[], boolean, text[], text[]) AS " +
        chunk_sql(m, m.row.table, kForm));
    // Planned and cached: a stranger's token opens no fence.
    worker->run(fmt::format("EXECUTE chunk ({})", fmt::join(parameters(m, kStranger), ", ")));
    return worker;
  }

  void send(ApplicationSession& worker, const Migration& m, Plan plan, ChunkWay way = ChunkWay::plain) {
    const auto values = parameters(m, m.row.token.text);
    if (plan != Plan::literal) return worker.send(fmt::format("EXECUTE chunk ({})", fmt::join(values, ", ")));
    auto text = chunk_sql(m, m.row.table, {way, kForm.by, kForm.low, kForm.share});
    for (auto number = values.size(); number > 0; --number) {
      const auto place = "$" + std::to_string(number);
      for (auto at = text.find(place); at != std::string::npos; at = text.find(place, at)) {
        text.replace(at, place.size(), "(" + values[number - 1] + ")");
      }
    }
    worker.send(text);
  }

  // One chunk per kind of plan, all waiting for the lock that world_ holds on return.
  std::vector<Worker> stop_chunks_at_the_lock(const Migration& m, const std::vector<Plan>& plans) {
    std::vector<Worker> workers;
    for (const auto plan : plans) workers.push_back(make_worker(m, plan));
    world_.run("BEGIN; LOCK TABLE public.t IN ACCESS EXCLUSIVE MODE");
    for (std::size_t i = 0; i < plans.size(); ++i) {
      send(*workers[i], m, plans[i]);
      wait_until_blocked(workers[i]->backend_pid());
    }
    return workers;
  }

  static std::string sqlstate_of(ApplicationSession& worker) {
    try {
      worker.finish();
    } catch (const ApplicationError& error) {
      return error.sqlstate();
    }
    return "00000";
  }

  std::string stale(const std::string& column) {
    return value(fmt::format("SELECT count(*) FROM t WHERE {} = -1", column));
  }

  ApplicationSession world_{dsn()};
};

// Names and columns stay, so that nothing but the fence can hold it back.
TEST_F(FenceTest, IsClosedByAnotherPhaseAnotherTokenAPauseAndAnotherWatermark) {
  prepare();
  const auto shadow = shadow_column();
  const auto m = migration();
  const auto restore = fmt::format(
      "UPDATE crossfade.migration SET phase = 'compare', token = {}, status = 'running';"
      "UPDATE crossfade.unit SET watermark = NULL, done = false WHERE pass_id = (SELECT max(id) FROM "
      "crossfade.pass)",
      quote_literal(m.row.token.text));
  for (const auto plan : kPlans) {
    for (const std::string change :
         {"UPDATE crossfade.migration SET phase = 'dual_write'",
          "UPDATE crossfade.migration SET token = gen_random_uuid()",
          "UPDATE crossfade.migration SET status = 'paused'",
          "UPDATE crossfade.unit SET watermark = '{5}' WHERE pass_id = (SELECT max(id) FROM crossfade.pass)",
          "UPDATE crossfade.unit SET lease_token = NULL WHERE pass_id = (SELECT max(id) FROM "
          "crossfade.pass)"}) {
      SCOPED_TRACE(change);
      const auto workers = stop_chunks_at_the_lock(m, {plan});
      world_.run(change + "; COMMIT");
      EXPECT_EQ(sqlstate_of(*workers[0]), "00000");
      EXPECT_EQ(stale(shadow), "500");
      sql(restore);
      sql("UPDATE crossfade.unit SET lease_token = gen_random_uuid() WHERE lease_token IS NULL");
    }
    // The twin where nothing is wrong: the same chunk, let go with nothing changed, writes every row.
    const auto workers = stop_chunks_at_the_lock(m, {plan});
    world_.run("COMMIT");
    EXPECT_EQ(sqlstate_of(*workers[0]), "00000");
    EXPECT_EQ(stale(shadow), "0");
    make_stale();
    sql(restore);
  }
}

TEST_F(FenceTest, AChunkThatStoodAtTheLockOfTheSwitchWritesNoRow) {
  prepare();
  const auto m = migration();
  auto door = session();
  CursorCache cache{std::string()};
  const std::atomic<bool> stop{false};
  std::atomic<bool> interruptible{false};
  PhaseEnv env{door, cache, {}, m.row.token, "m", {}, stop, interruptible, {}};
  const auto crossing = make_phase_handler(Phase::switched)->enter(env, m);
  const auto workers = stop_chunks_at_the_lock(m, {std::begin(kPlans), std::end(kPlans)});
  world_.run("SET search_path = pg_catalog;" + under_lock_sql({crossing}) +
             phase_change_sql({m.row.id, Phase::compare, Phase::switched, Status::running, "advance", "ada",
                               "lovelace", "{}", crossing.assignments}) +
             "COMMIT");
  // The column that they would write has its old name no longer.
  for (const auto& worker : workers) EXPECT_EQ(sqlstate_of(*worker), "42703");
  EXPECT_EQ(stale("b"), "500");
}

TEST_F(FenceTest, AChunkThatStoodAtTheLockOfARollbackWritesNoRow) {
  prepare();
  const auto m = migration();
  const auto before = versions_of_rows();
  const auto workers = stop_chunks_at_the_lock(m, {std::begin(kPlans), std::end(kPlans)});
  world_.run(fmt::format(
      "UPDATE crossfade.migration SET phase = 'dry_run'; ALTER TABLE public.t DROP COLUMN {} CASCADE; COMMIT",
      shadow_column()));
  for (const auto& worker : workers) EXPECT_EQ(sqlstate_of(*worker), "42703");
  EXPECT_EQ(versions_of_rows(), before);
}

// --- deadlocks: deadlock_timeout is short, so that PostgreSQL looks for cycles early and often

class ChunkCycleTest : public FenceTest {
 protected:
  static constexpr std::chrono::milliseconds kDeadlock{600};

  void prepare_cycles() {
    prepare();
    super_sql(
        fmt::format("ALTER DATABASE {} SET deadlock_timeout = '{}ms'", database().name(), kDeadlock.count()));
    deadlocks_ = deadlocks();
  }
  // As SweepWorker opens its session.
  std::unique_ptr<ApplicationSession> worker() {
    return std::make_unique<ApplicationSession>(
        dsn(),
        fmt::format("SET search_path = pg_catalog; SET statement_timeout = '{}ms'", kDeadlock.count() / 4));
  }
  int deadlocks() {
    super_sql("SELECT pg_stat_force_next_flush()");
    return std::stoi(
        super_value("SELECT deadlocks FROM pg_stat_database WHERE datname = current_database()"));
  }
  void wait(std::chrono::milliseconds time) { wait_from(std::chrono::steady_clock::now(), time); }
  void wait_from(std::chrono::steady_clock::time_point began, std::chrono::milliseconds time) {
    wait_until([&] { return std::chrono::steady_clock::now() >= began + time; }, "a moment");
  }
  // Until it waits for a row, or is over.
  void wait_until_it_waits(ApplicationSession& chunk) {
    wait_until(
        [&] {
          return chunk.is_answered() ||
                 super_value("SELECT count(*) FROM pg_locks WHERE NOT granted AND pid = $1::integer",
                             {std::to_string(chunk.backend_pid())}) == "1";
        },
        "the chunk to wait");
  }
  // Undone by its own timer; or it saw somebody who has waited for long, and did nothing; or it got its row
  // in time.
  void see_how_it_ended(ApplicationSession& chunk) {
    const auto state = sqlstate_of(chunk);
    if (state == "57014") {
      ++undone_;
      return;
    }
    EXPECT_EQ(state, "00000");
    const std::string unit = " WHERE pass_id = (SELECT max(id) FROM crossfade.pass)";
    if (value("SELECT done FROM crossfade.unit" + unit) == "f") {
      ++careful_;
      return;
    }
    sql("UPDATE crossfade.unit SET watermark = NULL, done = false" + unit);
    make_stale();
  }

  int deadlocks_ = 0, undone_ = 0, careful_ = 0;
  std::mt19937 random_{27};
};

// The chunk holds row 5 and waits for 450; who holds 450 asks for 5.
TEST_F(ChunkCycleTest, InACycleOfTwoTheApplicationIsNeverTheVictim) {
  prepare_cycles();
  const auto m = migration();
  ApplicationSession first(dsn());
  for (int round = 0; round < 12; ++round) {
    const auto chunk = worker();
    first.run("BEGIN; UPDATE t SET n = n + 1 WHERE id = 450");
    send(*chunk, m, Plan::literal);
    wait_until_it_waits(*chunk);
    wait(std::chrono::milliseconds(random_() % 150));
    ASSERT_NO_THROW(first.run("UPDATE t SET n = n + 1 WHERE id = 5; COMMIT"));
    see_how_it_ended(*chunk);
  }
  EXPECT_GT(undone_, 0) << "no chunk met the row at all";
  EXPECT_EQ(deadlocks(), deadlocks_);
}

// The first has waited for the second for any time when the chunk comes to wait for the first; then the
// second asks for a row of the chunk. The first looks for a cycle when it has waited for deadlock_timeout,
// which may be at any moment of the chunk's life: that is what the look at pg_locks is for.
TEST_F(ChunkCycleTest, InACycleOfThreeTheApplicationIsNeverTheVictim) {
  prepare_cycles();
  const auto m = migration();
  ApplicationSession first(dsn()), second(dsn());
  for (int round = 0; round < 16; ++round) {
    const auto chunk = worker();
    second.run("BEGIN; UPDATE t SET n = n + 1 WHERE id = 480");
    first.run("BEGIN; UPDATE t SET n = n + 1 WHERE id = 450");
    const auto began = std::chrono::steady_clock::now();
    first.send("UPDATE t SET n = n + 1 WHERE id = 480");
    wait_until_blocked(first.backend_pid());
    // Every other time so that the first looks for a cycle while the chunk lives.
    wait_from(began, std::chrono::milliseconds(round % 2 == 0 ? random_() % 620 : 440 + random_() % 130));
    send(*chunk, m, Plan::literal);
    wait_until_it_waits(*chunk);
    ASSERT_NO_THROW(second.run("UPDATE t SET n = n + 1 WHERE id = 5; COMMIT"));
    ASSERT_NO_THROW(first.finish());
    first.run("COMMIT");
    see_how_it_ended(*chunk);
  }
  EXPECT_GT(undone_, 0) << "no chunk met the row at all";
  EXPECT_GT(careful_, 0) << "no chunk saw who had waited for long";
  EXPECT_EQ(deadlocks(), deadlocks_);
}

// The twin without what protects: that there is a victim shows that the cycles are real.
TEST_F(ChunkCycleTest, AnUpdateThatNeitherLooksNorEndsMakesAVictim) {
  prepare_cycles();
  ApplicationSession first(dsn()), second(dsn()), naive(dsn());
  second.run("BEGIN; UPDATE t SET n = n + 1 WHERE id = 480");
  first.run("BEGIN; UPDATE t SET n = n + 1 WHERE id = 450");
  first.send("UPDATE t SET n = n + 1 WHERE id = 480");
  wait_until_blocked(first.backend_pid());
  naive.run("BEGIN; UPDATE t SET n = n WHERE id = 5");
  naive.send("UPDATE t SET n = n WHERE id = 450");
  wait_until_blocked(naive.backend_pid());
  second.send("UPDATE t SET n = n + 1 WHERE id = 5");
  int victims = 0;
  // Whoever ends first is the victim; the others go on when it has let go.
  for (auto* session : {&first, &naive, &second}) {
    if (sqlstate_of(*session) == "40P01") ++victims;
    session->run("ROLLBACK");
  }
  EXPECT_EQ(victims, 1);
}

// The careful way beside two sessions that wait for each other's rows: what is free is written, what is not
// is recorded, and the position passes.
TEST_F(ChunkCycleTest, TheCarefulWayWaitsForNobodyAndRecordsWhatIsLocked) {
  prepare_cycles();
  const auto m = migration();
  ApplicationSession first(dsn()), second(dsn());
  second.run("BEGIN; UPDATE t SET n = n + 1 WHERE id = 480");
  first.run("BEGIN; UPDATE t SET n = n + 1 WHERE id = 450");
  first.send("UPDATE t SET n = n + 1 WHERE id = 480");
  wait_until_blocked(first.backend_pid());
  wait(kDeadlock);
  const auto chunk = worker();
  send(*chunk, m, Plan::literal, ChunkWay::careful);
  EXPECT_EQ(sqlstate_of(*chunk), "00000");
  EXPECT_EQ(value("SELECT string_agg(key::text, ' ' ORDER BY key) FROM crossfade.leftover"), "{450} {480}");
  EXPECT_EQ(stale(shadow_column()), "2");
  EXPECT_EQ(value("SELECT done FROM crossfade.unit ORDER BY pass_id DESC LIMIT 1"), "t");
  second.run("COMMIT");
  first.finish();
  first.run("COMMIT");
  EXPECT_EQ(deadlocks(), deadlocks_);
}

}  // namespace
}  // namespace crossfade::test
