// What a signal of the pace says at one moment.
#pragma once

#include <optional>
#include <string>
#include <string_view>

namespace crossfade::pace {

// What is done when a signal is over its limit.
enum class Response {
  slows,  // the rate is lowered
  waits,  // nothing is written until it is well below again
};

struct Reading {
  std::string_view signal;
  Response response = Response::waits;
  // Value over limit: above 1 the limit is broken, below kClear the sweep may speed up. nullopt: the signal
  // cannot be read, and the sweep waits.
  std::optional<double> pressure;
  std::string value;    // "replay lag 14 s"; of what cannot be read: why
  std::string limit;    // "10 s"; empty: "value" says it all
  char relation = '>';  // of a limit that is broken
};

// Between this and 1 nothing changes, so that a value near its limit does not make the rate swing.
inline constexpr double kClear = 0.8;
// For a signal that has too few samples yet to say either.
inline constexpr double kUndecided = 0.9;

std::string seconds_text(double seconds);
std::string milliseconds_text(double milliseconds);
std::string size_text(double bytes);

}  // namespace crossfade::pace
