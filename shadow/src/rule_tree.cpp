// The text of a node tree: {NAME :field value :field value}, where a value is a word, <>, a node, or a list
// in parentheses; a datum is written as its bytes between brackets. Blanks and brackets inside a word are
// escaped by a backslash, so that words can be told without knowing their meaning.
#include "rule_tree.hpp"

#include <fmt/format.h>

#include <array>
#include <cctype>
#include <charconv>
#include <map>
#include <string_view>

#include "crossfade/core/error.hpp"

namespace crossfade {

namespace {

struct Node {
  std::string name;
  std::map<std::string, std::vector<std::string>, std::less<>> words;  // by field
  std::vector<std::pair<std::string, Node>> children;                  // field, node

  std::int64_t number(std::string_view field) const {
    const auto found = words.find(field);
    if (found == words.end() || found->second.empty()) return 0;
    const auto& text = found->second.front();
    std::int64_t value = 0;
    std::from_chars(text.data(), text.data() + text.size(), value);
    return value;
  }
};

class Reader {
 public:
  explicit Reader(std::string_view text) : text_(text) {}

  Node whole() {
    Node root;
    while (next()) {
      if (word_ == "{") root.children.emplace_back("", node());
    }
    return root;
  }

 private:
  bool next() {
    while (at_ < text_.size() && std::isspace(static_cast<unsigned char>(text_[at_])) != 0) ++at_;
    if (at_ >= text_.size()) return false;
    word_.clear();
    const auto single = [](char c) { return c == '{' || c == '}' || c == '(' || c == ')'; };
    if (single(text_[at_])) {
      word_ = text_[at_++];
      return true;
    }
    while (at_ < text_.size() && std::isspace(static_cast<unsigned char>(text_[at_])) == 0 &&
           !single(text_[at_])) {
      if (text_[at_] == '\\' && at_ + 1 < text_.size()) word_ += text_[at_++];
      word_ += text_[at_++];
    }
    return true;
  }

  Node node() {
    Node made;
    if (next()) made.name = word_;
    std::string field;
    while (next() && word_ != "}") {
      if (word_ == "{") {
        made.children.emplace_back(field, node());
      } else if (word_.front() == ':' && word_.size() > 1) {
        field = word_.substr(1);
      } else if (word_ != "(" && word_ != ")") {
        made.words[field].push_back(word_);
      }
    }
    return made;
  }

