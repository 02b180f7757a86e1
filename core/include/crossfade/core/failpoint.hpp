// Named stopping points, in every build:
// CROSSFADE_FAILPOINTS="name=abort[@n];name=error:SQLSTATE[@n];name=sleep:500;name=wait:FILE".
// With @n only the n-th hit counts; a name may be given several times.
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace crossfade::failpoint {

// Reads the environment variable once, at start-up. An unknown name or action throws failpoint_syntax with
// the list.
void configure_from_environment();
// Replaces what was configured; empty text configures nothing.
void configure(std::string_view text);

// Passes through unless configured. abort: raise(SIGKILL), as kill -9 would. error: throws the Error that the
// door would make of that SQLSTATE. sleep: milliseconds. wait: until FILE exists (FILE.reached is created on
// arrival). Requires: name is registered in all(); aborts otherwise, as soon as anything is configured (in
// debug builds always). Costs one relaxed atomic load when nothing is configured (release builds).
void hit(std::string_view name);

// Every name, sorted; `crossfade --list-failpoints` prints it.
const std::vector<std::string>& all();

}  // namespace crossfade::failpoint
