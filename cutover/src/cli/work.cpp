// work: one more worker process.
#include <fmt/format.h>

#include "events.hpp"
#include "verbs.hpp"

namespace crossfade::cli {

int run_work(const Command& command, const WorkArguments& arguments) {
  const MigrationRef ref = reference(command, arguments.name);
  Events events(command.output, Events::Stream::events);
  Door migrator(command, Door::Redis::used, &events);
  WorkReport report;
  try {
    report = migrator->work(ref, {.threads = arguments.workers});
  } catch (...) {
    events.end();
    throw;
  }
  events.end();
  if (command.output.json()) {
    command.output.object({{"event", "result"},
                           {"migration", report.name},
                           {"phase", to_text(report.phase)},
                           {"status", to_text(report.status)},
                           {"ended", report.ended},
                           {"rows_read", report.rows_read},
                           {"rows_written", report.rows_written}});
    return 0;
  }
  command.output.print(fmt::format("{}: {}; {} rows read and {} written here.\n",
                                   command.output.style().bold(report.name), report.ended,
                                   grouped(report.rows_read), grouped(report.rows_written)));
  return 0;
}

}  // namespace crossfade::cli
