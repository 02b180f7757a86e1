#include "lease_keeper.hpp"

#include "crossfade/core/error.hpp"
#include "crossfade/core/log.hpp"

namespace crossfade {

using std::chrono::milliseconds;

LeaseKeeper::LeaseKeeper(Connect connect, const std::string& redis, const MigrationId& id,
                         const std::string& operator_name, const std::string& host, milliseconds patience,
                         Contention contention, std::atomic<bool>& stop, std::function<void()> each_second,
                         Held held)
    : connect_(std::move(connect)),
      session_(connect_("lease")),
      lease_(RunnerLease::acquire(session_, id, operator_name, host, patience, contention)),
      listener_(redis, id),
      stop_(stop),
      each_second_(std::move(each_second)),
      held_(std::move(held)) {
  session_.set_lock_timeout(milliseconds(2000));
  thread_ = std::thread([this] { loop(); });
}

LeaseKeeper::~LeaseKeeper() {
  ending_ = true;
  listener_.wake();
  thread_.join();
  lease_.release(session_);
}

void LeaseKeeper::look() {
  try {
    lease_.renew(session_);
    const auto row = session_
                         .exec("SELECT stop_requested, phase, epoch FROM crossfade.migration WHERE id = $1",
                               {lease_.migration().text})
                         .one("migration");
    if (bool_of(row[0])) {
      asked_to_end_ = true;
      stop_ = true;
    }
    if (const auto phase = phase_from_text(text_of(row[1]))) held_(*phase, Epoch{int_of(row[2])});
  } catch (const Error& error) {
    if (error.code() == ErrorCode::connection_lost) {
      // Nobody else may have noticed yet: the same token on a new backend, unless it was taken over.
      session_ = connect_("lease");
      session_.set_lock_timeout(milliseconds(2000));
      lease_.rebind(session_);
      return;
    }
    // A phase change holds the row for a moment; the lease outlives several of these.
    if (!error.is_transient()) throw;
  }
}

void LeaseKeeper::loop() {
  while (!ending_) {
    listener_.wait(milliseconds(1000));
    if (ending_) return;
    try {
      each_second_();
      look();
    } catch (const std::exception& exception) {
      log::write(log::Level::warn, "lease_lost", {{"why", exception.what()}});
      const std::scoped_lock lock(mutex_);
      failure_ = std::current_exception();
      stop_ = true;
      return;
    }
  }
}

void LeaseKeeper::check() {
  const std::scoped_lock lock(mutex_);
  if (failure_) std::rethrow_exception(failure_);
  if (asked_to_end_) {
    throw Error(ErrorCode::superseded, "another command asked this run to end", "see 'crossfade status'");
  }
}

}  // namespace crossfade
