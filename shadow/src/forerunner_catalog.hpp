// What the catalog and the ledger say of forerunners (forerunners.hpp).
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "crossfade/core/sql_session.hpp"
#include "crossfade/shadow/binding.hpp"
#include "crossfade/shadow/dependents.hpp"

namespace crossfade {

// One foreign key with what its forerunners say.
struct Forerunner {
  std::string constraint;  // whose it is
  std::string name;        // of the forerunner on each leaf
  Oid table, partner;
  QualifiedName partner_name;
  std::string words;              // FOREIGN KEY … as far as NOT VALID
  std::string columns, referred;  // text[] literals, in order
  bool deferrable = false, deferred = false;
};

struct KeyLeaf {
  Oid oid;
  QualifiedName name;
  bool has = false, valid = false;
};

// A forerunner as it stands, wherever.
struct StandingKey {
  QualifiedName table, partner;
  std::string name;
};

// One for each foreign key of the ledger that has any and is there.
std::vector<Forerunner> forerunners_of(SqlSession& session, const Migration& migration, const Ledger& ledger);
// Of pg_constraint k: it is a forerunner on the relation that `leaf` gives.
std::string is_forerunner_sql(const Forerunner& forerunner, const std::string& leaf);
std::vector<KeyLeaf> leaves_of(SqlSession& session, const Forerunner& forerunner);

// The names that forerunners have, whether the constraint is there or not.
std::vector<std::optional<std::string>> forerunner_names(const Migration& migration, const Ledger& ledger);
// Those of the names; with `leaves` only those that stand on none of them. (What the switch made parts of the
// table's constraint has another name by then.)
std::vector<StandingKey> standing(SqlSession& session, const std::vector<std::optional<std::string>>& names,
                                  const std::vector<KeyLeaf>* leaves);

}  // namespace crossfade
