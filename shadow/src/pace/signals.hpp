// The signals, one class each. read() asks the server, judge() says what the answer means: pure, with the
// time as an argument.
//
// All but the standbys and the oldest snapshot are open to every role. read() throws when it gets no answer;
// whoever asks makes a Reading without a pressure of that.
#pragma once

#include <cstdint>
#include <deque>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "controller.hpp"
#include "crossfade/core/ids.hpp"
#include "crossfade/core/sql_session.hpp"
#include "crossfade/core/tuning.hpp"
#include "reading.hpp"

namespace crossfade::pace {

using Readings = std::vector<Reading>;

class Signal {
 public:
  virtual ~Signal() = default;
  virtual std::string_view name() const = 0;
  // Empty when the tuning asks for nothing.
  virtual Readings read(SqlSession& session, const Tuning& tuning, Time now) = 0;
  // What was measured until now was measured at another rate.
  virtual void rate_lowered() {}
};

// How far a position is behind, in time: when the server's own was first seen past it. What the standby says
// of its lag stands still together with its replay.
class LagTracker {
 public:
  void wrote(std::int64_t lsn, Time now);
  double seconds_behind(std::int64_t lsn, Time now) const;

 private:
  std::deque<std::pair<std::int64_t, Time>> samples_;
};

class ReplicationLag : public Signal {
 public:
  struct Standby {
    std::string name;
    std::int64_t replayed = 0;  // lsn
    double reported_lag = 0;    // seconds, as it says itself
  };
  struct Facts {
    std::int64_t written = 0;  // lsn
    std::vector<Standby> standbys;
  };
  std::string_view name() const override { return "replication"; }
  Readings read(SqlSession& session, const Tuning& tuning, Time now) override;
  Readings judge(const Facts& facts, const Tuning& tuning, Time now);

 private:
  std::optional<Reading> missing(const Facts& facts, Time now);
  LagTracker tracker_;
  // How many of a name were seen at once, and when last. Forgotten when the limits change.
  std::map<std::string, std::pair<int, Time>> known_;
  std::string limits_;
};

class SlotWal : public Signal {
 public:
  struct Facts {
    std::string slot;  // that keeps most; empty: there is none
    std::int64_t kept = 0;
    std::int64_t keep_size = -1;  // max_slot_wal_keep_size in bytes; below zero: no limit
  };
  std::string_view name() const override { return "slot_wal"; }
  Readings read(SqlSession& session, const Tuning& tuning, Time now) override;
  static Readings judge(const Facts& facts, const Tuning& tuning);
};

class ArchiveBacklog : public Signal {
 public:
  struct Facts {
    bool archiving = false;
    std::int64_t written = 0;               // lsn
    std::optional<std::int64_t> archived;   // end of the last segment archived, where it can be known
    std::optional<std::int64_t> failed;     // begin of the segment that failed last
    std::optional<double> failing_seconds;  // since the last failure, when it is younger than the success
  };
  std::string_view name() const override { return "archiver"; }
  Readings read(SqlSession& session, const Tuning& tuning, Time now) override;
  Readings judge(const Facts& facts, const Tuning& tuning);

 private:
  std::optional<std::int64_t> from_;  // nothing is known of: what is written from here on counts
};

class LockWaiters : public Signal {
 public:
  // Of the passes of these migrations.
  explicit LockWaiters(MigrationId migration) : migration_(std::move(migration)) {}
  struct Facts {
    std::int64_t waiting = 0;
    double longest_seconds = 0;
  };
  std::string_view name() const override { return "lock_waiters"; }
  Readings read(SqlSession& session, const Tuning& tuning, Time now) override;
  static Readings judge(const Facts& facts, const Tuning& tuning);

 private:
  MigrationId migration_;
};

class WalRate : public Signal {
 public:
  std::string_view name() const override { return "wal_rate"; }
  Readings read(SqlSession& session, const Tuning& tuning, Time now) override;
  Readings judge(std::int64_t written, const Tuning& tuning, Time now);
  void rate_lowered() override { samples_.clear(); }

 private:
  std::deque<std::pair<std::int64_t, Time>> samples_;
};

class TableVacuum : public Signal {
 public:
  explicit TableVacuum(Oid table) : table_(table) {}
  struct Facts {
    int pid = 0;  // of the vacuum of the table; 0: none
    bool wraparound = false;
    std::string partition = {};  // the one that is vacuumed; empty: the table itself
  };
  std::string_view name() const override { return "vacuum"; }
  Readings read(SqlSession& session, const Tuning& tuning, Time now) override;
  static Readings judge(const Facts& facts, const Tuning& tuning);

 private:
  Oid table_;
};

class DeadTuples : public Signal {
 public:
  explicit DeadTuples(Oid table) : table_(table) {}
  std::string_view name() const override { return "dead_tuples"; }
  Readings read(SqlSession& session, const Tuning& tuning, Time now) override;
  static Readings judge(std::int64_t dead, const Tuning& tuning);

 private:
  Oid table_;
};

class OldestXmin : public Signal {
 public:
  struct Facts {
    std::int64_t age = 0;
    std::string holder;
  };
  std::string_view name() const override { return "oldest_xmin"; }
  Readings read(SqlSession& session, const Tuning& tuning, Time now) override;
  static Readings judge(const Facts& facts, const Tuning& tuning);
};

class FreeDisk : public Signal {
 public:
  std::string_view name() const override { return "free_disk"; }
  Readings read(SqlSession& session, const Tuning& tuning, Time now) override;
  static Readings judge(double free, const Tuning& tuning);
};

// Throws permission_denied with the GRANT, when the role may not read what others do.
void require_statistics(SqlSession& session, std::string_view key);

}  // namespace crossfade::pace
