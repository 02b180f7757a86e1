// What a long command tells while it works: sentences and a progress line for people, NDJSON events for
// machines.
#pragma once

#include <memory>
#include <string>

#include "crossfade/cutover/migrator.hpp"
#include "output.hpp"
#include "progress_line.hpp"

namespace crossfade::cli {

class Events : public ProgressListener {
 public:
  // answer: the command prints one object with --json, so that events have no place on stdout.
  enum class Stream { events, answer };
  Events(const Output& output, Stream stream);

  void on_progress(const Progress& progress) override;
  void on_phase(const std::string& migration, Phase from, Phase to) override;
  void on_settled(const std::string& migration, Phase phase) override;
  void on_notice(const std::string& sentence) override;

  // The dry run has ended within this command.
  bool saw_dry_run() const { return saw_dry_run_; }
  // Takes the progress line away; call it before printing the answer.
  void end() { line_.reset(); }

 private:
  bool tells_events() const { return output_.json() && stream_ == Stream::events; }
  void tell(const std::string& text);

  const Output& output_;
  const Stream stream_;
  std::unique_ptr<ProgressLine> line_;  // absent with --json and -q
  RateMeter meter_;
  RateMeter::Clock::time_point next_event_;
  bool saw_dry_run_ = false;
};

}  // namespace crossfade::cli
