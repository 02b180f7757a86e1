#include "progress_line.hpp"

#include <unistd.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cstdio>

#include <fmt/format.h>

#include "crossfade/core/log.hpp"

namespace crossfade::cli {

namespace {

using std::chrono::milliseconds;

constexpr milliseconds kRedraw{100};
constexpr milliseconds kPlainLine{10'000};
// The log writes its line after the hook has returned; until then nothing may be drawn in its place.
constexpr milliseconds kAfterLogLine{50};

std::atomic<ProgressLine*> active = nullptr;

// 12,345,678 as 12.3M: what changes ten times a second has to be short.
std::string compact(double number) {
  constexpr std::array<std::string_view, 4> kUnits{"", "k", "M", "G"};
  std::size_t unit = 0;
  while (number >= 10'000 && unit + 1 < kUnits.size()) {
    number /= 1000;
    ++unit;
  }
  if (unit == 0) return fmt::format("{:.0f}", number);
  return fmt::format("{:.{}f}{}", number, number < 100 ? 1 : 0, kUnits[unit]);
}

// What follows the bar: "41.2 %  1236k/3000k rows  51.2k/s  0:34 left  units 25/64".
std::string tail_of(const Progress& progress, const RateMeter& meter) {
  std::string text;
  const auto done = static_cast<double>(progress.rows_done);
  const auto total = static_cast<double>(progress.rows_estimated);
  if (progress.rows_done >= 0 && progress.rows_estimated > 0) {
    text =
        fmt::format("{:.1f} %  {}/{} rows", 100 * std::min(done / total, 1.0), compact(done), compact(total));
  } else if (progress.rows_done >= 0) {
    text = fmt::format("{} rows", compact(done));
  }
  if (const auto rate = meter.rows_per_second()) text += fmt::format("  {}/s", compact(*rate));
  if (const auto left = meter.seconds_left()) text += fmt::format("  {} left", clock_time(*left));
  if (!progress.note.empty()) text += fmt::format("{}{}", text.empty() ? "" : "  ", one_line(progress.note));
  return text;
}

}  // namespace

void RateMeter::add(const Progress& progress, Clock::time_point now) {
  total_ = progress.rows_estimated;
  if (rows_ < 0 || progress.phase != phase_ || progress.rows_done < rows_) {
    phase_ = progress.phase;
    rows_ = progress.rows_done;
    at_ = now;
    rate_.reset();
    return;
  }
  const double seconds = std::chrono::duration<double>(now - at_).count();
  constexpr double kShortest = 0.2;
  if (seconds < kShortest) return;
  const double current = static_cast<double>(progress.rows_done - rows_) / seconds;
  // The same half-life however often progress is reported.
  const double weight = seconds / (seconds + 5);
  rate_ = rate_ ? *rate_ + weight * (current - *rate_) : current;
  rows_ = progress.rows_done;
  at_ = now;
}

std::optional<double> RateMeter::seconds_left() const {
  if (!rate_ || *rate_ < 0.1 || total_ <= 0 || rows_ < 0) return std::nullopt;
  return static_cast<double>(std::max<std::int64_t>(total_ - rows_, 0)) / *rate_;
}

ProgressLine::ProgressLine() : in_place_(is_terminal(STDERR_FILENO)), style_(STDERR_FILENO) {
  // The first plain line comes after ten seconds: what is over sooner needs none.
  if (!in_place_) not_before_ = Clock::now() + kPlainLine;
  active.store(this);
  log::set_before_write_hook(&ProgressLine::before_log_line);
}

ProgressLine::~ProgressLine() {
  log::set_before_write_hook(nullptr);
  active.store(nullptr);
  clear();
}

void ProgressLine::before_log_line() {
  ProgressLine* const line = active.load();
  if (line == nullptr || !line->in_place_) return;
  const std::lock_guard lock(line->mutex_);
  line->erase();
  line->not_before_ = Clock::now() + kAfterLogLine;
}

void ProgressLine::clear() {
  const std::lock_guard lock(mutex_);
  erase();
}

void ProgressLine::erase() {
  if (!drawn_) return;
  std::fputs("\r\033[2K", stderr);
  std::fflush(stderr);
  drawn_ = false;
}

void ProgressLine::update(const Progress& progress, const RateMeter& meter) {
  const std::lock_guard lock(mutex_);
  const auto now = Clock::now();
  if (now < not_before_) return;
  not_before_ = now + (in_place_ ? kRedraw : kPlainLine);
  const std::string label(to_text(progress.phase));
  const std::string tail = tail_of(progress, meter);
  if (!in_place_) {
    std::fputs(fmt::format("{} {}: {}\n", progress.migration, label, tail).c_str(), stderr);
    std::fflush(stderr);
    return;
  }
  double share = -1;
  if (progress.rows_done >= 0 && progress.rows_estimated > 0) {
    share =
        std::min(1.0, static_cast<double>(progress.rows_done) / static_cast<double>(progress.rows_estimated));
  }
  draw(label, tail, share);
}

// share: of the bar that is full; negative for no bar.
void ProgressLine::draw(const std::string& label, const std::string& tail, double share) {
  constexpr std::size_t kUnknownWidth = 80, kShortestBar = 8, kLongestBar = 40;
  std::size_t width = terminal_columns(STDERR_FILENO);
  if (width == 0) width = kUnknownWidth;
  std::string bar;
  const std::size_t used = display_width(label) + display_width(tail) + 6;
  if (share >= 0 && used + kShortestBar <= width) {
    const std::size_t length = std::min(width - used, kLongestBar);
    const auto full = static_cast<std::size_t>(share * static_cast<double>(length));
    bar = fmt::format("[{}{}] ", std::string(full, '#'), std::string(length - full, '-'));
  }
  // The last column stays free: some terminals wrap as soon as it is written.
  const std::string line = one_line(fmt::format("{} {}{}", label, bar, tail), width - 1);
  std::fputs(fmt::format("\r\033[2K{}", style_.cyan(line)).c_str(), stderr);
  std::fflush(stderr);
  drawn_ = true;
}

}  // namespace crossfade::cli
