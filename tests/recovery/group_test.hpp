// What the tests of groups share: foreign keys that follow, and an application that writes all of their
// tables.
#pragma once

#include <fmt/format.h>

#include <csignal>
#include <optional>
#include <string>

#include "recovery_test.hpp"
#include "support/live_family.hpp"

namespace crossfade::test {

class GroupRecoveryTest : public RecoveryTest {
 protected:
  void write_spec(const std::string& table, const std::string& column) const {
    write_text(spec_path(),
               fmt::format("[migration]\nname = \"m\"\ntable = \"{}\"\n[[column]]\nname = \"{}\"\n"
                           "type = \"bigint\"\n[switch]\nfollow_foreign_keys = true\nattempts = 10000\n"
                           "[drop]\nsoak = \"0s\"\n",
                           table, column));
  }

  // The gate may ask for a moment's patience under live writers.
  void done(const Arguments& command) {
    const auto result = patiently(command, {});
    ASSERT_EQ(result.exit_status, 0) << result.out << result.err;
  }

  // Dies at the failpoint, whatever it was asked to wait for before.
  void dies(const Arguments& command, const std::string& point) {
    const auto result = patiently(command, point);
    ASSERT_EQ(result.signal, SIGKILL) << point << "\n" << result.out << result.err;
  }

  std::optional<LiveFamily> family_;

 private:
  ProgramResult patiently(const Arguments& command, const std::string& point) {
    constexpr int kNotYet = 3;
    auto result = crossfade(command, point);
    for (int tries = 0; tries < 20 && result.exit_status == kNotYet; ++tries)
      result = crossfade(command, point);
    return result;
  }
};

}  // namespace crossfade::test
