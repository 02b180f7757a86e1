// "The same words" may hide a cast. Over a smallint, coalesce(b, 0) is COALESCE((b)::integer, 0) to
// PostgreSQL, and that is how it says it: made again over a bigint, by those words, it fails for what an
// integer cannot hold. In an index, a CHECK or a trigger such a value could not be written, which the column
// was widened for. The cast came by itself where the old type needs none to be written; it is narrowing where
// the new type needs one.
#include <fmt/format.h>

#include "reading.hpp"

namespace crossfade {

namespace {

// $1 old type, $2 new type, $3 the stored tree, $4 the number of the column in it, as a regular expression.
constexpr const char* kNarrowing = R"sql(
SELECT format_type(c.casttarget, NULL) FROM pg_cast c
WHERE c.castsource = $1::oid AND c.castcontext = 'i' AND c.castfunc <> 0 AND c.casttarget <> $2::regtype
  AND NOT EXISTS (SELECT 1 FROM pg_cast n WHERE n.castsource = $2::regtype AND n.casttarget = c.casttarget
    AND n.castcontext = 'i')
  AND $3::text ~ format('FUNCEXPR :funcid %s [^{}]*:args \(\{VAR :varno [0-9]+ :varattno %s :vartype %s ',
                  c.castfunc, $4::text, c.castsource)
ORDER BY 1 LIMIT 1)sql";

std::string tree_of_reference(ReferenceKind kind) {
  switch (kind) {
    case ReferenceKind::index:
      return "concat(indexprs, indpred) FROM pg_index WHERE indexrelid";
    case ReferenceKind::constraint:
      return "conbin::text FROM pg_constraint WHERE oid";
    case ReferenceKind::trigger:
      return "tgqual::text FROM pg_trigger WHERE oid";
    case ReferenceKind::rule:
      return "concat(ev_action, ev_qual) FROM pg_rewrite WHERE oid";
    case ReferenceKind::view:
      return "string_agg(ev_action::text, ' ') FROM pg_rewrite WHERE ev_class";
    case ReferenceKind::policy:
      return "concat(polqual, polwithcheck) FROM pg_policy WHERE oid";
    case ReferenceKind::statistics:
      return "stxexprs::text FROM pg_statistic_ext WHERE oid";
    case ReferenceKind::function:
      return "prosqlbody::text FROM pg_proc WHERE oid";
    // Before PostgreSQL 15 a publication has no filter, and the reference is not there.
    case ReferenceKind::publication:
      return "prqual::text FROM pg_publication_rel WHERE oid";
    case ReferenceKind::own_default:
    case ReferenceKind::not_null:
    case ReferenceKind::materialised_view:
    case ReferenceKind::generated_column:
    case ReferenceKind::own_generation:
    case ReferenceKind::sequence:
    case ReferenceKind::partition_key:
    case ReferenceKind::unknown:
      break;
  }
  return {};
}

}  // namespace

std::optional<std::string> hidden_narrowing(Reading& reading, ReferenceKind kind, std::uint32_t oid,
                                            InTree in_tree) {
  const auto from = tree_of_reference(kind);
  if (from.empty()) return std::nullopt;
  const auto tree =
      reading.session.exec(fmt::format("SELECT {} = $1::oid", from), {std::to_string(oid)}).one("tree");
  if (!tree[0]) return std::nullopt;
  const auto number = in_tree == InTree::by_number ? std::to_string(reading.facts.attnum) : "[0-9]+";
  const auto found = reading.session.exec(
      kNarrowing, {std::to_string(reading.facts.type.value), reading.column.new_base_type, tree[0], number});
  if (found.empty()) return std::nullopt;
  const auto type = text_of(found[0][0]);
  return fmt::format(
      "its words take the column for {}, by a cast that PostgreSQL put there, and {} holds "
      "values that {} does not",
      type, reading.column.new_type, type);
}

}  // namespace crossfade
