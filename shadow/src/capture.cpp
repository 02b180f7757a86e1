// The trigger functions. What each statement answers to the world around it:
//
// - A writer that began before the installing transaction: ACCESS EXCLUSIVE waited for it, so its rows are
// committed
//   and the sweep finds them; every row version written later passes the trigger. Nothing lies between.
// - search_path: every function is called by qualified name, every operator is OPERATOR(pg_catalog.…) or a
// keyword
//   whose operator is bound at parse time under our own path (the WHEN clause). A hostile path resolves
//   nothing of ours.
// - A failing expression: the exception block raises concurrency, resource, shutdown and internal classes
// again and
//   turns the rest into NULL and a note. No subtransaction takes an xid: the block itself writes nothing.
// - An UPDATE that moves a row to another partition fires the UPDATE trigger where the row was and the INSERT
// trigger
//   where it goes. Forward, the second computes the same again. Backward, a pair that is what the way back
//   gives is left as it is: of a row that moves, the two sides were both written before.
// - ON CONFLICT DO NOTHING fires the trigger for a row that is never inserted: a note is a hint, never a
// fact.
#include "crossfade/shadow/capture.hpp"

#include <fmt/format.h>

#include "crossfade/shadow/transform.hpp"

namespace crossfade {

namespace {

std::string function_name(const Migration& m, std::string_view role) {
  return "crossfade." + quote_identifier(m.generated.function(role));
}

std::string note_parameters(const Migration& m, bool names) {
  std::string list;
  int number = 0;
  for (const auto& column : m.binding.key.columns) {
    ++number;
    // A key that is migrated is passed in its old type before the switch and in its new one after it: the new
    // one takes both.
    const auto& type = column.type_after.empty() ? column.type_text : column.type_after;
    list += fmt::format("{}{}, ", names ? fmt::format("key_{} ", number) : "", type);
  }
  return list;
}

// Typed by the key, so that its text is made under pinned settings whatever the writer's session says.
std::string note_function_sql(const Migration& m) {
  std::string keys;
  for (std::size_t i = 1; i <= m.binding.key.columns.size(); ++i)
    keys += fmt::format("{}key_{}::text", i > 1 ? ", " : "", i);
  const auto body = fmt::format(
      "INSERT INTO crossfade.reject_note (migration_id, direction, key, sqlstate, message)"
      " VALUES ({}, direction, ARRAY[{}], state, left(message, 500))",
      quote_literal(m.row.id.text), keys);
  return fmt::format(
      "CREATE FUNCTION {}({}direction text, state text, message text) RETURNS void LANGUAGE sql SECURITY "
      "DEFINER\n"
      "  SET search_path = pg_catalog, pg_temp SET \"DateStyle\" = 'ISO, YMD' SET \"IntervalStyle\" = "
      "'postgres'\n"
      "  SET \"TimeZone\" = 'UTC' SET extra_float_digits = 3 SET bytea_output = 'hex' AS {};\n"
      "GRANT EXECUTE ON FUNCTION {} TO PUBLIC;\n",
      function_name(m, "note"), note_parameters(m, true), quote_literal(body), function_name(m, "note"));
}

std::string note_call(const Migration& m, std::string_view direction, std::string_view state,
                      std::string_view message) {
  std::string keys;
  for (const auto& column : m.binding.key.columns) keys += "NEW." + quote_identifier(column.name) + ", ";
  return fmt::format("PERFORM {}({}{}, {}, {});", function_name(m, "note"), keys, quote_literal(direction),
                     state, message);
}

// target := expression, by what is proved of it: plain, behind a range test, or in an exception block. A
// value that cannot be carried leaves NULL and a note, unless the policy is to reject the application's
// statement.
std::string computed(const Migration& m, const Expression& expression, const std::string& target,
                     std::string_view direction, OnMisfit policy) {
  const auto plain = fmt::format("{} := {};", target, call_sql(expression, m.names, "NEW"));
  if (expression.totality == Totality::total || policy == OnMisfit::reject) return plain;
  if (expression.totality == Totality::guarded) {
    const auto& input = expression.inputs.front();
    return fmt::format(
        "IF {0} OPERATOR(pg_catalog.<) ({1})::{3} OR {0} OPERATOR(pg_catalog.>) ({2})::{3} THEN\n"
        "    {4} := NULL;\n    {5}\n  ELSE\n    {6}\n  END IF;",
        "NEW." + quote_identifier(input_column(input, m.names, input.attnum != 0)), expression.guard_low,
        expression.guard_high, input.type, target, note_call(m, direction, "'22003'", "'value out of range'"),
        plain);
  }
  return fmt::format(
      "BEGIN\n    {0}\n  EXCEPTION\n"
      "    WHEN transaction_rollback OR insufficient_resources OR operator_intervention OR system_error\n"
      "      OR internal_error THEN RAISE;\n"
      "    WHEN OTHERS THEN\n    {1} := NULL;\n    {2}\n  END;",
      plain, target, note_call(m, direction, "SQLSTATE", "SQLERRM"));
}

std::string image_differs(const std::string& a, const std::string& b) {
  return fmt::format("pg_catalog.record_image_ne(ROW({}), ROW({}))", a, b);
}

std::string trigger_sql(const Migration& m, const QualifiedName& table, const std::string& update_when) {
  const auto function = function_name(m, "capture");
  std::string sql;
  for (const auto* event : {"insert", "update"}) {
    const auto name = quote_identifier(m.generated.trigger(event));
    const bool update = std::string_view(event) == "update";
    sql += fmt::format("CREATE TRIGGER {} BEFORE {} ON {} FOR EACH ROW{} EXECUTE FUNCTION {}();\n", name,
                       update ? "UPDATE" : "INSERT", table.sql(), update ? " WHEN (" + update_when + ")" : "",
                       function);
    sql += fmt::format("ALTER TABLE {} ENABLE ALWAYS TRIGGER {};\n", table.sql(), name);
  }
  return sql;
}

std::string not_our_write(const Migration& m) {
  return fmt::format("pg_catalog.current_setting('crossfade.sweep', true) IS DISTINCT FROM {}",
                     quote_literal(m.row.mark.text));
}

// Of a user's column, whose collation may call two texts equal that are not the same.
std::string changed(const std::string& type, const std::string& column) {
  const auto now = "NEW." + quote_identifier(column), before = "OLD." + quote_identifier(column);
  return type == "text" || type.starts_with("character varying") ? image_differs(now, before)
                                                                 : differs_sql(type, now, before);
}

// Our own write is exempt only while it leaves the sources alone; a user's BEFORE trigger may have changed
// them under it. Where forward cannot fail, a row whose new value is the right one already needs no function;
// that it was not touched would not do, since it may be one that the sweep has not come to.
std::string forward_when(const Migration& m) {
  const auto& forward = m.binding.column.forward;
  std::string when = not_our_write(m);
  for (const auto& input : forward.inputs)
    when += " OR " + changed(input.type, input_column(input, m.names, true));
  if (forward.totality != Totality::total) return when;
  // The cheaper first: of a row that the sweep writes it is false.
  return fmt::format("{} AND ({})",
                     differs_sql(m.binding.column.new_type, "NEW." + quote_identifier(m.names.new_column),
                                 call_sql(forward, m.names, "NEW")),
                     when);
}

// What the backward function does nothing without.
std::string backward_when(const Migration& m) {
  const auto& column = m.binding.column;
  std::string when =
      changed(column.new_type, m.names.new_column) + " OR " + changed(column.old_type, m.names.old_column);
  if (column.backward) {
    for (const auto& input : column.backward->inputs) {
      if (!input.migrated) when += " OR " + changed(input.type, input.column);
    }
  }
  return fmt::format("{} AND ({})", not_our_write(m), when);
}

std::string function_sql(const Migration& m, const std::string& body) {
  return fmt::format("CREATE FUNCTION {}() RETURNS trigger LANGUAGE plpgsql AS {};\n",
                     function_name(m, "capture"), quote_literal(body));
}

std::string removed_triggers(const Migration& m, const QualifiedName& table) {
  std::string sql;
  for (const auto* event : {"insert", "update"}) {
    sql += fmt::format("DROP TRIGGER IF EXISTS {} ON {};\n", quote_identifier(m.generated.trigger(event)),
                       table.sql());
  }
  return sql + fmt::format("DROP FUNCTION IF EXISTS {}();\n", function_name(m, "capture"));
}

std::string forward_capture_sql(const Migration& m, const QualifiedName& table) {
  return function_sql(m, forward_body(m)) + trigger_sql(m, table, forward_when(m));
}

}  // namespace

std::string forward_body(const Migration& m) {
  // Whatever was written to the shadow by others is overwritten: until the switch the old column is the
  // truth.
  const auto target = "NEW." + quote_identifier(m.names.new_column);
  return fmt::format("BEGIN\n  {}\n  RETURN NEW;\nEND",
                     computed(m, m.binding.column.forward, target, "forward", OnMisfit::null));
}

namespace {
// Between different types a way back that is not proved one-to-one may lose something without failing.
// (One-way migrations have no such promise, and within one type a written pair says what it wants.)
bool may_round(const ColumnBinding& column) {
  return column.backward && !column.one_way && !column.backward->one_to_one &&
         column.old_type != column.new_type &&
         column.old_type.substr(0, column.old_type.find('(')) != column.new_base_type;
}
}  // namespace

std::string backward_body(const Migration& m, const CarriedDefault& carried_default) {
  const auto& default_new = carried_default.new_sql;
  const auto& column = m.binding.column;
  const auto new_value = "NEW." + quote_identifier(m.names.new_column);
  const auto old_value = "NEW." + quote_identifier(m.names.old_column);
  const auto new_before = "OLD." + quote_identifier(m.names.new_column);
  const auto old_before = "OLD." + quote_identifier(m.names.old_column);
  const auto carry_forward = computed(m, column.forward, new_value, "forward", OnMisfit::null);
  std::string carry_back;
  if (column.backward) {
    carry_back = computed(m, *column.backward, old_value, "backward", column.on_misfit);
    if (may_round(column)) {
      // 2.50 comes back as 3: the old column keeps the best it can, and the row is noted. Whatever forward
      // says to that value, if only an error, it is not the new value.
      carry_back += fmt::format(
          "\n  BEGIN\n    exact := NOT {};\n  EXCEPTION\n"
          "    WHEN transaction_rollback OR insufficient_resources OR operator_intervention OR system_error\n"
          "      OR internal_error THEN RAISE;\n"
          "    WHEN OTHERS THEN\n    exact := false;\n  END;\n  IF NOT exact THEN\n    {}\n  END IF;",
          image_differs(new_value, call_sql(column.forward, m.names, "NEW")),
          column.on_misfit == OnMisfit::reject
              ? std::string("RAISE EXCEPTION 'the value does not fit the predecessor of the column exactly'"
                            " USING ERRCODE = 'numeric_value_out_of_range';")
              : note_call(m, "backward", "'22000'", "'the old column cannot hold the value exactly'"));
    }
  } else {
    carry_back = fmt::format("{} := NULL;\n  {}", old_value,
                             note_call(m, "backward", "'0A000'", "'there is no way back for this value'"));
  }
  std::string other_inputs = "false";
  if (column.backward) {
    for (const auto& input : column.backward->inputs) {
      if (input.migrated) continue;
      const auto name = quote_identifier(input.column);
      other_inputs += " OR " + image_differs("NEW." + name, "OLD." + name);
    }
  }
  // What a sequence gave cannot be told from what a statement gave. The predecessor is written by position
  // only, and then it is what was meant.
  const auto ungiven =
      carried_default.from_sequence
          ? std::string("true")
          : fmt::format("{} IS NULL{}", new_value,
                        default_new ? " OR NOT " + image_differs(new_value, *default_new) : "");
  const auto disagree = fmt::format(
      "RAISE EXCEPTION 'column % and its predecessor % were both written and disagree', {}, {}\n"
      "      USING ERRCODE = 'integrity_constraint_violation',"
      " HINT = 'a crossfade migration is in progress: write only the column, by name';",
      quote_literal(m.names.new_column), quote_literal(m.names.old_column));
  // What an INSERT that names the column leaves in the old one: NULL, or its constant default. With such a
  // default NULL was given by position, and is meant, unless the new column was given too (a copy of whole
  // rows: there NULL is the old side of a misfit).
  const auto& default_old = carried_default.constant_old_sql;
  const auto left_out =
      default_old
          ? fmt::format("NOT {} OR {} IS NULL AND NOT ({})",
                        image_differs(old_value, fmt::format("({})::{}", *default_old, column.old_type)),
                        old_value, ungiven)
          : fmt::format("{} IS NULL", old_value);
  // Of the whole: `back` may raise where misfits are rejected, and then the pair is no such pair.
  const std::string moved =
      m.binding.key.partitioned && column.backward
          ? fmt::format(
                "given := {old};\n    BEGIN\n      {back}\n"
                "      IF NOT {same} THEN\n        RETURN NEW;\n      END IF;\n    EXCEPTION\n"
                "      WHEN transaction_rollback OR insufficient_resources OR operator_intervention"
                " OR system_error\n        OR internal_error THEN RAISE;\n      WHEN OTHERS THEN NULL;\n"
                "    END;\n    {old} := given;\n    ",
                fmt::arg("old", old_value), fmt::arg("back", carry_back),
                fmt::arg("same", image_differs("given", old_value)))
          : std::string();
  // A non-null old value in an INSERT, or an old value that changes alone, is a write by position or column
  // number.
  return fmt::format(
      R"(DECLARE
  given {old_type};
  exact boolean;
BEGIN
  IF TG_OP OPERATOR(pg_catalog.=) 'INSERT' THEN
    IF {left_out} THEN
      {back}
      RETURN NEW;
    END IF;
    {moved}IF {ungiven} THEN
      {forward}
      RETURN NEW;
    END IF;
  ELSIF {new_changed} THEN
    IF NOT {old_changed} THEN
      {back}
      RETURN NEW;
    END IF;
  ELSIF {old_changed} THEN
    {forward}
    RETURN NEW;
  ELSIF {other_inputs} THEN
    {back}
    RETURN NEW;
  ELSE
    RETURN NEW;
  END IF;
  given := {old};
  {back}
  IF {given_differs} THEN
    {old} := given;
    IF {not_forward} THEN
      {disagree}
    END IF;
  END IF;
  RETURN NEW;
END)",
      fmt::arg("moved", moved), fmt::arg("left_out", left_out), fmt::arg("old_type", column.old_type),
      fmt::arg("old", old_value), fmt::arg("back", carry_back), fmt::arg("forward", carry_forward),
      fmt::arg("ungiven", ungiven), fmt::arg("new_changed", image_differs(new_value, new_before)),
      fmt::arg("old_changed", image_differs(old_value, old_before)), fmt::arg("other_inputs", other_inputs),
      fmt::arg("given_differs", image_differs("given", old_value)),
      fmt::arg("not_forward", image_differs(new_value, call_sql(column.forward, m.names, "NEW"))),
      fmt::arg("disagree", disagree));
}

