// Why a range that was read on a standby counts as one read on the primary.
//
// A comparison needs two things of each range: that it was read in a snapshot not older than the start of the
// pass, in which the fingerprint of the capture was taken, and that the snapshot shows a state that this
// primary was in. From then on every write goes through the capture, which is what the unchanged fingerprint
// says, so that a row that agreed in that snapshot agrees ever after.
//
// An LSN alone does not prove that. A server that was promoted, or follows another one that was, is past any
// position too, on another history; a fork keeps the capture and the state rows, so that a row which differs
// here may agree there. What only this primary can give is a commit: a random mark in the row of the pass. A
// session that shows the mark has replayed the primary's WAL up to there, since PostgreSQL replays commits in
// the order of the WAL and a fork never gets a later commit of the side that it left. So
//
//   - the first mark is committed after the pass was opened, and nothing is read before the session shows it:
//     the snapshots of all ranges are younger than the fingerprint, and than all writes of the sweep, whose
//     asynchronous commits lie before it in the WAL;
//   - another mark is committed after each batch of ranges was read, and they are stored only when the same
//     session shows it: until then there was no fork;
//   - a session that breaks takes with it what was read since its last proof.
//
// The timeline and the system identifier are compared only so that a wrong server is told at once and not by
// waiting.
#include "crossfade/shadow/replica.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <thread>

