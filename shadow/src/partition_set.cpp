// What is in a partition when it comes. CREATE TABLE … PARTITION OF: nothing; every row of it will have come
// through the capture, whose triggers it has from the first moment. ATTACH PARTITION: rows that nothing
// carried. The two cannot be told apart afterwards (a table may be made, filled and attached in one
// transaction), so both are answered as the second: by units until compare (dual_write proves NOT NULL of
// every row), and from then on by the replay, which reads every partition.
//
// A row that moves between partitions while the units are planned passes the capture, wherever it goes.
#include "crossfade/shadow/partition_set.hpp"

#include <algorithm>
#include <map>
#include <nlohmann/json.hpp>
#include <set>

#include "crossfade/core/lock_attempts.hpp"
#include "crossfade/core/state_store.hpp"
#include "crossfade/shadow/units.hpp"

namespace crossfade {

namespace {

using nlohmann::json;

constexpr std::string_view kPartition = "partition ";
constexpr std::string_view kOfPartition = " of partition ";

std::map<std::string, std::string> partitions_in(const json& facts) {
  std::map<std::string, std::string> found;  // name, mark
  for (const auto& [what, mark] : facts.items()) {
    if (what.starts_with(kPartition)) found[what.substr(kPartition.size())] = mark.get<std::string>();
  }
  return found;
}

json facts_of(const std::string& fingerprint) {
  return fingerprint.empty() ? json::object() : json::parse(fingerprint);
}

// The facts of partitions that are in both, and all others.
json without(const json& facts, const std::set<std::string>& partitions) {
  json rest = json::object();
  for (const auto& [what, mark] : facts.items()) {
    const auto at = what.rfind(kOfPartition);
    const auto name = what.starts_with(kPartition) ? what.substr(kPartition.size())
                      : at == std::string::npos    ? std::string()
                                                   : what.substr(at + kOfPartition.size());
    if (!partitions.contains(name)) rest[what] = mark;
  }
  return rest;
}

}  // namespace

PartitionChanges partition_changes(const std::string& before, const std::string& after) {
  const auto old_facts = facts_of(before), new_facts = facts_of(after);
  const auto old_ones = partitions_in(old_facts), new_ones = partitions_in(new_facts);
  PartitionChanges changes;
  std::set<std::string> moved;
  for (const auto& [name, mark] : old_ones) {
    const auto now = new_ones.find(name);
    if (now != new_ones.end() && now->second == mark) continue;
    changes.removed.push_back(name);
    moved.insert(name);
  }
  for (const auto& [name, mark] : new_ones) {
    const auto then = old_ones.find(name);
    if (then != old_ones.end() && then->second == mark) continue;
    changes.added.push_back(name);
    changes.arrived.push_back(Oid{static_cast<std::uint32_t>(std::stoul(mark.substr(0, mark.find(':'))))});
    moved.insert(name);
  }
  changes.only = !moved.empty() && without(old_facts, moved) == without(new_facts, moved);
  return changes;
}

bool have_capture(SqlSession& session, const Migration& m, const std::vector<Oid>& arrived) {
  const auto row = session
                       .exec(
                           "SELECT count(*) FILTER (WHERE c.relkind IN ('r', 'p') AND c.relpersistence = 'p'"
                           " AND 2 = (SELECT count(*) FROM pg_trigger t WHERE t.tgrelid = c.oid"
                           "  AND t.tgname IN ($2, $3) AND t.tgenabled = 'A' AND t.tgparentid <> 0))"
                           " FROM pg_class c WHERE c.oid = ANY ($1::oid[])",
                           {oid_array(arrived), m.generated.trigger("insert"), m.generated.trigger("update")})
                       .one("partitions");
  return int_of(row[0]) == std::ssize(arrived);
}

bool follow_partitions(SqlSession& session, const Migration& m, const PartitionChanges& changes,
                       const std::string& now, const std::string& operator_name, const std::string& host) {
  // Before the transaction: it may read for long, and the row of the migration is not to be held so long.
  const bool sweeps = m.row.phase == Phase::backfill || m.row.phase == Phase::dual_write;
  const auto units = sweeps ? plan_arrived(session, m, changes.arrived) : std::vector<PlannedUnit>();
  Transaction transaction(session);
  const auto taken = session.exec(
      "UPDATE crossfade.migration SET fingerprint = $4::jsonb WHERE id = $1 AND token = $2 AND phase = $3"
      " AND fingerprint = $5::jsonb",
      {m.row.id.text, m.row.token.text, std::string(to_text(m.row.phase)), now, m.row.fingerprint});
  if (taken.affected_rows == 0) return false;
  if (sweeps) store_arrived(session, m, changes.arrived, units);
  for (const auto* kind : {"replay", "compare"}) void_passes(session, m.row.id, kind);
  StateStore(session).record_action(m.row.id, "partitions", operator_name, host,
                                    json{{"added", changes.added}, {"removed", changes.removed}}.dump());
  transaction.commit();
  return true;
}

}  // namespace crossfade
