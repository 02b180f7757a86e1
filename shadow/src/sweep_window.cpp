// The worker's windows: opened, cut into pieces, given up; and where the next chunk ends.
#include <fmt/format.h>

#include <nlohmann/json.hpp>

#include "crossfade/core/failpoint.hpp"
#include "crossfade/core/log.hpp"
#include "crossfade/shadow/key_sql.hpp"
#include "sweep_worker.hpp"

namespace crossfade {

// The first bound at least `rows` rows behind `low`; nullopt: not before `high`.
std::optional<Key> SweepWorker::bound_after(const std::optional<Key>& low, const Key& high,
                                            std::int64_t rows) {
  if (unit_->by == RangeBy::key)
    return nth_key(*session_, table(), sweep_.migration_.binding.key, {low, high}, rows);
  const auto next = (low ? block_of(*low) : 0) + windows_.rows_to_blocks(rows);
  return next < block_of(high) ? std::optional(block_bound(next)) : std::nullopt;
}

std::vector<Key> SweepWorker::piece_bounds(std::int64_t rows) {
  std::vector<Key> bounds;
  auto low = unit_->at.low(unit_->low);
  while (static_cast<std::int64_t>(bounds.size()) < kPieces) {
    const auto bound = bound_after(low, unit_->high, rows);
    if (!bound) break;
    bounds.push_back(*bound);
    low = bound;
  }
  // What is left of the unit, if it is less than a piece, belongs to this window.
  if (bounds.empty() || (bounds.back() != unit_->high && !bound_after(low, unit_->high, rows)))
    bounds.push_back(unit_->high);
  return bounds;
}

std::optional<SweepWorker::Step> SweepWorker::open_window() {
  if (!windows_.is_due()) return std::nullopt;
  const auto chosen =
      windows_.decide(*session_, sweep_.migration_, unit_->relation, table(), sweep_.pass_, interleave_);
  sweep_.tell(*session_, chosen.visits, chosen.reason);
  if (chosen.visits <= 1) return std::nullopt;
  if (const auto cap = sweep_.pace_.chunk_cap(); cap > 0) visit_size_.cap(cap * chosen.visits);
  rows_of_piece_ = windows_.piece_rows(visit_size_.rows());
  const auto next = unit_->at.with_window(piece_bounds(rows_of_piece_), chosen.visits);
  if (session_->exec_prepared(set_window_sql(), set_window_params(whose(), unit_->at, next)).empty())
    return Step::unit_lost;
  failpoint::hit("window.opened");
  unit_->at = next;
  split_pieces_ = false;
  windows_.window_opened();
  return Step::advanced;
}

SweepWorker::Step SweepWorker::give_up_window() {
  const auto next = unit_->at.without_window();
  if (session_->exec_prepared(set_window_sql(), set_window_params(whose(), unit_->at, next)).empty())
    return Step::unit_lost;
  unit_->at = next;
  windows_.window_given_up();
  sweep_.tell(*session_, 1, "rows that cannot be written are looked for");
  return Step::try_again;
}

ChunkStep SweepWorker::next_chunk() {
  ChunkStep step;
  step.before = unit_->at;
  step.low = unit_->at.low(unit_->low);
  step.high = unit_->at.in_window() ? unit_->at.piece_high() : unit_->high;
  if (!unit_->at.in_window() || split_pieces_) {
    if (const auto bound = bound_after(step.low, step.high, size().rows())) step.high = *bound;
  }
  step.after = step.before.after(step.high);
  step.done = !step.after.in_window() && step.after.watermark == unit_->high;
  return step;
}

void Sweep::tell(SqlSession& session, int visits, const std::string& reason) {
  const auto text = nlohmann::json{{"interleave", visits}, {"interleave_reason", reason}}.dump();
  {
    const std::scoped_lock lock(told_mutex_);
    if (told_ == text) return;
    told_ = text;
  }
  session.exec("UPDATE crossfade.pass SET sweep = sweep || $2::jsonb WHERE id = $1::bigint",
               {std::to_string(pass_.id), text});
  log::write(log::Level::info, "interleave", {{"visits", std::to_string(visits)}, {"reason", reason}});
}

}  // namespace crossfade
