// By what a sweep goes through the table.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "crossfade/core/sql_session.hpp"
#include "crossfade/core/tuning.hpp"
#include "crossfade/shadow/binding.hpp"
#include "sweep_position.hpp"

namespace crossfade {

struct SweepPlan {
  RangeBy by = RangeBy::key;
  std::string reason;         // in words, for status
  bool follows_pages = true;  // rows that are swept one after the other lie beside each other
};

// Of one relation in physical order: the storage whose blocks are counted, and how many of them can hold a
// row that is older than the capture.
struct CountedBlocks {
  std::string relfilenode;
  std::int64_t blocks = 0;
};

// Absent where a range of blocks cannot be read alone: another table access method than heap. Takes ACCESS
// SHARE on the relation, so that number and size are of one storage.
std::optional<CountedBlocks> count_blocks(SqlSession& session, const Migration& migration, Oid relation,
                                          const QualifiedName& name);

// Reads a sample of pages where the key's order is asked for. `kind` of the pass.
SweepPlan choose_order(SqlSession& session, const Migration& migration, const QualifiedName& table,
                       std::string_view kind, SweepOrder tuned);

// As crossfade.pass.sweep has it.
std::string to_json(const SweepPlan& plan);

}  // namespace crossfade
