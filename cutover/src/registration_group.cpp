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

std::vector<Registration*> all_of(Registration& leader) {
  std::vector<Registration*> all{&leader};
  for (auto& member : leader.members) all.push_back(&member);
  return all;
}

// The view is taken away and made again, with its rules, for the other column.
void refuse_rules_of_views(Registration& leader) {
  const auto all = all_of(leader);
  const auto shown = [&](const std::string& relation) {
    return std::ranges::any_of(all, [&](const Registration* each) {
      return std::ranges::any_of(each->ledger.carried, [&](const Dependent& entry) {
        return entry.kind == DependentKind::view && entry.name == relation;
      });
    });
  };
  for (const auto* each : all) {
    for (const auto& entry : each->ledger.carried) {
      if (entry.kind != DependentKind::rule || std::ranges::none_of(entry.locks, shown)) continue;
      leader.findings.push_back(
          {Severity::refuse, "dependent_not_carried", entry.name,
           fmt::format(
               "Rule {} names column {}.{}, and its view shows another column that is migrated with it "
               "and not this one.",
               entry.name, each->row.table.display(), display_identifier(each->binding.column.name)),
           "Drop the rule before the migration and create it again after it, or make it an INSTEAD OF "
           "trigger."});
    }
  }
}

}  // namespace

bool is_bound(const ColumnBinding& column) {
  return !column.forward.function.empty() && (column.backward.has_value() || column.one_way);
}

void introduce_companions(Registration& leader) {
  const auto all = all_of(leader);
  std::vector<ColumnBinding> columns;
  for (const auto* each : all) columns.push_back(each->binding.column);
  for (auto* each : all) {
    for (std::size_t i = 0; i < all.size(); ++i) {
      const bool companion = all[i] != each && all[i]->row.table_oid == each->row.table_oid;
      if (companion && is_bound(columns[i])) each->binding.column.companions.push_back(columns[i]);
    }
  }
}

void check_group(Registration& leader) {
  if (leader.usable && !keeps_values(leader.binding.column)) {
    std::string of;
    for (const auto& member : leader.members) {
      of += fmt::format("{}{}.{}", of.empty() ? "" : ", ", member.row.table.display(),
                        display_identifier(member.spec.columns.front().name));
    }
    leader.findings.push_back(
        {Severity::refuse, "dependent_not_carried", leader.row.table.display(),
         fmt::format("Foreign keys of {} refer to {}, and the conversion is not proved to keep every value "
                     "both ways.",
                     of, display_identifier(leader.binding.column.name)),
         "Only a conversion without expressions of your own between types such as integer and bigint lets "
         "foreign keys follow."});
  }
  refuse_rules_of_views(leader);
  for (auto& member : leader.members) {
    leader.usable = leader.usable && member.usable;
    for (auto& finding : member.findings) {
      if (std::ranges::find(leader.findings, finding) == leader.findings.end())
        leader.findings.push_back(finding);
    }
  }
}

}  // namespace crossfade