namespace crossfade {

namespace {

using std::chrono::milliseconds;

constexpr milliseconds kFirstLook{2};
constexpr milliseconds kLongestLook{100};
constexpr milliseconds kBetweenConnects{250};
constexpr milliseconds kSlowEnoughToTell{1000};
constexpr int kCollationVersions = 150000;  // server_version_num

Error mismatch(const std::string& what) {
  return Error(
      ErrorCode::standby_mismatch, "The server of --read-dsn " + what,
      "Name a standby that streams from this primary, or leave --read-dsn out to read on the primary.",
      "--read-dsn");
}

// Two libraries that sort text differently disagree about what lies in a range.
std::string collation_version(SqlSession& session) {
  if (session.identity().version_num < kCollationVersions) return {};
  return session
      .exec(
          "SELECT coalesce(pg_database_collation_actual_version(d.oid), '') FROM pg_database d"
          " WHERE d.datname = current_database()")
      .one("the collation version")[0]
      .value_or("");
}

std::string role_of(SqlSession& session) {
  return text_of(session.exec("SELECT current_user").one("the role")[0]);
}

bool in_recovery(SqlSession& session) {
  return bool_of(session.exec("SELECT pg_is_in_recovery()").one("recovery")[0]);
}

}  // namespace

SqlSession Replica::connect_to_standby_of(SqlSession& primary) {
  proved_pass_ = 0;
  auto session = setup_.connect();
  if (!in_recovery(session)) throw mismatch("is not a standby: it is not in recovery.");
  const auto& here = primary.identity();
  const auto& there = session.identity();
  // The role may be one that may not read it.
  if (!here.system_identifier.empty() && !there.system_identifier.empty() &&
      here.system_identifier != there.system_identifier) {
    throw mismatch(fmt::format("belongs to another cluster: system identifier {} instead of {}.",
                               there.system_identifier, here.system_identifier));
  }
  if (here.database_oid != there.database_oid) {
    throw mismatch(
        fmt::format("has another database: oid {} instead of {}.", there.database_oid, here.database_oid));
  }
  // With another role's privileges a statement could fail there that would not fail here.
  if (const auto [ours, theirs] = std::pair(role_of(primary), role_of(session)); ours != theirs)
    throw mismatch(fmt::format("is reached as another role: {} instead of {}.", theirs, ours));
  // An older one may be that of its last restartpoint; whether it still follows is shown by the proof.
  if (!here.timeline.empty() && !there.timeline.empty() && there.timeline > here.timeline) {
    throw mismatch(
        fmt::format("follows another primary: timeline {} instead of {}.", there.timeline, here.timeline));
  }
  if (const auto [ours, theirs] = std::pair(collation_version(primary), collation_version(session));
      ours != theirs) {
    throw mismatch(
        fmt::format("sorts text by another library: collation version {} instead of {}.", theirs, ours));
  }
  return session;
}

bool Replica::all_open() const {
  return !sessions_.empty() &&
         std::ranges::all_of(sessions_, [](const auto& session) { return session && session->is_open(); });
}

bool Replica::is_proved(std::int64_t pass) const { return proved_pass_ == pass && all_open(); }

SqlSession& Replica::session(SqlSession& primary, const std::atomic<bool>& stop, std::size_t reader) {
  if (sessions_.size() <= reader) sessions_.resize(reader + 1);
  auto& session = sessions_[reader];
  while (!session || !session->is_open()) {
    if (stop)
      throw Error(ErrorCode::interrupted, "interrupted; nothing is lost", "run the command again to go on");
    try {
      session.reset();
      session = std::make_unique<SqlSession>(connect_to_standby_of(primary));
    } catch (const Error& error) {
      const bool away = error.exit_status() == error_info(ErrorCode::server_unreachable).exit_status;
      if (!away || !lost_since_ || Clock::now() - *lost_since_ >= setup_.patience) throw;
      if (setup_.tell) setup_.tell("waiting for the standby: " + error.message());
      std::this_thread::sleep_for(kBetweenConnects);
    }
  }
  return *session;
}

bool Replica::survives(const Error& error) {
  if (error.code() != ErrorCode::connection_lost || all_open()) return false;
  // One of several is not asked for a proof before it is connected again.
  std::erase_if(sessions_, [](const auto& session) { return !session || !session->is_open(); });
  if (!lost_since_) lost_since_ = Clock::now();
  return Clock::now() - *lost_since_ < setup_.patience;
}

void Replica::cancel() noexcept {
  for (const auto& session : sessions_) {
    if (session) session->cancel();
  }
}

bool Replica::shows(SqlSession& session, std::int64_t pass, const std::string& mark) {
  if (!in_recovery(session)) throw mismatch("was promoted; it is no standby any more.");
  try {
    return bool_of(session
                       .exec("SELECT EXISTS (SELECT FROM crossfade.pass p WHERE p.id = $1::bigint"
                             " AND p.result->>'mark' = $2) AND pg_is_in_recovery()",
                             {std::to_string(pass), mark})
                       .one("the mark")[0]);
  } catch (const Error& error) {
    // Cancelled by the replay, or so far behind that the schema is not there.
    if (error.is_transient() || error.code() == ErrorCode::undefined_table) return false;
    throw;
  }
}

Error Replica::behind(SqlSession& primary, SqlSession& session) {
  std::string how_far = "has replayed nothing";
  const auto replayed = session.exec("SELECT pg_last_wal_replay_lsn()").one("the replay position")[0];
  if (replayed) {
    const auto bytes =
        primary.exec("SELECT pg_wal_lsn_diff(pg_current_wal_lsn(), $1::pg_lsn)::bigint", {*replayed});
    how_far = fmt::format("is at {}, {} bytes behind the primary", *replayed,
                          text_of(bytes.one("the distance")[0]));
  }
  return Error(
      ErrorCode::standby_behind,
      fmt::format("The standby of --read-dsn did not show what the primary committed within {} s: it {}.",
                  std::chrono::duration<double>(setup_.patience).count(), how_far),
      "Look at its replay (pg_is_wal_replay_paused(), recovery_min_apply_delay, its log) and run the command"
      " again, or leave --read-dsn out; nothing is lost.",
      "--read-dsn");
}

bool Replica::prove(SqlSession& primary, std::int64_t pass, const std::atomic<bool>& stop) {
  if (sessions_.empty()) throw Error(ErrorCode::internal_error, "a proof without a session to the standby");
  const auto began = Clock::now();
  // Commits synchronously, and with it everything before it in the WAL.
  const auto marked = primary.exec(
      "UPDATE crossfade.pass SET result = result || jsonb_build_object('read_on', 'standby', 'mark',"
      " gen_random_uuid()) WHERE id = $1::bigint AND state = 'running' RETURNING result->>'mark'",
      {std::to_string(pass)});
  if (marked.empty()) {
    throw Error(ErrorCode::superseded,
                fmt::format("Pass {} was voided or is being read by another runner.", pass),
                "Run the command again; it continues the running pass or opens a new one.");
  }
  const auto mark = text_of(marked[0][0]);
  for (const auto& session : sessions_) {
    if (!session) continue;  // could not be made, so that nothing is read on it
    for (auto pause = kFirstLook; !shows(*session, pass, mark); pause = std::min(pause * 2, kLongestLook)) {
      const auto waited = Clock::now() - began;
      if (stop) return false;
      if (waited >= setup_.patience) throw behind(primary, *session);
      if (waited >= kSlowEnoughToTell && setup_.tell) setup_.tell("waiting for the standby to replay");
      std::this_thread::sleep_for(pause);
    }
  }
  proved_pass_ = pass;
  lost_since_.reset();
  lag_ = std::chrono::duration_cast<milliseconds>(Clock::now() - began);
  return true;
}

}  // namespace crossfade
