#include <algorithm>
#include <numeric>
#include <vector>

#include "crossfade/core/tuning.hpp"

namespace crossfade {

namespace {

std::size_t edit_distance(std::string_view a, std::string_view b) {
  std::vector<std::size_t> row(b.size() + 1);
  std::iota(row.begin(), row.end(), std::size_t{0});
  for (std::size_t i = 1; i <= a.size(); ++i) {
    std::size_t diagonal = row[0];
    row[0] = i;
    for (std::size_t j = 1; j <= b.size(); ++j) {
      const std::size_t substituted = diagonal + (a[i - 1] == b[j - 1] ? 0 : 1);
      diagonal = row[j];
      row[j] = std::min({substituted, row[j] + 1, row[j - 1] + 1});
    }
  }
  return row[b.size()];
}

}  // namespace

std::optional<std::string_view> nearest(std::string_view word, std::span<const std::string_view> known) {
  constexpr std::size_t kFarthest = 3;
  std::optional<std::string_view> best;
  std::size_t best_distance = kFarthest + 1;
  for (const std::string_view candidate : known) {
    // Also keeps a hostile megabyte-long word from costing more than a comparison of lengths.
    const std::size_t shorter = std::min(word.size(), candidate.size());
    const std::size_t longer = std::max(word.size(), candidate.size());
    if (longer - shorter > kFarthest) continue;
    const std::size_t distance = edit_distance(word, candidate);
    // A word of which nothing remains is not a misspelling.
    if (distance < best_distance && distance < longer) {
      best = candidate;
      best_distance = distance;
    }
  }
  return best;
}

}  // namespace crossfade
