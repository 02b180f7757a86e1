#include "crossfade/shadow/binding.hpp"

#include <nlohmann/json.hpp>

#include "crossfade/core/error.hpp"

namespace crossfade {

using nlohmann::json;

std::string_view to_text(Totality totality) {
  switch (totality) {
    case Totality::total:
      return "total";
    case Totality::guarded:
      return "guarded";
    case Totality::partial:
      return "partial";
  }
  return "";
}

namespace {

Totality totality_from(const std::string& text) {
  if (text == "total") return Totality::total;
  return text == "guarded" ? Totality::guarded : Totality::partial;
}

json expression_json(const Expression& e) {
  json inputs = json::array();
  for (const auto& i : e.inputs) {
    inputs.push_back(
        {{"column", i.column}, {"type", i.type}, {"migrated", i.migrated}, {"attnum", i.attnum}});
  }
  return {{"text", e.text},
          {"function", e.function},
          {"try_function", e.try_function},
          {"inputs", inputs},
          {"totality", to_text(e.totality)},
          {"guard_low", e.guard_low},
          {"guard_high", e.guard_high},
          {"derived", e.derived},
          {"strict", e.strict},
          {"one_to_one", e.one_to_one},
          {"stable", e.stable},
          {"pinned", e.pinned}};
}

Expression expression_from(const json& j) {
  Expression e;
  e.text = j.at("text");
  e.function = j.at("function");
  e.try_function = j.at("try_function");
  for (const auto& i : j.at("inputs")) {
    e.inputs.push_back({i.at("column"), i.at("type"), i.at("migrated"), i.at("attnum")});
  }
  e.totality = totality_from(j.at("totality"));
  e.guard_low = j.at("guard_low");
  e.guard_high = j.at("guard_high");
  e.derived = j.at("derived");
  e.strict = j.at("strict");
  e.one_to_one = j.at("one_to_one");
  e.stable = j.value("stable", false);
  e.pinned = j.value("pinned", false);
  return e;
}

}  // namespace

namespace {

json column_json(const ColumnBinding& c) {
  json companions = json::array();
  for (const auto& companion : c.companions) companions.push_back(column_json(companion));
  return {{"name", c.name},
          {"old_attnum", c.old_attnum},
          {"old_type", c.old_type},
          {"new_type", c.new_type},
          {"new_base_type", c.new_base_type},
          {"shadow_name", c.shadow_name},
          {"retired_name", c.retired_name},
          {"not_null", c.not_null},
          {"on_misfit", c.on_misfit == OnMisfit::reject ? "reject" : "null"},
          {"forward", expression_json(c.forward)},
          {"backward", c.backward ? expression_json(*c.backward) : json()},
          {"one_way", c.one_way},
          {"follows_foreign_keys", c.follows_foreign_keys},
          {"companions", companions}};
}

ColumnBinding column_from(const json& column) {
  ColumnBinding c;
  c.name = column.at("name");
  c.old_attnum = column.at("old_attnum");
  c.old_type = column.at("old_type");
  c.new_type = column.at("new_type");
  c.new_base_type = column.at("new_base_type");
  c.shadow_name = column.at("shadow_name");
  c.retired_name = column.at("retired_name");
  c.not_null = column.at("not_null");
  c.on_misfit = column.at("on_misfit") == "reject" ? OnMisfit::reject : OnMisfit::null;
  c.forward = expression_from(column.at("forward"));
  if (!column.at("backward").is_null()) c.backward = expression_from(column.at("backward"));
  c.one_way = column.at("one_way");
  c.follows_foreign_keys = column.at("follows_foreign_keys");
  for (const auto& companion : column.value("companions", json::array()))
    c.companions.push_back(column_from(companion));
  return c;
}

}  // namespace

std::string to_json(const Binding& binding) {
  json columns = json::array();
  for (const auto& k : binding.key.columns) {
    columns.push_back({{"attnum", k.attnum},
                       {"name", k.name},
                       {"type", k.type_text},
                       {"collation", k.collation},
                       {"descending", k.descending},
                       {"nulls_first", k.nulls_first},
                       {"type_after", k.type_after}});
  }
  return json{{"column", column_json(binding.column)},
              {"key",
               {{"index", binding.key.index.value},
                {"index_name", binding.key.index_name},
                {"primary", binding.key.primary},
                {"partitioned", binding.key.partitioned},
                {"columns", columns}}}}
      .dump();
}

Binding binding_from_json(const std::string& text) {
  const auto j = json::parse(text);
  Binding binding;
  binding.column = column_from(j.at("column"));
  const auto& key = j.at("key");
  binding.key.index.value = key.at("index");
  binding.key.index_name = key.at("index_name");
  binding.key.primary = key.at("primary");
  binding.key.partitioned = key.value("partitioned", false);
  for (const auto& k : key.at("columns")) {
    binding.key.columns.push_back({k.at("attnum"), k.at("name"), k.at("type"), k.at("collation"),
                                   k.value("descending", false), k.value("nulls_first", false),
                                   k.at("type_after")});
  }
  return binding;
}

std::vector<const ColumnBinding*> moving_together(const ColumnBinding& column) {
  std::vector<const ColumnBinding*> columns{&column};
  for (const auto& companion : column.companions) columns.push_back(&companion);
  return columns;
}

bool keeps_values(const ColumnBinding& column) {
  const auto keeps = [](const Expression& e) { return e.derived && e.one_to_one; };
  return keeps(column.forward) && column.forward.totality == Totality::total && column.backward &&
         keeps(*column.backward);
}

bool keeps_distinct(const std::optional<Expression>& expression, NullsInIndex nulls) {
  return expression && expression->one_to_one &&
         (nulls == NullsInIndex::differ || expression->totality == Totality::total);
}

bool widens_integer(const ColumnBinding& column) {
  const auto integer = [](const std::string& type) {
    return type == "smallint" || type == "integer" || type == "bigint";
  };
  return keeps_values(column) && integer(column.old_type) && integer(column.new_type);
}

PhysicalNames physical_names(const ColumnBinding& column, Phase phase) {
  if (new_column_is_public(phase)) return {column.retired_name, column.name};
  return {column.name, column.shadow_name};
}

Migration migration_of(MigrationRow row) {
  auto spec = parse_spec(row.spec_text, row.name);
  auto binding = binding_from_json(row.binding);
  auto names = physical_names(binding.column, row.phase);
  // After the switch the key's column of that name is the new one, in its type.
  if (new_column_is_public(row.phase)) {
    for (auto& column : binding.key.columns) {
      if (!column.type_after.empty()) column.type_text = column.type_after;
    }
  }
  GeneratedNames generated(row.id);
  return {std::move(row), std::move(spec), std::move(binding), std::move(names), std::move(generated)};
}

}  // namespace crossfade
