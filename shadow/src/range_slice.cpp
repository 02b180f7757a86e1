#include "range_slice.hpp"

#include <algorithm>

#include "crossfade/core/error.hpp"
#include "crossfade/core/failpoint.hpp"
#include "crossfade/shadow/key_sql.hpp"
#include "crossfade/shadow/pace.hpp"
#include "reader_settings.hpp"

namespace crossfade {

namespace {

using std::chrono::milliseconds;

constexpr auto kFlushInterval = milliseconds(2000);
// A connection and a thread cost about a tenth of that.
constexpr auto kWorthAHire = milliseconds(50);
constexpr auto kLooks = milliseconds(20);

void pass_point(std::string_view failpoint) {
  if (!failpoint.empty()) failpoint::hit(failpoint);
}

}  // namespace

RangeSlice::~RangeSlice() { end_helpers(); }

void RangeSlice::end_helpers() {
  {
    const std::scoped_lock lock(mutex_);
    halt_ = true;
  }
  changed_.notify_all();
  for (auto& thread : threads_) thread.join();
  threads_.clear();
}

// Where the caller's own ranges are read; null when we were stopped before the standby could be trusted.
SqlSession* RangeSlice::own_reader() {
  auto* replica = setup_.crew.replica;
  if (replica == nullptr) return &setup_.session;
  auto& reader = replica->session(setup_.session, setup_.stop);
  set_reader_settings(reader);
  if (replica->is_proved(walk_.pass())) return &reader;
  return replica->prove(setup_.session, walk_.pass(), setup_.stop) ? &reader : nullptr;
}

RangeSlice::End RangeSlice::run() {
  auto* reader = own_reader();
  if (reader == nullptr) return End::more;
  flushed_at_ = Clock::now();
  bool read_one = false;
  while (!setup_.stop && !unproved_ && !failed()) {
    if (read_one && Clock::now() >= setup_.deadline) break;
    if (!wait_until_paid(walk_.paid_)) break;
    hire();
    const auto step = one_range(*reader, *walk_.own_reader_, walk_.paid_);
    // The end of the slice does not stop the halving, or a reader that is made anew for each slice never gets
    // on.
    read_one = read_one || step == Step::read;
    take_over();
    if (step != Step::nothing) continue;
    std::unique_lock lock(mutex_);
    if (in_hand_ == 0 && done_.empty()) break;
    changed_.wait(lock, [this] { return !done_.empty() || in_hand_ == 0 || failure_; });
  }
  end_helpers();
  if (failure_) std::rethrow_exception(failure_);
  if (!unproved_) take_over();
  if (unproved_ || !flush()) return End::unproved;
  return walk_.board_.empty() ? End::all_stored : End::more;
}

bool RangeSlice::failed() {
  const std::scoped_lock lock(mutex_);
  return failure_ != nullptr;
}

// False when there is nothing more to do before the end of the slice.
bool RangeSlice::wait_until_paid(Clock::time_point paid) {
  for (auto now = Clock::now(); now < paid; now = Clock::now()) {
    if (setup_.stop || now >= setup_.deadline) return false;
    std::unique_lock lock(mutex_);
    if (halt_) return false;
    changed_.wait_for(lock, std::min<Clock::duration>(paid - now, kLooks));
  }
  return true;
}

// --- what every worker does
// -----------------------------------------------------------------------------------

// The rest of the pass is so little that one statement reads it, in which the server lets as many processes
// share as there are workers: one snapshot, and the pages one after the other. Requires the mutex.
bool RangeSlice::is_shared() const {
  if (setup_.crew.workers == 1 || !walk_.own_reader_->may_share()) return false;
  if (in_hand_ > 0 || !walk_.board_.is_one_stretch()) return false;
  if (setup_.crew.pace != nullptr && setup_.crew.pace->limit() > 0) return false;
  const auto left = walk_.board_.rows_left();
  return left && walk_.tempo_.fits_one_range(*left, setup_.crew.workers);
}

std::optional<Piece> RangeSlice::take(SqlSession& session) {
  std::unique_lock lock(mutex_);
  changed_.wait(lock, [this] { return !hold_ || halt_; });
  if (halt_) return std::nullopt;
  const auto& m = walk_.setup_.migration;
  const auto left = walk_.board_.rows_left();
  const bool shared = is_shared();
  auto rows = shared ? std::max(static_cast<std::int64_t>(*left), RangeBoard::kCounted)
                     : walk_.tempo_.rows(setup_.crew.workers, left, setup_.deadline - Clock::now());
  if (setup_.crew.pace != nullptr) {
    if (const auto cap = setup_.crew.pace->chunk_cap(); cap > 0) rows = std::min(rows, cap);
  }
  auto piece = walk_.board_.take(rows, [&](const KeyRange& range, std::int64_t n) {
    return nth_key(session, walk_.setup_.table, m.binding.key, range, n);
  });
  if (!piece) return piece;
  ++in_hand_;
  if (shared) piece->processes = setup_.crew.workers;
  return piece;
}

// True when a range of one row was given back too often.
bool RangeSlice::give_back(const std::optional<Piece>& piece, bool too_dense) {
  const std::scoped_lock lock(mutex_);
  const double rows = piece ? piece->rows : 0;
  if (piece) {
    walk_.board_.give_back(*piece);
    --in_hand_;
  }
  changed_.notify_all();
  if (!too_dense) return walk_.tempo_.undone(rows);
  walk_.tempo_.halve(rows);
  return false;
}

void RangeSlice::hand_over(const Piece& piece, RangeRead read, Clock::duration taken) {
  std::unique_lock lock(mutex_);
  walk_.tempo_.read(read.rows, piece.rows, read.density, taken);
  const bool wait = !read.suspects.empty() && std::this_thread::get_id() != caller_;
  done_.push_back({piece.range, std::move(read)});
  const auto mine = ++handed_over_;
  --in_hand_;
  changed_.notify_all();
  // A difference is committed before its reader goes on.
  if (wait) changed_.wait(lock, [&] { return settled_ >= mine || halt_; });
}

RangeSlice::Step RangeSlice::one_range(SqlSession& session, RangeReader& reader, Clock::time_point& paid) {
  std::optional<Piece> piece;
  try {
    piece = take(session);
    if (!piece) return Step::nothing;
    const auto began = Clock::now();
    auto read = reader.read(session, *piece);
    if (read.density == Density::too_dense) {
      give_back(piece, true);
      return Step::undone;
    }
    const auto rows = read.rows;
    hand_over(*piece, std::move(read), Clock::now() - began);
    if (setup_.crew.pace != nullptr) paid = Clock::now() + setup_.crew.pace->book(rows);
    return Step::read;
  } catch (const Error& error) {
    if (give_back(piece, false) || !error.is_transient()) throw;
    return Step::undone;
  }
}

// --- helpers
// --------------------------------------------------------------------------------------------------

bool RangeSlice::worth_a_hire() {
  const std::scoped_lock lock(mutex_);
  if (walk_.board_.empty() || is_shared()) return false;
  const auto left = walk_.board_.rows_left();
  const auto duration = walk_.tempo_.duration_of(left.value_or(1));
  return duration && (!left || *duration >= kWorthAHire);
}

// All of them, once in a slice: as soon as a range was read, which says how long the rest will take.
void RangeSlice::hire() {
  const auto wanted = static_cast<std::size_t>(std::max(setup_.crew.workers - 1, 0));
  walk_.helpers_.resize(std::min(walk_.helpers_.size(), wanted));
  if (hired_ || wanted == 0 || !worth_a_hire()) return;
  hired_ = true;
  walk_.helpers_.resize(wanted);
  for (auto& helper : walk_.helpers_) {
    if (!helper.reader) helper.reader = walk_.setup_.reader_of_ranges();
  }
  if (auto* replica = setup_.crew.replica; replica != nullptr) {
    for (std::size_t i = 0; i < wanted; ++i)
      set_reader_settings(replica->session(setup_.session, setup_.stop, i + 1));
    if (!replica->is_proved(walk_.pass()) && !replica->prove(setup_.session, walk_.pass(), setup_.stop))
      return;
  }
  for (std::size_t i = 0; i < wanted; ++i) threads_.emplace_back([this, i] { help(i); });
}

void RangeSlice::help(std::size_t number) {
  auto& helper = walk_.helpers_[number];
  try {
    SqlSession* session = nullptr;
    if (setup_.crew.replica != nullptr) {
      session = &setup_.crew.replica->open_session(number + 1);
    } else {
      if (!helper.session) {
        helper.session.emplace(setup_.crew.connect("reader-" + std::to_string(number + 2)));
        set_reader_settings(*helper.session);
      }
      session = &*helper.session;
    }
    while (!setup_.stop && Clock::now() < setup_.deadline && wait_until_paid(helper.paid)) {
      if (one_range(*session, *helper.reader, helper.paid) == Step::nothing) break;
    }
  } catch (...) {
    const std::scoped_lock lock(mutex_);
    if (helper.session && !helper.session->is_open()) helper.session.reset();
    if (!failure_) failure_ = std::current_exception();
    halt_ = true;
  }
  changed_.notify_all();
}

// --- what only the caller's thread does
// -----------------------------------------------------------------------

void RangeSlice::take_over() {
  while (!unproved_) {
    Done done;
    {
      const std::scoped_lock lock(mutex_);
      if (done_.empty()) return;
      done = std::move(done_.front());
      done_.pop_front();
    }
    if (!done.read.suspects.empty()) walk_.setup_.confirm(setup_.session, done.read);
    keep(done);
    if (setup_.progress) setup_.progress(done.read.rows);
    pass_point(walk_.setup_.range_failpoint);
    const bool due = setup_.crew.replica == nullptr && Clock::now() - flushed_at_ >= kFlushInterval;
    if ((due || !found_.empty()) && !flush()) unproved_ = true;
    {
      const std::scoped_lock lock(mutex_);
      ++settled_;
    }
    changed_.notify_all();
  }
}

void RangeSlice::keep(const Done& done) {
  auto& position = walk_.position_;
  const auto& read = done.read;
  pending_.push_back(
      {position.next_number, done.range, read.rows, read.differences, read.excepted, read.result});
  found_.insert(found_.end(), read.found.begin(), read.found.end());
  ++position.next_number;
  position.rows_read += read.rows;
  const auto& row = walk_.setup_.migration.row;
  std::unique_lock<std::mutex> lock;
  if (setup_.crew.cache_mutex != nullptr) lock = std::unique_lock(*setup_.crew.cache_mutex);
  // An empty position says that the end was reached.
  setup_.cache.put_cursor(
      row.id, std::to_string(walk_.pass()), 0,
      {row.token, done.range.high ? array_literal(*done.range.high) : "", position.rows_read});
}

// A proof looks at the sessions of all helpers, so they hold still for it.
bool RangeSlice::prove() {
  auto* replica = setup_.crew.replica;
  if (replica == nullptr) return true;
  {
    std::unique_lock lock(mutex_);
    hold_ = true;
    changed_.wait(lock, [this] { return in_hand_ == 0 || failure_; });
    if (failure_) return false;
  }
  const bool proved = replica->prove(setup_.session, walk_.pass(), setup_.stop);
  {
    const std::scoped_lock lock(mutex_);
    hold_ = false;
  }
  changed_.notify_all();
  return proved;
}

// False when we were stopped before the standby had proved what was read there: that is not stored.
bool RangeSlice::flush() {
  flushed_at_ = Clock::now();
  if (pending_.empty()) return true;
  if (!prove()) return false;
  auto& stored = walk_.position_.stored_differences;
  stored += store_ranges(setup_.session, walk_.pass(), walk_.setup_.reader, pending_, found_,
                         kStoredDifferences - stored);
  pending_.clear();
  found_.clear();
  flushed_at_ = Clock::now();
  pass_point(walk_.setup_.flushed_failpoint);
  return true;
}

}  // namespace crossfade