std::string install_forward_sql(const Migration& m, const QualifiedName& table,
                                const std::string& shadow_settings) {
  return fmt::format("ALTER TABLE {} ADD COLUMN {} {};\n", table.sql(), quote_identifier(m.names.new_column),
                     m.binding.column.new_type) +
         shadow_settings + note_function_sql(m) + forward_capture_sql(m, table);
}

std::string remove_triggers_sql(const Migration& m, const QualifiedName& table) {
  return removed_triggers(m, table);
}

std::string remove_capture_sql(const Migration& m, const QualifiedName& table) {
  return removed_triggers(m, table) + fmt::format("DROP FUNCTION IF EXISTS {}({}text, text, text);\n",
                                                  function_name(m, "note"), note_parameters(m, false));
}

std::string remove_forward_sql(const Migration& m, const QualifiedName& table) {
  return remove_capture_sql(m, table) + fmt::format("ALTER TABLE {} DROP COLUMN IF EXISTS {};\n", table.sql(),
                                                    quote_identifier(m.names.new_column));
}

std::string install_backward_sql(const Migration& m, const QualifiedName& table,
                                 const CarriedDefault& carried_default) {
  std::string sql;
  if (carried_default.constant_old_sql) {
    sql = fmt::format("ALTER TABLE {} ALTER COLUMN {} SET DEFAULT {};\n", table.sql(),
                      quote_identifier(m.names.old_column), *carried_default.constant_old_sql);
  }
  return sql + function_sql(m, backward_body(m, carried_default)) + trigger_sql(m, table, backward_when(m));
}

std::string reinstall_forward_sql(const Migration& m, const QualifiedName& table) {
  return forward_capture_sql(m, table);
}

}  // namespace crossfade
