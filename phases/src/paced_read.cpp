#include "crossfade/phases/paced_read.hpp"

#include <thread>

#include "crossfade/core/state_store.hpp"

namespace crossfade {

using std::chrono::milliseconds;

bool PacedRead::slice(PhaseEnv& env, const Migration& m, milliseconds slice, std::string& note,
                      const Read& read) {
  slice *= 2;
  const auto until = std::chrono::steady_clock::now() + slice;
  const auto tuning = StateStore(env.session).tuning(m.row.id, m.spec.tuning);
  // What is read within a slice is read before a controller had anything to say.
  if (!began_) {
    began_ = true;
    return read({tuning.workers, env.connect, env.replica, nullptr, nullptr}, slice);
  }
  if (!governor_) {
    const auto work = env.replica != nullptr ? PacedWork::reading_on_standby : PacedWork::reading;
    governor_ = std::make_unique<PaceGovernor>(
        PaceGovernor::Setup{env.connect, &env.cache, m, current_table(env.session, m), env.token, work});
    pace_ = std::make_unique<Pace>(env.cache, cache_mutex_, m.row.id, env.token);
  }
  auto order = governor_->order();
  while (order.state == PaceState::paused) {
    note = order.note();
    if (env.stop || std::chrono::steady_clock::now() >= until) return false;
    std::this_thread::sleep_for(milliseconds(20));
    order = governor_->order();
  }
  note = order.note();
  pace_->set_limit(order.limit_rows_per_second, tuning.workers);
  return read({tuning.workers, env.connect, env.replica, pace_.get(), &cache_mutex_}, slice);
}

void PacedRead::end() {
  governor_.reset();
  pace_.reset();
  began_ = false;
}

bool PacedComparison::goes_on(PhaseEnv& env, const Migration& m, CompareDirection direction) {
  if (!comparator_ || of_ != m.row.id || table_ != current_table(env.session, m).sql()) return false;
  const auto newest = newest_pass(env.session, m.row.id, "compare", to_text(direction));
  return newest && newest->id == pass_->id && newest->state == "running";
}

bool PacedComparison::slice(PhaseEnv& env, const Migration& m, CompareDirection direction,
                            milliseconds slice) {
  if (!goes_on(env, m, direction)) {
    if (of_ != m.row.id) paced_.end();
    of_ = m.row.id;
    const auto table = current_table(env.session, m);
    table_ = table.sql();
    comparator_ = std::make_unique<Comparator>(m, table, direction);
    pass_ = comparator_->open_pass(env.session);
  }
  std::string note;
  const auto told = [&](std::int64_t) {
    env.progress(comparator_->rows_read(), -1, note.empty() ? "comparing" : "comparing, " + note);
  };
  const bool ended = paced_.slice(env, m, slice, note, [&](const ReadCrew& crew, milliseconds length) {
    return comparator_->run(env.session, env.cache, *pass_, length, env.stop, told, crew);
  });
  if (!note.empty()) env.progress(-1, -1, "comparing, " + note);
  if (!ended) return false;
  comparator_.reset();
  pass_.reset();
  paced_.end();
  return true;
}

}  // namespace crossfade
