#include "registration_group.hpp"

#include <fmt/format.h>

#include <algorithm>

namespace crossfade {

std::vector<int> attnums_of(const std::vector<ForeignKeyColumn>& columns, Oid table) {
  std::vector<int> attnums;
  for (const auto& column : columns) {
    if (column.table == table) attnums.push_back(column.attnum);
  }
  return attnums;
}

bool shares_table(const Registration& leader, const Registration& member) {
  return leader.row.table_oid == member.row.table_oid ||
         std::ranges::any_of(leader.members, [&](const Registration& other) {
           return other.row.table_oid == member.row.table_oid;
         });
}

namespace {

// Its twin would have to name both new columns, and each migration knows of its own only.
void refuse_shared_twins(Registration& leader, const Registration& a, const Registration& b) {
  if (a.row.table_oid != b.row.table_oid) return;
  for (const auto& entry : a.ledger.carried) {
    if (!is_twin(entry.kind)) continue;
    const auto same = std::ranges::any_of(b.ledger.carried, [&](const Dependent& other) {
      return other.kind == entry.kind && other.name == entry.name && other.schema == entry.schema;
    });
    if (!same) continue;
    leader.findings.push_back(
        {Severity::refuse, "dependent_not_carried", display_identifier(entry.name),
         fmt::format("{} of table {} stands on both {} and {}, which are migrated together.",
                     display_identifier(entry.name), a.row.table.display(),
                     display_identifier(a.binding.column.name), display_identifier(b.binding.column.name)),
         "Drop it before the migration and create it again after it."});
  }
}

}  // namespace

void check_group(Registration& leader) {
  if (leader.usable && !keeps_values(leader.binding.column)) {
    leader.findings.push_back(
        {Severity::refuse, "dependent_not_carried", leader.row.table.display(),
         fmt::format(
             "Foreign keys refer to {}, and the conversion is not proved to keep every value both ways.",
             display_identifier(leader.binding.column.name)),
         "Only a conversion without expressions of your own between types such as integer and bigint lets "
         "foreign keys follow."});
  }
  std::vector<Registration*> all{&leader};
  for (auto& member : leader.members) all.push_back(&member);
  for (std::size_t i = 0; i < all.size(); ++i) {
    for (std::size_t k = i + 1; k < all.size(); ++k) refuse_shared_twins(leader, *all[i], *all[k]);
  }
  for (auto& member : leader.members) {
    leader.usable = leader.usable && member.usable;
    for (auto& finding : member.findings) {
      if (std::ranges::find(leader.findings, finding) == leader.findings.end())
        leader.findings.push_back(finding);
    }
  }
}

}  // namespace crossfade
