// Why a rewrite leaves the capture whole. It runs under ACCESS EXCLUSIVE and copies every row as it is, the
// new column with it; triggers belong to the table and not to its storage. A change of type of a column that
// the capture reads shows in that column's own fact, a change of persistence or of row security in the same
// fact behind the number of the storage: such a change is none of these.
//
// What is no longer true are bounds made of blocks. Chunks that have them write nothing, since each compares
// the storage under its own lock; so all that has to be done is to plan the relation anew. Every row version
// that is older than the capture lies in the present storage, below its present size. Rows that were swept
// are right already and are read again, not written.
#include "crossfade/shadow/rewrite.hpp"

#include <algorithm>
#include <nlohmann/json.hpp>

#include "crossfade/core/failpoint.hpp"
#include "crossfade/core/state_store.hpp"
#include "crossfade/shadow/comparator.hpp"
#include "crossfade/shadow/units.hpp"

namespace crossfade {

namespace {

using nlohmann::json;

bool is_storage(const std::string& what) {
  return what == "table storage" || what.starts_with("storage of partition ");
}

// Behind the number of the storage.
std::string rest_of(const std::string& mark) { return mark.substr(std::min(mark.find(':'), mark.size())); }

}  // namespace

RewriteChanges rewrite_changes(const Migration& m, const std::string& after) {
  RewriteChanges changes;
  const auto& before = m.row.fingerprint;
  if (m.row.phase == Phase::switched && m.spec.archive == Archive::table) return changes;
  if (before.empty() || after.empty()) return changes;
  const auto old_facts = json::parse(before), new_facts = json::parse(after);
  if (old_facts.size() != new_facts.size()) return changes;
  for (const auto& [what, mark] : old_facts.items()) {
    if (!new_facts.contains(what)) return changes;
    const auto& now = new_facts.at(what);
    if (now == mark) continue;
    if (!is_storage(what) || rest_of(now.get<std::string>()) != rest_of(mark.get<std::string>()))
      return changes;
    changes.what.push_back(what);
  }
  changes.only = !changes.what.empty();
  return changes;
}

bool follow_rewrite(SqlSession& session, const Migration& m, const RewriteChanges& changes,
                    const std::string& now, const std::string& operator_name, const std::string& host) {
  // Before the transaction: it takes locks on the relations, and the row of the migration comes first in it.
  const auto planned = plan_rewritten(session, m);
  failpoint::hit("rewrite.planned");
  Transaction transaction(session);
  const auto taken = session.exec(
      "UPDATE crossfade.migration SET fingerprint = $4::jsonb,"
      // Storage and size cannot be read as one here; without them the present size counts.
      " capture_relfilenode = NULL, capture_blocks = NULL"
      " WHERE id = $1 AND token = $2 AND phase = $3 AND fingerprint = $5::jsonb",
      {m.row.id.text, m.row.token.text, std::string(to_text(m.row.phase)), now, m.row.fingerprint});
  if (taken.affected_rows == 0) return false;
  store_rewritten(session, planned);
  for (const auto* kind : {"replay", "compare"}) void_passes(session, m.row.id, kind);
  StateStore(session).record_action(m.row.id, "rewritten", operator_name, host,
                                    json{{"what", changes.what}}.dump());
  transaction.commit();
  failpoint::hit("rewrite.followed");
  return true;
}

}  // namespace crossfade
