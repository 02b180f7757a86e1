#include "sweep_position.hpp"

#include <string>
#include <utility>

namespace crossfade {

std::int64_t block_of(const Key& bound) { return std::stoll(bound.parts.at(0)); }
Key block_bound(std::int64_t block) { return {{std::to_string(block)}}; }

RowShare SweepPosition::share() const {
  constexpr int kMany = 12;
  if (visits < kMany) return {visits, visit - 1, visit - 1};
  return {visits + 1, visit == 1 ? 0 : visit, visit};
}

std::optional<Key> SweepPosition::low(const std::optional<Key>& unit_low) const {
  if (within) return within;
  if (in_window() && piece > 1) return window.at(static_cast<std::size_t>(piece) - 2);
  return watermark ? watermark : unit_low;
}

SweepPosition SweepPosition::after(const Key& upper) const {
  SweepPosition next = *this;
  if (!in_window()) {
    next.watermark = upper;
    return next;
  }
  if (upper != piece_high()) {
    next.within = upper;
    return next;
  }
  next.within.reset();
  if (static_cast<std::size_t>(++next.piece) <= window.size()) return next;
  next.piece = 1;
  if (++next.visit <= visits) return next;
  next = without_window();
  next.watermark = window.back();
  return next;
}

SweepPosition SweepPosition::with_window(std::vector<Key> bounds, int of_visits) const {
  SweepPosition next = without_window();
  next.window = std::move(bounds);
  next.visits = of_visits;
  next.visit = next.piece = 1;
  return next;
}

SweepPosition SweepPosition::without_window() const {
  SweepPosition next;
  next.watermark = watermark;
  return next;
}

}  // namespace crossfade
