#include "crossfade/shadow/pace_governor.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <condition_variable>
#include <deque>
#include <mutex>
#include <thread>

#include "crossfade/core/error.hpp"
#include "crossfade/core/log.hpp"
#include "crossfade/core/state_store.hpp"
#include "crossfade/shadow/key_sql.hpp"
#include "latency.hpp"
#include "recorder.hpp"
#include "signals.hpp"

namespace crossfade {

using std::chrono::milliseconds;
using Clock = std::chrono::steady_clock;

namespace {

// The tuning is read four times a second, so that a new limit is in force within one: with the slice of the
// sweep that is under way.
constexpr milliseconds kLooks{250}, kAsks{1000};
constexpr milliseconds kSignalTimeout{2000};
constexpr std::chrono::seconds kRateOver{3};

// Units of the passes at work, whichever process sweeps them; a catch_up counts in its own row. In a window
// rows are written before the last visit has read them.
constexpr const char* kWork =
    "SELECT coalesce((SELECT sum(greatest(u.rows_read, u.rows_written)) FROM crossfade.unit u"
    " WHERE u.pass_id = p.id), 0)::bigint"
    " + p.rows_read, CASE WHEN c.reltuples > 0 THEN c.reltuples::bigint END, p.id"
    " FROM crossfade.pass p LEFT JOIN pg_class c ON c.oid = $2::oid"
    " WHERE p.migration_id = $1::uuid AND p.state = 'running' AND p.kind IN ('backfill',"
    " 'catch_up', 'replay', 'redrive') ORDER BY p.id DESC LIMIT 1";

// Ranges that are stored.
constexpr const char* kReadingWork =
    "SELECT coalesce((SELECT sum(r.rows_read) FROM crossfade.comparison r WHERE r.pass_id = p.id), "
    "0)::bigint,"
    " CASE WHEN c.reltuples > 0 THEN c.reltuples::bigint END, p.id"
    " FROM crossfade.pass p LEFT JOIN pg_class c ON c.oid = $2::oid"
    " WHERE p.migration_id = $1::uuid AND p.state = 'running' AND p.kind IN ('profile', 'compare')"
    " ORDER BY p.id DESC LIMIT 1";

// The row that was written last, found as the application finds it.
std::string canary_sql(const Migration& migration, const QualifiedName& table) {
  if (migration.binding.key.columns.empty()) return fmt::format("SELECT 1 FROM {} LIMIT 1", table.sql());
  return greatest_key_sql(table, migration.binding.key);
}

}  // namespace

std::string_view needs_statistics(const Tuning& tuning) {
  if (tuning.max_replication_lag) return "max_replication_lag";
  if (tuning.max_replication_bytes > 0) return "max_replication_bytes";
  return tuning.max_xmin_age > 0 ? "max_xmin_age" : "";
}

class PaceGovernor::Impl {
 public:
  explicit Impl(Setup setup) : setup_(std::move(setup)) {
    watch();
    thread_ = std::thread([this] { loop(); });
  }
  ~Impl() {
    {
      const std::scoped_lock lock(mutex_);
      ending_ = true;
    }
    changed_.notify_all();
    thread_.join();
  }

  PaceOrder order() {
    std::unique_lock lock(mutex_);
    changed_.wait_for(lock, kSignalTimeout, [this] { return decided_at_.has_value() || ending_; });
    const auto since = decided_at_.value_or(began_);
    if (decided_at_ && Clock::now() - since <= kOrderLives) return order_;
    PaceOrder unheard;
    unheard.state = PaceState::paused;
    unheard.signal = "controller";
    unheard.reason =
        fmt::format("the signals of the pace were not read for {} s",
                    std::chrono::duration_cast<std::chrono::seconds>(Clock::now() - since).count());
    return unheard;
  }

 private:
  void watch();
  void loop();
  void look();
  pace::Readings read_signals(pace::Time now);
  pace::Moment moment(pace::Time now);
  void decide(const pace::Moment& moment, const pace::Readings& readings);

  Setup setup_;
  std::optional<SqlSession> session_;
  std::optional<pace::Recorder> recorder_;
  std::vector<std::unique_ptr<pace::Signal>> signals_;
  pace::Controller controller_;
  std::optional<Tuning> tuning_;
  Clock::time_point asked_{};
  std::deque<std::pair<std::int64_t, Clock::time_point>> rows_;
  std::int64_t pass_ = 0;

