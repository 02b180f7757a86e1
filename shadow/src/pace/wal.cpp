// What becomes of the WAL that the sweep writes: how much in a second, how much is kept for slots, how much
// waits for the archiver.
#include <fmt/format.h>

#include <algorithm>

#include "signals.hpp"

namespace crossfade::pace {

namespace {

// A shorter stretch measures the moment of a checkpoint, a longer one answers late.
constexpr std::chrono::seconds kShortest{2}, kLongest{5};

constexpr const char* kWritten = "SELECT pg_wal_lsn_diff(pg_current_wal_lsn(), '0/0')::bigint";

constexpr const char* kSlots =
    "SELECT s.slot_name, pg_wal_lsn_diff(pg_current_wal_lsn(), s.restart_lsn)::bigint,"
    " (SELECT g.setting::bigint FROM pg_settings g WHERE g.name = 'max_slot_wal_keep_size')"
    " FROM pg_replication_slots s WHERE s.restart_lsn IS NOT NULL ORDER BY 2 DESC LIMIT 1";

// The name of a segment holds its place: the eight digits in the middle count four gigabytes, the last eight
// count segments. The one that is being filled is not late yet. A history or backup file was archived after
// the segment before it, which it does not name.
constexpr const char* kArchiver =
    "WITH a AS (SELECT last_archived_wal AS done, last_failed_wal AS failed, last_archived_time AS done_at,"
    " last_failed_time AS failed_at FROM pg_stat_archiver),"
    " s AS (SELECT setting::bigint AS size FROM pg_settings WHERE name = 'wal_segment_size'),"
    " at AS (SELECT n.which, (('x' || substr(n.wal, 9, 8))::bit(32)::bigint * 4294967296)"
    " + ('x' || substr(n.wal, 17, 8))::bit(32)::bigint * s.size AS lsn FROM s,"
    " (SELECT 'done' AS which, done AS wal FROM a UNION ALL SELECT 'failed', failed FROM a) n"
    " WHERE n.wal ~ '^[0-9A-F]{24}$')"
    " SELECT current_setting('archive_mode') <> 'off',"
    " pg_wal_lsn_diff(pg_current_wal_lsn(), '0/0')::bigint / s.size * s.size,"
    " (SELECT lsn + s.size FROM at, s WHERE which = 'done'), (SELECT lsn FROM at WHERE which = 'failed'),"
    " CASE WHEN a.failed_at > coalesce(a.done_at, '-infinity')"
    " THEN extract(epoch FROM clock_timestamp() - a.failed_at) END FROM a, s";

}  // namespace

Readings WalRate::read(SqlSession& session, const Tuning& tuning, Time now) {
  if (tuning.max_wal_rate == 0) return {};
  return judge(int_of(session.exec_prepared(kWritten).one("lsn")[0]), tuning, now);
}

Readings WalRate::judge(std::int64_t written, const Tuning& tuning, Time now) {
  samples_.emplace_back(written, now);
  while (samples_.size() > 2 && now - samples_.front().second > kLongest) samples_.pop_front();
  const auto& [from, since] = samples_.front();
  const auto most = static_cast<double>(tuning.max_wal_rate);
  const auto limit = size_text(most) + "/s";
  if (now - since < kShortest)
    return {{name(), Response::slows, kUndecided, "WAL rate not measured yet", limit}};
  const double rate =
      static_cast<double>(written - from) / std::chrono::duration<double>(now - since).count();
  return {{name(), Response::slows, rate / most, fmt::format("WAL rate {}/s", size_text(rate)), limit}};
}

Readings SlotWal::read(SqlSession& session, const Tuning& tuning, Time) {
  if (tuning.max_slot_wal == 0) return {};
  const auto found = session.exec_prepared(kSlots);
  Facts facts;
  if (!found.empty()) {
    constexpr std::int64_t kMegabyte = 1 << 20;
    facts.slot = text_of(found[0][0]);
    facts.kept = int_of(found[0][1]);
    const auto keep = int_of(found[0][2]);
    facts.keep_size = keep < 0 ? keep : keep * kMegabyte;
  }
  return judge(facts, tuning);
}

Readings SlotWal::judge(const Facts& facts, const Tuning& tuning) {
  auto most = tuning.max_slot_wal;
  // A slot that is lost costs a standby or a subscriber: from half of what the server keeps on, we are not
  // the ones who add to it.
  if (most == Tuning::kAutomaticSlotWal) most = facts.keep_size > 0 ? facts.keep_size / 2 : 0;
  if (most == 0 || facts.slot.empty()) return {};
  const auto kept = static_cast<double>(std::max<std::int64_t>(facts.kept, 0));
  return {{"slot_wal", Response::waits, kept / static_cast<double>(most),
           fmt::format("slot {} keeps {} of WAL", facts.slot, size_text(kept)),
           size_text(static_cast<double>(most))}};
}

Readings ArchiveBacklog::read(SqlSession& session, const Tuning& tuning, Time) {
  if (tuning.max_archive_backlog == 0) return {};
  const auto row = session.exec_prepared(kArchiver).one("archiver");
  Facts facts;
  facts.archiving = bool_of(row[0]);
  facts.written = int_of(row[1]);
  if (row[2]) facts.archived = int_of(row[2]);
  if (row[3]) facts.failed = int_of(row[3]);
  if (row[4]) facts.failing_seconds = double_of(row[4]);
  return judge(facts, tuning);
}

Readings ArchiveBacklog::judge(const Facts& facts, const Tuning& tuning) {
  if (!facts.archiving) return {};
  // Before the first success all that is known is what failed first, or what was written since we look.
  if (facts.archived) {
    from_ = *facts.archived;
  } else if (!from_) {
    from_ = facts.failed.value_or(facts.written);
  }
  const auto behind = static_cast<double>(std::max<std::int64_t>(facts.written - *from_, 0));
  const auto most = static_cast<double>(tuning.max_archive_backlog);
  auto value = fmt::format("archiver behind by {}", size_text(behind));
  if (facts.failing_seconds)
    value += fmt::format(", failing since {} at least", seconds_text(*facts.failing_seconds));
  return {{name(), Response::waits, behind / most, value, size_text(most)}};
}

}  // namespace crossfade::pace
