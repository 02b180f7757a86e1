// The spec: what is migrated. Immutable once started; stored and hashed without [tuning].
#pragma once

#include <chrono>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "crossfade/core/identifier.hpp"
#include "crossfade/core/phase.hpp"
#include "crossfade/core/tuning.hpp"

namespace crossfade {

inline constexpr std::chrono::milliseconds kHookTimeout{std::chrono::minutes(1)};

enum class OnMisfit { null, reject };
enum class Archive { none, table };
// What is tried of the user's triggers under the switch lock: every event, where that leaves nothing behind;
// UPDATE alone; nothing.
enum class TriggerTrial { all, update, none };
enum class ShadowKind { column, table };

struct ColumnSpec {
  std::string name;  // folded as SQL folds it; quotes removed
  std::string type;  // as written; resolved by PostgreSQL
  std::optional<std::string> into;
  std::optional<std::string> forward, backward;
  OnMisfit on_misfit = OnMisfit::null;
  std::string name_at, type_at;  // "FILE:LINE:COLUMN" of the value, for messages
};

// A count, a percentage or a range of either, both ends included; a single number is a range of that number
// alone.
struct Expectation {
  double low = 0, high = 0;
  bool percent = false;
  std::string text;  // as written, for messages
  // total: rows read. Percentages compare count * 100 / total; an empty table meets every percentage.
  bool met_by(std::int64_t count, std::int64_t total) const;
};

struct Spec {
  std::string name;
  QualifiedName table;
  std::string table_at;  // as ColumnSpec::name_at
  std::vector<ColumnSpec> columns;
  ShadowKind shadow = ShadowKind::column;
  std::optional<Expectation> expect_changed, expect_lossy;
  Expectation expect_errors{0, 0, false, "0"};
  Tuning tuning;
  std::chrono::milliseconds lock_timeout{200};
  int switch_attempts = 50;
  std::chrono::milliseconds max_comparison_age{std::chrono::hours(1)};
  bool follow_foreign_keys = false;
  TriggerTrial trigger_probe = TriggerTrial::all;
  std::chrono::milliseconds soak{std::chrono::hours(24)};
  Archive archive = Archive::none;
  std::vector<std::pair<std::string, std::string>> hooks;  // before_<phase> or after_<phase>, command
  std::chrono::milliseconds hook_timeout = kHookTimeout;

  Mode mode() const;  // promote when any column has `into`
  // Canonical text of everything but [tuning]: equal specs have equal text whatever their layout, order and
  // comments. It is a spec file itself.
  std::string canonical_text() const;
};

// One row per key of the file, for docs/spec.md and for the unknown-key suggestion.
struct SpecKey {
  std::string_view section, name, default_text, bounds, sentence;
};
std::span<const SpecKey> spec_keys();

// `file` is used in messages only: "FILE:LINE:COLUMN: key …: found …; allowed …". At most 64 KiB of text.
// Throws spec_syntax, spec_unknown_key, spec_missing_key, spec_bad_value.
Spec parse_spec(std::string_view text, std::string_view file);
// Throws spec_unreadable naming the path and the reason.
std::string read_spec_file(const std::string& path);

}  // namespace crossfade