  std::mutex mutex_;
  std::condition_variable changed_;
  bool ending_ = false;
  const Clock::time_point began_ = Clock::now();
  std::optional<Clock::time_point> decided_at_;
  PaceOrder order_;
  std::thread thread_;
};

void PaceGovernor::Impl::watch() {
  const auto& m = setup_.migration;
  // Down to which work a signal counts: each looks at less than the one before.
  const auto down_to = [&](PacedWork work, std::unique_ptr<pace::Signal> signal) {
    if (setup_.work <= work) signals_.push_back(std::move(signal));
  };
  down_to(PacedWork::reading_on_standby, std::make_unique<pace::ReplicationLag>());
  down_to(PacedWork::sweep, std::make_unique<pace::SlotWal>());
  down_to(PacedWork::sweep, std::make_unique<pace::ArchiveBacklog>());
  down_to(PacedWork::sweep, std::make_unique<pace::FreeDisk>());
  down_to(PacedWork::reading, std::make_unique<pace::TableVacuum>(m.row.table_oid));
  down_to(PacedWork::sweep, std::make_unique<pace::DeadTuples>(m.row.table_oid));
  down_to(PacedWork::reading, std::make_unique<pace::OldestXmin>());
  down_to(PacedWork::sweep, std::make_unique<pace::LockWaiters>(m.row.id));
  down_to(PacedWork::reading, std::make_unique<pace::WalRate>());
  down_to(PacedWork::reading,
          std::make_unique<pace::ProbeLatency>(setup_.connect, canary_sql(m, setup_.table)));
}

pace::Readings PaceGovernor::Impl::read_signals(pace::Time now) {
  pace::Readings all;
  for (const auto& signal : signals_) {
    try {
      for (auto& reading : signal->read(*session_, *tuning_, now)) all.push_back(std::move(reading));
    } catch (const Error& error) {
      if (!session_->is_open()) throw;
      auto why = fmt::format("{} cannot be read: {}", signal->name(), error.message());
      if (!error.hint().empty()) why += " (" + error.hint() + ")";
      all.push_back({signal->name(), pace::Response::waits, std::nullopt, std::move(why), ""});
    }
  }
  return all;
}

pace::Moment PaceGovernor::Impl::moment(pace::Time now) {
  // rows_per_second is about rows that are written.
  const bool sweeps = setup_.work == PacedWork::sweep;
  pace::Moment moment{now, 0, sweeps ? tuning_->rows_per_second : 0, std::nullopt};
  const auto& row = setup_.migration.row;
  const auto work = session_->exec_prepared(sweeps ? kWork : kReadingWork,
                                            {row.id.text, std::to_string(row.table_oid.value)});
  if (work.empty()) return moment;
  const auto done = int_of(work[0][0]);
  if (const auto pass = int_of(work[0][2]); pass != pass_) {
    pass_ = pass;
    rows_.clear();
  }
  rows_.emplace_back(done, now);
  while (rows_.size() > 2 && now - rows_[1].second >= kRateOver) rows_.pop_front();
  const double seconds = std::chrono::duration<double>(now - rows_.front().second).count();
  if (seconds >= 1)
    moment.rows_per_second = std::max(0.0, static_cast<double>(done - rows_.front().first) / seconds);
  if (work[0][1]) moment.rows_left = std::max<std::int64_t>(int_of(work[0][1]) - done, 0);
  return moment;
}

void PaceGovernor::Impl::decide(const pace::Moment& moment, const pace::Readings& readings) {
  const auto order = controller_.decide(moment, readings);
  if (controller_.lowered()) {
    for (const auto& signal : signals_) signal->rate_lowered();
  }
  bool news = false;
  {
    const std::scoped_lock lock(mutex_);
    news = !decided_at_ || order.state != order_.state ||
           order.limit_rows_per_second != order_.limit_rows_per_second;
    order_ = order;
    decided_at_ = Clock::now();
  }
  changed_.notify_all();
  // For other processes. Obeyed here already: what is written late protects as well.
  recorder_->write(*session_, order, readings);
  if (news) setup_.cache->publish_control(recorder_->leader(), "pace");
}

void PaceGovernor::Impl::look() {
  if (!session_) {
    session_.emplace(setup_.connect("pace"));
    session_->set_statement_timeout(kSignalTimeout);
    session_->set_lock_timeout(kSignalTimeout / 2);
    // A commit that waits for a standby would keep us from seeing that the standby is gone.
    session_->exec("SET synchronous_commit = off");
    recorder_.emplace(setup_.migration.row.leader.value_or(setup_.migration.row.id), setup_.token);
    recorder_->begin(*session_);
  }
  const auto& m = setup_.migration;
  auto tuning = StateStore(*session_).tuning(m.row.id, m.spec.tuning);
  const auto now = Clock::now();
  if (tuning_ == tuning && now - asked_ < kAsks) return;
  tuning_ = std::move(tuning);
  asked_ = now;
  decide(moment(now), read_signals(now));
}

void PaceGovernor::Impl::loop() {
  std::unique_lock lock(mutex_);
  while (!ending_) {
    lock.unlock();
    try {
      look();
    } catch (const std::exception& failure) {
      // Nothing is decided: after kOrderLives the sweep waits.
      log::write(log::Level::warn, "pace_not_read", {{"why", failure.what()}});
      if (session_ && !session_->is_open()) session_.reset();
    }
    lock.lock();
    changed_.wait_for(lock, kLooks, [this] { return ending_; });
  }
  lock.unlock();
  try {
    if (session_ && recorder_) recorder_->end(*session_);
  } catch (const std::exception& failure) {
    log::write(log::Level::info, "pace_not_ended", {{"why", failure.what()}});
  }
}

PaceGovernor::PaceGovernor(Setup setup) : impl_(std::make_unique<Impl>(std::move(setup))) {}
PaceGovernor::~PaceGovernor() = default;
PaceOrder PaceGovernor::order() { return impl_->order(); }

}  // namespace crossfade
