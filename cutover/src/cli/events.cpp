#include "events.hpp"

#include <chrono>
#include <optional>

#include <fmt/format.h>

namespace crossfade::cli {

namespace {

constexpr std::chrono::seconds kBetweenEvents{1};

Json number_or_null(const std::optional<double>& number) { return number ? Json(*number) : Json(); }

}  // namespace

Events::Events(const Output& output, Stream stream) : output_(output), stream_(stream) {
  if (!output.json() && !output.quiet()) line_ = std::make_unique<ProgressLine>();
}

void Events::on_progress(const Progress& progress) {
  const auto now = RateMeter::Clock::now();
  meter_.add(progress, now);
  if (line_) line_->update(progress, meter_);
  if (!tells_events() || now < next_event_) return;
  next_event_ = now + kBetweenEvents;
  output_.object({{"event", "progress"},
                  {"migration", progress.migration},
                  {"phase", to_text(progress.phase)},
                  {"rows_done", progress.rows_done < 0 ? Json() : Json(progress.rows_done)},
                  {"rows_estimated", progress.rows_done < 0 ? Json() : Json(progress.rows_estimated)},
                  {"rate_rows_per_second", number_or_null(meter_.rows_per_second())},
                  {"eta_seconds", number_or_null(meter_.seconds_left())},
                  {"note", text_or_null(progress.note)}});
}

void Events::on_phase(const std::string& migration, Phase from, Phase to) {
  if (tells_events()) {
    output_.object(
        {{"event", "phase"}, {"migration", migration}, {"from", to_text(from)}, {"to", to_text(to)}});
    return;
  }
  tell(fmt::format("{}: {} -> {}", migration, to_text(from), to_text(to)));
}

void Events::on_settled(const std::string& migration, Phase phase) {
  if (phase == Phase::dry_run) saw_dry_run_ = true;
  if (tells_events()) {
    output_.object({{"event", "settled"}, {"migration", migration}, {"phase", to_text(phase)}});
    return;
  }
  tell(fmt::format("{}: {} settled", migration, to_text(phase)));
}

void Events::on_notice(const std::string& sentence) {
  if (tells_events()) {
    output_.object({{"event", "notice"}, {"message", sentence}});
    return;
  }
  if (line_) line_->clear();
  output_.notice(sentence);
}

void Events::tell(const std::string& text) {
  if (output_.json() || output_.quiet()) return;
  if (line_) line_->clear();
  output_.print(text + "\n");
}

}  // namespace crossfade::cli
