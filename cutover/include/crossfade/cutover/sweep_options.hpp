// What Migrator::work and Migrator::redrive are asked for, and answer.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "crossfade/core/phase.hpp"

namespace crossfade {

struct WorkOptions {
  int threads = 0;  // that sweep at the same time; 0: as many as tuning.workers says
};

struct WorkReport {
  std::string name;
  Phase phase = Phase::planned;
  Status status = Status::running;
  std::string ended;                             // why there is nothing to sweep any more
  std::int64_t rows_read = 0, rows_written = 0;  // by this process
};

// What to sweep again: one unit by its number, all, or the keys from `from` to `to`, both included, each in
// its text form ("{1,abc}" for a key of several columns); an absent one leaves that end open.
struct RedriveOptions {
  std::optional<int> unit;
  bool all = false;
  std::optional<std::string> from, to;
};

struct RedriveReport {
  std::string name;
  Phase phase = Phase::planned;
  Status status = Status::running;
  std::int64_t units = 0, rows_read = 0, rows_written = 0;
};

}  // namespace crossfade