  std::string_view text_;
  std::size_t at_ = 0;
  std::string word_;
};

// The type of a node's result; 0 when it is not told.
std::uint32_t type_of(const Node& node) {
  static constexpr auto kFields = std::to_array<std::string_view>(
      {"vartype", "consttype", "funcresulttype", "opresulttype", "resulttype", "casetype", "coalescetype",
       "minmaxtype", "array_typeid", "refrestype", "row_typeid", "typeId", "type", "wintype", "aggtype"});
  for (const auto field : kFields) {
    if (const auto type = node.number(field); type != 0) return static_cast<std::uint32_t>(type);
  }
  constexpr std::uint32_t kBoolean = 16;
  for (const auto name : {"BOOLEXPR", "NULLTEST", "BOOLEANTEST", "SCALARARRAYOPEXPR", "ROWCOMPAREEXPR"}) {
    if (node.name == name) return kBoolean;
  }
  if (node.name == "COLLATEEXPR") return node.children.empty() ? 0 : type_of(node.children.front().second);
  return 0;
}

// In the order of SQLValueFunctionOp.
std::string value_function(std::int64_t op) {
  static constexpr auto kNames = std::to_array<std::string_view>(
      {"CURRENT_DATE", "CURRENT_TIME", "CURRENT_TIME", "CURRENT_TIMESTAMP", "CURRENT_TIMESTAMP", "LOCALTIME",
       "LOCALTIME", "LOCALTIMESTAMP", "LOCALTIMESTAMP", "CURRENT_ROLE", "CURRENT_USER", "USER",
       "SESSION_USER", "CURRENT_CATALOG", "CURRENT_SCHEMA"});
  const auto index = static_cast<std::size_t>(op);
  return index < kNames.size() ? std::string(kNames[index]) : std::string("an SQL value function");
}

void visit(const Node& node, TreeFacts& facts) {
  const auto oid = [&](std::string_view field) { return static_cast<std::uint32_t>(node.number(field)); };
  if (node.name == "FUNCEXPR") {
    facts.functions.insert(oid("funcid"));
  } else if (node.words.contains("opfuncid")) {
    // A tree may leave the function of an operator to be looked up.
    if (const auto function = oid("opfuncid"); function != 0) {
      facts.functions.insert(function);
    } else {
      facts.operators.insert(oid("opno"));
    }
  } else if (node.name == "ROWCOMPAREEXPR") {
    for (const auto& word : node.words.at("opnos")) {
      std::uint32_t op = 0;
      if (std::from_chars(word.data(), word.data() + word.size(), op).ec == std::errc{})
        facts.operators.insert(op);
    }
  } else if (node.name == "COERCEVIAIO") {
    facts.input_types.insert(oid("resulttype"));
    const auto source = node.children.empty() ? 0 : type_of(node.children.front().second);
    if (source == 0) facts.readable = false;
    facts.output_types.insert(source);
  } else if (node.name == "SQLVALUEFUNCTION") {
    facts.stable.insert(value_function(node.number("op")));
  } else if (node.name == "NEXTVALUEEXPR") {
    facts.volatile_.insert("nextval");
  } else if (node.name == "JSONCONSTRUCTOREXPR" || node.name == "JSONEXPR") {
    // Follows settings at worst; the functions in it are visited themselves.
    facts.stable.insert("a JSON constructor");
  } else if (node.name == "VAR") {
    facts.columns.insert(static_cast<int>(node.number("varattno")));
  }
  for (const auto& [field, child] : node.children) visit(child, facts);
}

std::string array_of(const std::set<std::uint32_t>& oids) {
  return fmt::format("{{{}}}", fmt::join(oids, ","));
}

}  // namespace

TreeFacts rule_tree_facts(const std::string& tree) {
  TreeFacts facts;
  visit(Reader(tree).whole(), facts);
  return facts;
}

ExpressionReading read_expression(SqlSession& session, const std::string& relation,
                                  const std::string& expression) {
  Savepoint undone(session);
  session.exec(
      fmt::format("CREATE TEMP VIEW cf_expression AS SELECT {} AS cf_value FROM {}", expression, relation));
  const auto facts =
      rule_tree_facts(text_of(session
                                  .exec("SELECT r.ev_action::text FROM pg_rewrite r"
                                        " WHERE r.ev_class = 'pg_temp.cf_expression'::regclass")
                                  .one("rule")[0]));
  const auto functions = session.exec(R"sql(
WITH reached AS (
  SELECT unnest($1::oid[]) AS oid
  UNION SELECT o.oprcode FROM pg_operator o WHERE o.oid = ANY ($2::oid[])
  UNION SELECT t.typinput FROM pg_type t WHERE t.oid = ANY ($3::oid[])
  UNION SELECT t.typoutput FROM pg_type t WHERE t.oid = ANY ($4::oid[]))
SELECT p.oid::regprocedure::text, p.provolatile,
       p.pronamespace = 'pg_catalog'::regnamespace AND p.proname IN (
         'float4out', 'float8out', 'interval_out', 'byteaout', 'point_out', 'lseg_out', 'path_out', 'box_out',
         'poly_out', 'line_out', 'circle_out')
FROM reached r JOIN pg_proc p ON p.oid = r.oid ORDER BY 1)sql",
                                      {array_of(facts.functions), array_of(facts.operators),
                                       array_of(facts.input_types), array_of(facts.output_types)});
  ExpressionReading reading;
  reading.stable.assign(facts.stable.begin(), facts.stable.end());
  reading.volatile_.assign(facts.volatile_.begin(), facts.volatile_.end());
  reading.columns.assign(facts.columns.begin(), facts.columns.end());
  reading.readable = facts.readable;
  for (const auto& row : functions.rows) {
    const auto kind = text_of(row[1]);
    if (kind == "s") reading.stable.push_back(text_of(row[0]));
    if (kind == "v") reading.volatile_.push_back(text_of(row[0]));
    reading.follows_settings = reading.follows_settings || bool_of(row[2]);
  }
  return reading;
}

}  // namespace crossfade
