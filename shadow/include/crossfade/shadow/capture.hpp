// The capture: shadow column, functions and triggers that keep both sides in step from the installing
// transaction on. Every function here is pure: it composes statements that the caller runs under the table
// lock, in one transaction with the phase row.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "crossfade/shadow/binding.hpp"

namespace crossfade {

// Adds the shadow column (nullable, no default), the note function and the forward capture. `shadow_settings`
// come before the triggers, whose WHEN would keep PostgreSQL from changing the column's collation.
std::string install_forward_sql(const Migration& migration, const QualifiedName& table,
                                const std::string& shadow_settings = {});
// Removes triggers, functions and the shadow column. The table lock must be held: then no writer is between
// the trigger and the column.
std::string remove_forward_sql(const Migration& migration, const QualifiedName& table);

// The column's default on either side, as SQL. The old one only when it is a constant: then the old column
// keeps it after the switch, so that an INSERT which leaves the old column out can be told from one by
// position that gives NULL.
struct CarriedDefault {
  std::optional<std::string> new_sql, constant_old_sql;
  bool from_sequence = false;  // another value each time: identity or serial
};

// At the switch, after the names moved (Migration::names are those of Phase::switched): the backward
// capture; remove_triggers_sql ran before.
std::string install_backward_sql(const Migration& switched, const QualifiedName& table,
                                 const CarriedDefault& carried_default);
// At the switch back, after the names moved back.
std::string reinstall_forward_sql(const Migration& compare, const QualifiedName& table);

// Triggers and their function only: first in a switch, before the names move.
std::string remove_triggers_sql(const Migration& migration, const QualifiedName& table);
// Triggers and functions only, for the drop of the old column.
std::string remove_capture_sql(const Migration& migration, const QualifiedName& table);

// The bodies, for review and for tests.
std::string forward_body(const Migration& migration);
std::string backward_body(const Migration& switched, const CarriedDefault& carried_default);

}  // namespace crossfade
