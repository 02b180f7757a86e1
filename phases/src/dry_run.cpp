// dry_run: the whole table is read, nothing is written. Its guard is that the report is inside [expect] or
// accepted.
#include "handlers.hpp"

#include <fmt/format.h>

#include "crossfade/core/spec.hpp"

namespace crossfade {

namespace {

std::optional<ProfileReport> newest_report(SqlSession& session, const Migration& m) {
  const auto pass = newest_pass(session, m.row.id, "profile");
  return pass ? profile_of(*pass) : std::nullopt;
}

void expect(std::vector<Blocker>& blockers, const Expectation& expectation, std::int64_t count,
            std::int64_t total, std::string_view what, std::string_view finding) {
  if (expectation.met_by(count, total)) return;
  blockers.push_back(
      {ErrorCode::expectation_missed,
       fmt::format("the dry run found {} {} rows of {}, expected {}", count, what, total, expectation.text),
       std::string(finding), "correct the spec or the rows"});
}

std::vector<Blocker> expectation_blockers(const Migration& m, const ProfileReport& report) {
  std::vector<Blocker> blockers;
  if (m.spec.expect_changed) {
    expect(blockers, *m.spec.expect_changed, report.changed, report.rows, "changed", "dry_run_changed");
  }
  expect(blockers, m.spec.expect_errors, report.errors, report.rows, "failing", "dry_run_errors");
  if (m.spec.expect_lossy)
    expect(blockers, *m.spec.expect_lossy, report.lossy, report.rows, "lossy", "dry_run_lossy");
  for (const auto& collisions : report.collisions) {
    if (collisions.rows == 0) continue;
    const auto& [one, other] = collisions.samples.front();
    blockers.push_back(
        {ErrorCode::expectation_missed,
         fmt::format(
             "the dry run found {} rows in {} groups that are distinct under unique index {} today and "
             "equal as {}, for example keys {} and {}",
             collisions.rows, collisions.groups, collisions.index, m.binding.column.new_type,
             array_literal(one), array_literal(other)),
         "dry_run_collisions", "correct the rows or the spec; the unique twin cannot be built over them"});
  }
  return blockers;
}

}  // namespace

bool DryRunHandler::read(PhaseEnv& env, const Migration& m, std::chrono::milliseconds slice,
                         const PassRow& pass) {
  std::string note;
  const auto told = [&](std::int64_t) {
    env.progress(profiler_->rows_read(), -1, note.empty() ? "reading" : "reading, " + note);
  };
  const bool ended = paced_.slice(env, m, slice, note, [&](const ReadCrew& crew, auto length) {
    return profiler_->run(env.session, env.cache, pass, length, env.stop, told, crew);
  });
  if (!note.empty()) env.progress(-1, -1, "reading, " + note);
  if (ended) paced_.end();
  return ended;
}

StepResult DryRunHandler::step(PhaseEnv& env, const Migration& m, std::chrono::milliseconds slice) {
  auto report = newest_report(env.session, m);
  // A report that missed the expectations in an earlier run: the rows may have been corrected since.
  if (report && !began_ && !unaccepted(expectation_blockers(m, *report), env.accepted).empty()) {
    void_passes(env.session, m.row.id, "profile");
    report.reset();
  }
  began_ = true;
  if (!report) {
    const auto table = current_table(env.session, m);
    if (!profiler_ || table_ != table.sql()) profiler_ = std::make_unique<Profiler>(m, table);
    table_ = table.sql();
    // One that was read to its end and not reported: the collisions were not counted to the end.
    auto pass = newest_pass(env.session, m.row.id, "profile");
    if (!pass || pass->state != "ended") {
      require_key(env.session, m);
      if (!pass || pass->state != "running") pass = profiler_->open_pass(env.session);
      if (!read(env, m, slice, *pass)) return {StepResult::Kind::again, {}, {}};
    }
    const bool there = env.replica != nullptr && env.replica->is_proved(pass->id);
    auto* reader = there ? &env.replica->session(env.session, env.stop) : nullptr;
    // Counting collisions may take long and changes nothing: it can be cancelled, and is done again.
    const Interruptible interruptible(env.interruptible);
    report = profiler_->report(env.session, pass->id, reader);
  }
  auto blockers = unaccepted(expectation_blockers(m, *report), env.accepted);
  if (!blockers.empty()) return {StepResult::Kind::waiting, std::move(blockers), {}};
  return {StepResult::Kind::settled, {}, {}};
}

std::vector<Blocker> DryRunHandler::exit_blockers(PhaseEnv& env, const Migration& m) {
  const auto report = newest_report(env.session, m);
  if (!report) return {{ErrorCode::not_ready, "the dry run has not ended", "", ""}};
  auto blockers = expectation_blockers(m, *report);
  for (auto& blocker : preflight_blockers(env.session, m)) blockers.push_back(std::move(blocker));
  for (auto& blocker : dependent_blockers(env, m)) blockers.push_back(std::move(blocker));
  return blockers;
}

// A dry run counts once: entering it again reads again.
Crossing DryRunHandler::enter(PhaseEnv&, const Migration& m) {
  Crossing crossing;
  crossing.statements = fmt::format(
      "UPDATE crossfade.pass SET state = 'void' WHERE migration_id = {}::uuid AND kind = 'profile';\n",
      quote_literal(m.row.id.text));
  return crossing;
}

Crossing DryRunHandler::leave_back(PhaseEnv&, const Migration&) { return {}; }

}  // namespace crossfade
