#include "window_planner.hpp"

#include <fmt/format.h>

#include <algorithm>

namespace crossfade {

namespace {

// Without a window, between two looks at what stands against one.
constexpr std::int64_t kChunksBetweenLooks = 10;
// After a window that did not pay, or met rows that fail.
constexpr std::int64_t kChunksAfterFailure = 100;
// Fewer rows say nothing about how many of them stay on their page.
constexpr std::int64_t kTellingRows = 500;
constexpr std::int64_t kSmallestPiece = 5000;
constexpr std::int64_t kChunksOfAWindow = 8 * kPieces;

}  // namespace

void WindowPlanner::read_facts(SqlSession& session, const Migration& m, Oid relation,
                               const QualifiedName& table, const PassRow& pass) {
  if (pages_ && relation_ == relation) return;
  const auto facts = read_page_facts(session, m, relation, table);
  const auto row = session
                       .exec(
                           "SELECT coalesce((p.sweep->>'follows_pages')::boolean, true),"
                           " (SELECT count(*) FROM crossfade.unit u WHERE u.pass_id = p.id)"
                           " FROM crossfade.pass p WHERE p.id = $1::bigint",
                           {std::to_string(pass.id)})
                       .one("the pass");
  follows_pages_ = bool_of(row[0]);
  rows_per_unit_ = static_cast<std::int64_t>(static_cast<double>(facts.blocks) * facts.rows_per_page) /
                   std::max<std::int64_t>(int_of(row[1]), 1);
  pages_ = facts;
  relation_ = relation;
}

std::optional<std::string> WindowPlanner::mark_of_a_window_ago(const Migration& m) const {
  const auto found = std::find_if(marks_.rbegin(), marks_.rend(),
                                  [&](const auto& mark) { return mark.first + kChunksOfAWindow <= chunks_; });
  return found == marks_.rend() ? m.row.capture_xid : std::optional(found->second);
}

Interleave WindowPlanner::decide(SqlSession& session, const Migration& m, Oid relation,
                                 const QualifiedName& table, const PassRow& pass, int tuned) {
  read_facts(session, m, relation, table, pass);
  InterleaveFacts facts;
  facts.tuned = tuned;
  facts.writes = pass.kind != "replay";
  facts.shadow_is_indexed = pages_->shadow_is_indexed;
  facts.blocks = pages_->blocks;
  facts.rows_per_page = pages_->rows_per_page;
  facts.indexes = pages_->indexes;
  facts.free_share = pages_->free_share;
  facts.follows_pages = follows_pages_;
  if (pages_->tracks_counts && written_ >= kTellingRows)
    facts.hot_share = static_cast<double>(hot_) / static_cast<double>(written_);
  // Only where everything else is for it: it is asked again and again.
  if (choose_interleave(facts).visits > 1) {
    const auto snapshots = read_snapshot_age(session, mark_of_a_window_ago(m));
    marks_.emplace_back(chunks_, snapshots.now);
    if (marks_.size() > 32) marks_.erase(marks_.begin());
    facts.old_snapshot = snapshots.holder;
  }
  const auto chosen = choose_interleave(facts);
  const bool unpaid = chosen.visits == 1 && facts.hot_share && facts.old_snapshot.empty();
  plain_chunks_left_ = chosen.visits > 1 ? 0 : (unpaid ? kChunksAfterFailure : kChunksBetweenLooks);
  // Tried again after that, whatever the last one achieved.
  written_ = hot_ = 0;
  return chosen;
}

std::int64_t WindowPlanner::piece_rows(std::int64_t wanted) const {
  if (rows_per_unit_ <= 0) return wanted;
  return std::min(wanted, std::max(rows_per_unit_ / kPieces, kSmallestPiece));
}

std::int64_t WindowPlanner::rows_to_blocks(std::int64_t rows) const {
  const double rows_per_page = pages_ ? std::max(pages_->rows_per_page, 1.0) : 1.0;
  return std::max<std::int64_t>(1, static_cast<std::int64_t>(static_cast<double>(rows) / rows_per_page));
}

std::int64_t WindowPlanner::blocks_to_rows(std::int64_t blocks) const {
  return static_cast<std::int64_t>(static_cast<double>(blocks) * (pages_ ? pages_->rows_per_page : 1.0));
}

void WindowPlanner::chunk_done(std::int64_t written, std::int64_t hot, bool windowed) {
  ++chunks_;
  if (!windowed) {
    --plain_chunks_left_;
    return;
  }
  written_ += written;
  hot_ += hot;
}

void WindowPlanner::window_given_up() {
  written_ = hot_ = 0;
  plain_chunks_left_ = kChunksAfterFailure;
}

}  // namespace crossfade
