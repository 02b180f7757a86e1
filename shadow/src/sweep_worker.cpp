#include "sweep_worker.hpp"

#include <fmt/chrono.h>
#include <fmt/format.h>

#include <algorithm>
#include <ctime>
#include <thread>

#include "crossfade/core/catalog.hpp"
#include "crossfade/core/error.hpp"
#include "crossfade/core/failpoint.hpp"
#include "crossfade/core/log.hpp"
#include "crossfade/shadow/key_sql.hpp"
#include "crossfade/shadow/rejects.hpp"
#include "unit_claim.hpp"
#include "unit_split.hpp"

namespace crossfade {

using std::chrono::milliseconds;
using Clock = std::chrono::steady_clock;

namespace {

constexpr int kMostReconnects = 5;
constexpr std::chrono::seconds kBeat{1};

// Lost, or not got: a backend may go away before it has answered for the first time.
bool is_of_connection(const Error& error) {
  return error.code() == ErrorCode::connection_lost || error.code() == ErrorCode::server_unreachable;
}

SqlValue nullable(const std::optional<Key>& key) { return key ? SqlValue(array_literal(*key)) : SqlValue(); }

// Of a chunk whose bounds are blocks.
std::int64_t blocks_of(const ChunkStep& step) {
  return block_of(step.high) - (step.low ? block_of(*step.low) : 0);
}

}  // namespace

SweepWorker::SweepWorker(Sweep& sweep, int number) : sweep_(sweep), number_(number) {}
SweepWorker::~SweepWorker() = default;

void SweepWorker::open_session() {
  session_.emplace(sweep_.connect_(fmt::format("worker-{}", number_)));
  // PostgreSQL ends the life of whoever first waits for deadlock_timeout in a cycle. Ours is a quarter of
  // that, so in a cycle with us everybody else is still short of it when we are gone.
  const auto timeout =
      int_of(session_->exec("SELECT setting FROM pg_settings WHERE name = 'deadlock_timeout'")
                 .one("deadlock_timeout")[0]);
  life_ = milliseconds(std::clamp<std::int64_t>(timeout / 4, 10, 1000));
  session_->set_statement_timeout(life_);
  session_->set_lock_timeout(milliseconds(0));
  silence_user_triggers(*session_);
}

bool SweepWorker::claim() {
  const auto claimed = session_->exec_prepared(
      claim_unit_sql(), {std::to_string(sweep_.pass_.id), sweep_.migration_.row.id.text, sweep_.token_.text});
  if (claimed.empty()) return false;
  const auto& row = claimed[0];
  const auto key = [](const SqlValue& value) {
    return value ? std::optional<Key>(parse_key(*value)) : std::nullopt;
  };
  const auto place = [](const SqlValue& value) { return value ? static_cast<int>(int_of(value)) : 0; };
  Unit unit;
  unit.number = static_cast<int>(int_of(row[0]));
  unit.low = key(row[1]);
  unit.high = parse_key(text_of(row[2]));
  unit.lease = text_of(row[4]);
  unit.at.watermark = key(row[3]);
  unit.relation.value = static_cast<std::uint32_t>(int_of(row[5]));
  if (row[6]) {
    for (const auto& bound : parse_array(*row[6])) unit.at.window.push_back(parse_key(text_of(bound)));
  }
  unit.at.visits = place(row[7]);
  unit.at.visit = place(row[8]);
  unit.at.piece = place(row[9]);
  unit.at.within = key(row[10]);
  unit.by = text_of(row[11]) == "block" ? RangeBy::block : RangeBy::key;
  unit.since = fmt::format("{:%Y-%m-%dT%H:%M:%SZ}", fmt::gmtime(std::time(nullptr)));
  unit_ = std::move(unit);
  // Whoever opened its window may have had larger chunks.
  split_pieces_ = unit_->at.in_window();
  return true;
}

// Nobody has a unit to spare: whoever holds a large one is asked to give a part of it away.
void SweepWorker::ask_for_part() {
  if (sweep_.pass_.kind == "catch_up") return;
  try {
    session_->exec_prepared(ask_for_split_sql(), {std::to_string(sweep_.pass_.id),
                                                  sweep_.migration_.row.id.text, sweep_.token_.text});
  } catch (const Error& error) {
    // A chunk had the row for longer than we wait.
    if (!error.is_transient()) throw;
  }
}

// Between two chunks of ours. The window stays whole: what is given away lies behind it.
void SweepWorker::give_part_away() {
  const auto opened = unit_->at.in_window() ? unit_->at.window.back() : unit_->at.low(unit_->low);
  if (opened == unit_->high) return;
  try {
    const auto bound = split_when_asked(
        *session_, sweep_.migration_, table(), sweep_.token_, sweep_.pass_,
        {unit_->number, unit_->relation, unit_->lease, unit_->at.watermark, opened, unit_->high, unit_->by});
    if (bound) unit_->high = *bound;
  } catch (const Error& error) {
    if (!error.is_transient()) throw;
  }
}

ChunkOf SweepWorker::whose() const {
  const auto& row = sweep_.migration_.row;
  return {row.id, sweep_.token_, row.phase, row.mark, sweep_.pass_.id, unit_->number, unit_->lease};
}

ChunkForm SweepWorker::form_of(ChunkWay way, const ChunkStep& step) const {
  return {way, unit_->by, step.low ? ChunkForm::Low::bound : ChunkForm::Low::open,
          step.before.takes_a_share() ? ChunkForm::Share::one : ChunkForm::Share::all};
}

SweepWorker::Texts& SweepWorker::texts() {
  auto& texts = texts_[unit_->relation.value];
  if (!texts.table.name.empty()) return texts;
  if (unit_->relation == sweep_.migration_.row.table_oid) {
    texts.table = sweep_.table_;
  } else if (const auto leaf = relation_name(*session_, unit_->relation)) {
    texts.table = *leaf;
  } else {
    throw Error(ErrorCode::table_changed,
                fmt::format("relation {} of {} was dropped", unit_->relation.value, sweep_.table_.display()),
                "", sweep_.table_.display());
  }
  return texts;
}

const std::string& SweepWorker::text(const ChunkForm& form) {
  auto& text = texts().chunks[{form.way, form.by, form.low, form.share}];
  if (text.empty()) text = chunk_sql(sweep_.migration_, table(), form);
  return text;
}

SweepWorker::Step SweepWorker::chunk(ChunkWay way, const ChunkStep& step) {
  const auto began = Clock::now();
  const auto result = session_->exec_prepared(text(form_of(way, step)), chunk_params(whose(), step));
  const auto took = std::chrono::duration_cast<std::chrono::microseconds>(Clock::now() - began);
  failpoint::hit("chunk.after");
  const auto& row = result.one("chunk");
  if (!bool_of(row[0])) return Step::held;
  if (!bool_of(row[8])) {
    careful_next_ = true;
    return Step::try_again;
  }
  if (bool_of(row[10])) return Step::rewritten;
  if (!bool_of(row[1])) return Step::unit_lost;
  const auto seen = int_of(row[2]), needed = int_of(row[3]), written = int_of(row[4]),
             parked = int_of(row[5]);
  const bool shared = step.before.takes_a_share(), windowed = step.before.in_window();
  // By blocks a visit that takes a share counts only what it writes.
  const bool by_block = unit_->by == RangeBy::block;
  const auto rows = !shared    ? seen
                    : by_block ? windows_.blocks_to_rows(blocks_of(step))
                               : seen * step.before.visits;
  // Each visit pays for its share; the last one reads all rows and writes what is left of them.
  rows_of_chunk_ = windowed && !shared ? std::max(needed, seen / step.before.visits) : seen;
  rows_since_beat_ += rows_of_chunk_;
  if (!shared) sweep_.rows_seen_ += seen;
  sweep_.rows_written_ += written;
  transient_in_a_row_ = reconnects_ = 0;
  if (way == ChunkWay::plain) size().succeeded(rows, took, std::min(chunk_target_, life_ / 2));
  windows_.chunk_done(written, int_of(row[9]), windowed);
  careful_next_ = false;
  {
    const std::scoped_lock lock(sweep_.cache_mutex_);
    sweep_.cache_.put_cursor(sweep_.migration_.row.id, std::to_string(sweep_.pass_.id), unit_->number,
                             {sweep_.token_, array_literal(step.high), seen});
  }
  if (int_of(row[6]) > 0) check_rejects();
  if (way != ChunkWay::careful && parked == 0) check_suppressed(needed, written, step);
  return moved(step);
}

SweepWorker::Step SweepWorker::moved(const ChunkStep& step) {
  unit_->at = step.after;
  if (!step.done) return Step::advanced;
  unit_.reset();
  return Step::unit_done;
}

SqlResult SweepWorker::write_row(const std::string& key) {
  const auto& m = sweep_.migration_.row;
  return session_->exec(write_row_sql(sweep_.migration_, sweep_.table_),
                        {m.id.text, sweep_.token_.text, std::string(to_text(m.phase)), m.mark.text, key});
}

// Fewer rows written than needed it: a writer was faster (its trigger wrote them), or a user's trigger
// swallows ours. Only a row that stays as it was although it is written to alone tells the second.
void SweepWorker::check_suppressed(std::int64_t needed, std::int64_t written, const ChunkStep& step) {
  if (written >= needed) return;
  const auto differing = [&] {
    SqlParams params{nullable(step.low), array_literal(step.high), "1"};
    append_share(params, step.before);
    return session_->exec(differing_keys_sql(sweep_.migration_, table(), form_of(ChunkWay::plain, step)),
                          params);
  };
  const auto found = differing();
  if (found.empty()) return;
  const auto key = text_of(found[0][0]);
  const auto alone = write_row(key);
  const auto& row = alone.one("row");
  if (!bool_of(row[0]) || int_of(row[1]) == 0 || int_of(row[2]) > 0) return;
  const auto still = differing();
  if (still.empty() || text_of(still[0][0]) != key) return;
  throw Error(ErrorCode::rows_suppressed,
              fmt::format("rows of {} stay unwritten although they differ, for example key {}",
                          sweep_.table_.display(), key),
              "a BEFORE UPDATE trigger returns NULL for them; exempt crossfade's writes in its WHEN clause",
              sweep_.table_.display());
}

void SweepWorker::check_rejects() {
  const auto open = open_rejects(*session_, sweep_.migration_.row.id);
  if (open <= max_rejects_) return;
  throw Error(
      ErrorCode::too_many_rejects,
      fmt::format("{} rows of {} cannot be converted (max_rejects = {})", open, sweep_.table_.display(),
                  max_rejects_),
      fmt::format(
          "see 'crossfade rejects {0}'; fix the rows and run 'crossfade rejects {0} --retry', or raise"
          " the limit with 'crossfade tune {0} max_rejects=N'",
          sweep_.migration_.row.name),
      sweep_.table_.display());
}

SweepWorker::Step SweepWorker::on_transient(const Error& error, bool single_row) {
  ++transient_in_a_row_;
  size().failed();
  split_pieces_ = true;
  careful_next_ = true;
  log::write(log::Level::info, "chunk_undone",
             {{"unit", std::to_string(unit_->number)},
              {"sqlstate", error.sqlstate()},
              {"rows", std::to_string(size().rows())},
              {"in_a_row", std::to_string(transient_in_a_row_)}});
  if (single_row || transient_in_a_row_ > 2) {
    const std::scoped_lock lock(sweep_.waiting_mutex_);
    sweep_.waiting_for_ =
        fmt::format("unit {}: undone {} times by {}", unit_->number, transient_in_a_row_, error.sqlstate());
  }
  return Step::try_again;
}

SweepWorker::Step SweepWorker::on_data_error(const Error& error, const ChunkStep& step) {
  if (!sweep_.migration_.binding.column.forward.try_function.empty()) {
    try {
      return chunk(ChunkWay::tolerant, step);
    } catch (const Error& again) {
      if (again.is_transient()) return on_transient(again, false);
      if (!again.is_data_error()) throw;
    }
  }
  // Not the expression: a trigger of the user's, or a domain. Halve down to the row, once and not in every
  // visit.
  if (step.before.in_window()) return give_up_window();
  if (unit_->by == RangeBy::block && blocks_of(step) == 1) return write_singly(step);
  if (size_.rows() > 1) {
    size_.failed();
    return Step::try_again;
  }
  return reject_one(error, step);
}

// The row and the watermark past it commit together.
SweepWorker::Step SweepWorker::reject_one(const Error& error, const ChunkStep& step) {
  const auto passed = session_->exec_prepared(
      "WITH slot AS (UPDATE crossfade.unit u SET watermark = $4::text[], done = $5::boolean, chunks = "
      "u.chunks + 1,"
      " rows_read = u.rows_read + 1 WHERE u.pass_id = $1::bigint AND u.number = $2::integer"
      " AND u.lease_token = $3::uuid AND u.watermark IS NOT DISTINCT FROM $6::text[]"
      " AND u.window_bounds IS NULL RETURNING 1)"
      " INSERT INTO crossfade.reject (migration_id, key, sqlstate, message)"
      " SELECT $7::uuid, $4::text[], $8, left($9, 500) FROM slot ON CONFLICT (migration_id, key) DO UPDATE"
      " SET sqlstate = excluded.sqlstate, message = excluded.message, state = 'open', at = clock_timestamp(),"
      " closed_at = NULL RETURNING 1",
      {std::to_string(sweep_.pass_.id), std::to_string(unit_->number), unit_->lease, array_literal(step.high),
       std::string(step.done ? "true" : "false"), nullable(step.before.watermark),
       sweep_.migration_.row.id.text, error.sqlstate(), error.message()});
  if (passed.empty()) return Step::unit_lost;
  const auto next = moved(step);
  check_rejects();
  return next;
}

// A block cannot be halved: its rows are written one per transaction, and those that fail are rejected,
// before the watermark passes it.
SweepWorker::Step SweepWorker::write_singly(const ChunkStep& step) {
  std::int64_t rows = 0, written = 0;
  try {
    const auto found =
        session_->exec(differing_keys_sql(sweep_.migration_, table(), form_of(ChunkWay::tolerant, step)),
                       {nullable(step.low), array_literal(step.high), SqlValue()});
    for (const auto& row : found.rows) {
      const auto key = text_of(row[0]);
      try {
        const auto result = write_row(key);
        if (!bool_of(result.one("row")[0])) return Step::held;
        written += int_of(result[0][2]);
      } catch (const Error& error) {
        if (!error.is_data_error()) throw;
        record_reject(*session_, sweep_.migration_.row.id, key, error);
        check_rejects();
      }
      ++rows;
    }
    const auto passed = session_->exec_prepared(
        "UPDATE crossfade.unit u SET watermark = $4::text[], done = $5::boolean, chunks = u.chunks + 1,"
        " rows_read = u.rows_read + $7::bigint, rows_written = u.rows_written + $8::bigint"
        " WHERE u.pass_id = $1::bigint AND u.number = $2::integer AND u.lease_token = $3::uuid"
        " AND u.watermark IS NOT DISTINCT FROM $6::text[] AND u.window_bounds IS NULL RETURNING 1",
        {std::to_string(sweep_.pass_.id), std::to_string(unit_->number), unit_->lease,
         array_literal(step.high), std::string(step.done ? "true" : "false"), nullable(step.before.watermark),
         std::to_string(rows), std::to_string(written)});
    if (passed.empty()) return Step::unit_lost;
  } catch (const Error& error) {
    if (error.is_transient()) return on_transient(error, true);
    throw;
  }
  sweep_.rows_seen_ += rows;
  sweep_.rows_written_ += written;
  return moved(step);
}

SweepWorker::Step SweepWorker::step() {
  failpoint::hit("chunk.before");
  std::optional<ChunkStep> next;
  try {
    if (!unit_->at.in_window()) {
      if (const auto opened = open_window()) return *opened;
    }
    const auto cap = sweep_.pace_.chunk_cap();
    size().cap(cap * std::max(unit_->at.visits, 1));
    // Opened at a faster pace: whole pieces would come in lumps, seconds apart.
    if (cap > 0 && unit_->at.in_window() && cap * unit_->at.visits < rows_of_piece_) split_pieces_ = true;
    next = next_chunk();
    failpoint::hit("chunk.bounded");
    return chunk(careful_next_ ? ChunkWay::careful : ChunkWay::plain, *next);
  } catch (const Error& error) {
    if (!next) visit_size_.failed();
    if (error.is_transient()) return on_transient(error, size().rows() == 1);
    if (!error.is_data_error() || !next) throw;
    return on_data_error(error, *next);
  }
}

// What the careful way set aside: one row per transaction, waiting while holding nothing.
SweepWorker::Step SweepWorker::drain_leftovers() {
  const auto parked = session_->exec_prepared(
      "SELECT key, unit FROM crossfade.leftover WHERE pass_id = $1::bigint ORDER BY parked_at LIMIT 20",
      {std::to_string(sweep_.pass_.id)});
  if (parked.empty()) return Step::nothing_left;
  const auto write = write_row_sql(sweep_.migration_, sweep_.table_, RowOf::leftover);
  const auto& m = sweep_.migration_.row;
  Step step = Step::try_again;
  for (const auto& row : parked.rows) {
    if (stop_->load() || halt_->load()) break;
    failpoint::hit("catch_up.before");
    const auto key = text_of(row[0]);
    try {
      const auto result = session_->exec_prepared(
          write, {m.id.text, sweep_.token_.text, std::string(to_text(m.phase)), m.mark.text, key,
                  std::to_string(sweep_.pass_.id), text_of(row[1])});
      if (!bool_of(result.one("row")[0])) return Step::held;
      sweep_.rows_written_ += int_of(result[0][2]);
    } catch (const Error& error) {
      if (error.is_transient()) {
        const std::scoped_lock lock(sweep_.waiting_mutex_);
        sweep_.waiting_for_ = fmt::format("a locked row of {} (key {})", sweep_.table_.display(), key);
        session_->exec_prepared(
            "UPDATE crossfade.leftover SET parked_at = clock_timestamp()"
            " WHERE pass_id = $1::bigint AND key = $2::text[]",
            {std::to_string(sweep_.pass_.id), key});
        continue;
      }
      if (!error.is_data_error()) throw;
      record_reject(*session_, m.id, key, error);
      session_->exec_prepared(
          "DELETE FROM crossfade.leftover WHERE pass_id = $1::bigint AND key = $2::text[]",
          {std::to_string(sweep_.pass_.id), key});
      check_rejects();
    }
    step = Step::advanced;
  }
  return step;
}

// For observers only: what they see of it counts for nothing.
void SweepWorker::beat() {
  const auto now = Clock::now();
  if (!unit_ || now - last_beat_ < kBeat) return;
  const auto seconds = std::chrono::duration<double>(now - last_beat_).count();
  const bool first = last_beat_ == Clock::time_point{};
  const double rate = first ? 0 : static_cast<double>(rows_since_beat_) / seconds;
  rows_since_beat_ = 0;
  last_beat_ = now;
  const std::scoped_lock lock(sweep_.cache_mutex_);
  sweep_.cache_.put_heartbeat(sweep_.migration_.row.id, std::to_string(session_->backend_pid()),
                              sweep_.token_, {rate, unit_->number, unit_->since});
}

void SweepWorker::wait(milliseconds time, Clock::time_point deadline) {
  const auto until = std::min(Clock::now() + time, deadline);
  while (Clock::now() < until && !stop_->load() && !halt_->load()) {
    std::this_thread::sleep_for(std::min<Clock::duration>(until - Clock::now(), milliseconds(20)));
  }
}

// A partition may be renamed, detached or dropped at any time. The runner sees it within two seconds and
// takes the units off; until then they are left alone.
bool SweepWorker::leaf_has_gone(const Error& error) {
  if (!unit_ || unit_->relation == sweep_.migration_.row.table_oid) return false;
  const auto& state = error.sqlstate();
  if (error.code() != ErrorCode::table_changed && state != "42P01" && state != "42703") return false;
  const auto known = texts_.find(unit_->relation.value);
  const auto now = relation_name(*session_, unit_->relation);
  const auto tree = tree_of(*session_, sweep_.migration_.row.table_oid);
  const bool same = now && known != texts_.end() && known->second.table == *now &&
                    std::ranges::find(tree, unit_->relation) != tree.end();
  if (same) return false;
  texts_.erase(unit_->relation.value);
  unit_.reset();
  return true;
}

SweepState SweepWorker::run(const Tuning& tuning, Clock::time_point deadline, const std::atomic<bool>& stop,
                            const std::atomic<bool>& halt) {
  stop_ = &stop;
  halt_ = &halt;
  max_rejects_ = tuning.max_rejects;
  interleave_ = tuning.interleave;
  chunk_target_ = tuning.chunk_target;
  bool looked_for_others = false;
  while (!stop && !halt && Clock::now() < deadline) {
    try {
      // A debt of the slice before is paid first; a raised limit forgives it within one slice.
      if (sweep_.pace_.limit() > 0 && Clock::now() < not_before_) {
        beat();
        wait(std::chrono::ceil<milliseconds>(not_before_ - Clock::now()), deadline);
        continue;
      }
      if (!session_) open_session();
      if (!unit_ && !claim()) {
        ask_for_part();
        // What a backfill set aside is left to the catch_up that follows it.
        const auto step = sweep_.pass_.kind == "backfill" ? Step::nothing_left : drain_leftovers();
        if (step == Step::held) return SweepState::held;
        // A sibling may hold the last units; it will finish them or its lease ends.
        if (step == Step::nothing_left) return SweepState::at_bounds;
        if (step == Step::try_again) wait(milliseconds(100), deadline);
        continue;
      }
      // Once in a slice: whoever asks waits longer than that for its unit anyway.
      if (!looked_for_others) {
        looked_for_others = true;
        give_part_away();
      }
      beat();
      rows_of_chunk_ = 0;
      const auto step = this->step();
      if (step == Step::held) return SweepState::held;
      if (step == Step::rewritten) return SweepState::rewritten;
      if (step == Step::unit_lost) unit_.reset();
      if (step == Step::try_again) {
        wait(milliseconds(std::min(10 * transient_in_a_row_ * (number_ + 1), 200)), deadline);
      } else {
        not_before_ = Clock::now() + sweep_.pace_.book(rows_of_chunk_);
        wait(std::chrono::ceil<milliseconds>(not_before_ - Clock::now()), deadline);
      }
    } catch (const Error& error) {
      if (leaf_has_gone(error)) {
        wait(milliseconds(100), deadline);
        continue;
      }
      if (!is_of_connection(error) || ++reconnects_ > kMostReconnects) throw;
      // The unit's row tells whether the lost chunk was committed; the next claim reads it.
      session_.reset();
      unit_.reset();
      log::write(log::Level::warn, "worker_reconnects", {{"worker", std::to_string(number_)}});
      wait(milliseconds(100 * reconnects_), deadline);
    }
  }
  return stop ? SweepState::stopped : SweepState::working;
}

}  // namespace crossfade
