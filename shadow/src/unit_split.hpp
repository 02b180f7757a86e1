// A unit that is cut in two by the worker that holds it, so that an idle one has something to do.
#pragma once

#include <optional>
#include <string>

#include "crossfade/core/sql_session.hpp"
#include "crossfade/shadow/binding.hpp"
#include "crossfade/shadow/comparator.hpp"
#include "sweep_position.hpp"

namespace crossfade {

// A table of 10^12 rows has no more than these.
inline constexpr int kMostUnitsOfPass = 10'000;

// What a worker holds, as it knows it.
struct HeldUnit {
  int number = 0;
  Oid relation;  // whose rows it sweeps
  std::string lease;
  std::optional<Key> watermark;
  // The greatest bound that the worker may have opened; nullopt: none, the unit begins with the first row.
  std::optional<Key> opened;
  Key high;
  RangeBy by = RangeBy::key;
};

// When somebody asked for it and enough is left: a new unit has the tail, and the bound of the held one is
// returned, less than before. nullopt: nothing changed, the unit goes on as it is. Requires: a chunk boundary
// of the holder, which takes the answer as its new bound before its next chunk.
std::optional<Key> split_when_asked(SqlSession& session, const Migration& migration,
                                    const QualifiedName& table, const Token& token, const PassRow& pass,
                                    const HeldUnit& held);

}  // namespace crossfade
