// The names in Redis. The braces are part of them: a Redis Cluster keeps what is between them on one node.
#pragma once

#include <fmt/format.h>

#include <string>
#include <string_view>

#include "crossfade/core/ids.hpp"

namespace crossfade::redis {

inline std::string prefix(const MigrationId& id) { return fmt::format("crossfade:{{{}}}:", id.text); }
inline std::string cursor_key(const MigrationId& id, std::string_view pass) {
  return fmt::format("{}cursor:{}", prefix(id), pass);
}
inline std::string worker_key(const MigrationId& id, std::string_view worker) {
  return fmt::format("{}worker:{}", prefix(id), worker);
}
inline std::string phase_key(const MigrationId& id) { return prefix(id) + "phase"; }
inline std::string bucket_key(const MigrationId& id) { return prefix(id) + "bucket"; }
inline std::string control_channel(const MigrationId& id) { return prefix(id) + "control"; }

}  // namespace crossfade::redis
