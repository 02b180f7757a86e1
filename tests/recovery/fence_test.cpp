// A chunk that stood at the table's lock while the world changed writes nothing, whatever way its plan was
// made.
#include <fmt/format.h>
#include <gtest/gtest.h>

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
            "NULL::text[]",
            typed("{100000}", "text[]"),
            "true"};
  }

  // A session that is about to run the chunk by that kind of plan.
  Worker make_worker(const Migration& m, Plan plan) {
    auto worker = std::make_unique<ApplicationSession>(dsn(), "SET search_path = pg_catalog");
    if (plan == Plan::literal) return worker;
    worker->run(plan == Plan::custom ? "SET plan_cache_mode = force_custom_plan"
                                     : "SET plan_cache_mode = force_generic_plan");
    worker->run(
        "PREPARE chunk (uuid, uuid, text, text, bigint, integer, uuid, text[], text[], text[], boolean) AS " +
        chunk_sql(m, m.row.table, ChunkWay::plain, true));
    // Planned and cached: a stranger's token opens no fence.
    worker->run(fmt::format("EXECUTE chunk ({})", fmt::join(parameters(m, kStranger), ", ")));
    return worker;
  }

  void send(ApplicationSession& worker, const Migration& m, Plan plan) {
    const auto values = parameters(m, m.row.token.text);
    if (plan != Plan::literal) return worker.send(fmt::format("EXECUTE chunk ({})", fmt::join(values, ", ")));
    auto text = chunk_sql(m, m.row.table, ChunkWay::plain, true);
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
      "UPDATE crossfade.migration SET phase = 'dry_run'; ALTER TABLE public.t DROP COLUMN {}; COMMIT",
      shadow_column()));
  for (const auto& worker : workers) EXPECT_EQ(sqlstate_of(*worker), "42703");
  EXPECT_EQ(versions_of_rows(), before);
}

}  // namespace
}  // namespace crossfade::test
