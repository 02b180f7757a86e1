#include "random_schema.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "crossfade/core/identifier.hpp"

namespace crossfade::test {

namespace {

const std::vector<RandomColumn> kColumns{
    {"integer", "bigint"},
    {"smallint", "bigint"},
    {"integer", "numeric"},
    {"numeric(10,2)", "numeric(14,2)"},
    {"character varying(20)", "text", false},
    {"character varying(20)", "character varying(40)", false},
    {"integer", "bigint", true, true},
    // Some values have no way there.
    {"text", "integer", false, false, "{c}::integer", "{c}::text",
     "CASE WHEN b ~ '^[0-9]+$' THEN b::int::text END", true},
    // Several values may become one, and nothing is proved of the way back.
    {"text", "text", false, false, "lower({c})", "{c}", "lower(b)"},
    // What is said of a number is not said of a text.
    {"integer", "text", true, false, "{c}::text", "{c}::integer"}};

// Names that tools get wrong. Each is made different by a number before it is used.
const std::vector<std::string> kNames{"plain",
                                      "Upper",
                                      "with space",
                                      "do.t",
                                      "qu\"ote",
                                      "apos'trophe",
                                      "back\\slash",
                                      "ünïcödé",
                                      "percent%s",
                                      "{brace}",
                                      "$1",
                                      "semi;colon",
                                      "dash--dash",
                                      " ON x ",
                                      " WHERE ",
                                      " USING ",
                                      std::string(63, 'n'),
                                      std::string(61, 'm') + "ä"};
// Keywords, whose quoting depends on the kind of keyword.
const std::vector<std::string> kKeywords{"select", "order",    "user",   "between", "time",
                                         "left",   "value",    "values", "key",     "table",
                                         "name",   "position", "row",    "group",   "check"};

}  // namespace

std::string RandomSchema::q(const std::string& name) { return display_identifier(name); }

std::string RandomSchema::replaced(std::string text, std::string_view mark, const std::string& with) {
  for (std::size_t at = 0; (at = text.find(mark, at)) != std::string::npos; at += with.size())
    text.replace(at, mark.size(), with);
  return text;
}

std::string RandomSchema::typed(std::string sql, const std::string& type) {
  return replaced(std::move(sql), "{type}", type);
}

std::string RandomSchema::new_name() {
  for (;;) {
    auto name = chance_.one_in(3) ? chance_.of(kKeywords) : chance_.of(kNames);
    if (std::ranges::find(taken_, name) != taken_.end()) {
      const auto number = std::to_string(taken_.size());
      name = name_with_suffix(name, number);
    }
    if (std::ranges::find(taken_, name) != taken_.end()) continue;
    taken_.push_back(name);
    return name;
  }
}

RandomSchema::RandomSchema(std::uint64_t seed) : chance_(seed) {
  taken_ = {"id", "d", "e", "n", "public", "crossfade", "twin"};
  kind_ = chance_.of(kColumns);
  schema_ = chance_.one_in(2) ? "public" : new_name();
  beside_ = chance_.one_in(2) ? schema_ : new_name();
  table_ = new_name();
  function_ = new_name();
  column_ = kind_.key ? "id" : new_name();
  not_null_ = kind_.key || chance_.one_in(2);
  follows_ = chance_.one_in(2);
  if (chance_.one_in(2)) choose_key_parts();
  choose_indexes();
  choose_constraints();
  choose_foreign_keys();
  choose_views();
  choose_triggers();
  choose_code();
  choose_policies_and_rules();
  choose_properties();
  choose_what_is_refused();
  // Everything at once is rare in life, and one refusal more hides what would have come after it.
  for (std::size_t i = objects_.size(); i > 1; --i) std::swap(objects_[i - 1], objects_[chance_.below(i)]);
  objects_.resize(std::min(objects_.size(), 4 + chance_.below(10)));
  // One default at most: dropped because it was refused, it would leave another than the one of before it.
  bool has_default = false;
  std::erase_if(objects_, [&](const RandomObject& object) {
    const bool sets =
        object.what == "default_value" || object.what == "sequence" || object.what == "identity";
    return sets && std::exchange(has_default, true);
  });
}

std::string RandomSchema::spec() const {
  const auto toml = [](const std::string& text) {
    std::string quoted = "\"";
    for (const char c : text) {
      if (c == '"' || c == '\\') quoted += '\\';
      quoted += c;
    }
    return quoted + '"';
  };
  std::string text =
      fmt::format("[migration]\nname = \"m\"\ntable = {}\n[[column]]\nname = {}\ntype = \"{}\"\n",
                  toml(table()), toml(column()), kind_.new_type);
  if (!kind_.forward.empty()) {
    text += fmt::format("forward = {}\nbackward = {}\n", toml(replaced(kind_.forward, "{c}", column())),
                        toml(replaced(kind_.backward, "{c}", column())));
  }
  if (kind_.dirty) text += "[expect]\nerrors = \"0..50\"\n[tuning]\nmax_rejects = 50\n";
  if (follows_) text += "[switch]\nfollow_foreign_keys = true\n";
  return text + "[drop]\nsoak = \"0s\"\n";
}

std::string RandomSchema::make_table(const std::string& type) const {
  std::string sql;
  for (const auto& schema : {schema_, beside_})
    sql += fmt::format("CREATE SCHEMA IF NOT EXISTS {};", quote_identifier(schema));
  sql += "GRANT USAGE ON SCHEMA " + q(schema_) + ", " + q(beside_) + " TO cf_friend, cf_guest;";
  sql +=
      fmt::format("CREATE TABLE {} (id {} {} PRIMARY KEY, ", table(), kind_.key ? type : "int", key_default_);
  if (!kind_.key) sql += fmt::format("{} {}{}, ", column(), type, not_null_ ? " NOT NULL" : "");
  sql += "d text NOT NULL, e int NOT NULL, n int);";
  const bool dirty = kind_.dirty && type == kind_.old_type && !not_null_;
  const bool capital = kind_.old_type == "text" && kind_.new_type == "text";
  sql += fmt::format(
      "INSERT INTO {0} (id, {1}d, e, n) {2} SELECT g, {3}'d' || g, g, g FROM generate_series(1, 60) g;",
      table(), kind_.key ? "" : column() + ", ", key_default_.empty() ? "" : "OVERRIDING SYSTEM VALUE",
      kind_.key ? ""
      : dirty   ? "CASE WHEN g % 20 = 0 THEN 'dirty ' || g ELSE '0' || g END, "
      : capital ? "'V' || g, "
                : fmt::format("g::{}, ", type));
  if (!key_default_.empty())
    sql += fmt::format("SELECT setval(pg_get_serial_sequence({}, 'id'), 1000);", quote_literal(table()));
  sql += fmt::format("CREATE FUNCTION {}() RETURNS trigger LANGUAGE plpgsql AS 'BEGIN RETURN NEW; END';",
                     function());
  // What other tables need of it.
  sql += fmt::format("CREATE TABLE {}.partner (b {} PRIMARY KEY);", q(beside_), kind_.key ? "int" : type);
  sql += fmt::format("INSERT INTO {}.partner SELECT g::text::{} FROM generate_series(0, 2000) g;", q(beside_),
                     kind_.key ? "int" : type);
  return sql;
}

std::string RandomSchema::make_twin() const {
  return fmt::format("CREATE SCHEMA twin; CREATE TABLE twin.t AS SELECT id, {}::text AS b, d, e FROM {};",
                     column(), table());
}

std::string RandomSchema::value(Chance& chance) const {
  const auto number = 61 + chance.below(1900);
  if (!not_null_ && chance.one_in(6)) return "NULL";
  const bool small = kind_.old_type == "text" && kind_.new_type == "text";
  return fmt::format("'{}{}'", small ? "v" : "", number);
}

std::string RandomSchema::maybe_comment(const std::string& what) {
  if (!chance_.one_in(2)) return {};
  return fmt::format("; COMMENT ON {} IS {}", what, quote_literal("it's \"" + chance_.of(kNames) + "\""));
}

// A condition that every row of the generator fulfils, in words that every type takes the same way.
std::string RandomSchema::row_condition(const std::string& prefix) {
  const auto column = prefix + this->column();
  std::vector<std::string> conditions{
      column + " IS NOT NULL OR " + prefix + "e >= 0",
      "CASE WHEN " + prefix + "e > 5 THEN " + column + " IS NOT NULL ELSE true END OR " + prefix + "id > 0"};
  if (kind_.number) {
    conditions.push_back(column + " >= 0");
    conditions.push_back(column + " + 1 > 0 AND " + prefix + "e < 100000000");
  } else {
    conditions.push_back(column + " <> 'x'");
    conditions.push_back("length(" + column + ") < 20");
    conditions.push_back("lower(" + column + ") <> 'x'");
  }
  return chance_.of(conditions);
}

}  // namespace crossfade::test
