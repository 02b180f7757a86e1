#include <fmt/format.h>

#include "checks.hpp"

namespace crossfade::checks {

namespace {

void publications(const Context& context) {
  const auto found = context.session.exec(R"sql(
SELECT p.pubname, p.puballtables, p.pubupdate AND (c.relreplident = 'n' OR (c.relreplident = 'd'
         AND NOT EXISTS (SELECT 1 FROM pg_index i WHERE i.indrelid = c.oid AND i.indisprimary)))
FROM pg_publication p JOIN pg_class c ON c.oid = $1::oid
WHERE EXISTS (SELECT 1 FROM pg_get_publication_tables(p.pubname) m WHERE m.relid = c.oid)
ORDER BY p.pubname)sql",
                                          {context.table_oid()});
  for (const auto& row : found.rows) {
    const auto name = display_identifier(text_of(row[0]));
    context.warn(
        "published_table", name,
        fmt::format(
            "Publication {} sends table {}: a subscriber stops at the first row with the new column "
            "until its table has that column{}.",
            name, context.table_text(),
            bool_of(row[1]) ? ", and being FOR ALL TABLES it sends the tables of schema crossfade too" : ""),
        fmt::format("Add the column {} to the subscriber's table right before backfill begins.",
                    context.column == nullptr ? std::string("of the shadow")
                                              : display_identifier(context.column->shadow_name)));
    if (!bool_of(row[2])) continue;
    context.refuse(
        "published_table", name,
        fmt::format("Publication {} sends updates, but table {} has no replica identity: the sweep's first "
                    "UPDATE would fail.",
                    name, context.table_text()),
        "ALTER TABLE … REPLICA IDENTITY USING INDEX ….");
  }
}

void subscriptions(const Context& context) {
  const auto found = context.session.exec(
      "SELECT s.subname FROM pg_subscription_rel r JOIN pg_subscription s ON s.oid = r.srsubid"
      " WHERE r.srrelid = $1::oid ORDER BY s.subname",
      {context.table_oid()});
  for (const auto& row : found.rows) {
    const auto name = display_identifier(text_of(row[0]));
    context.inform(
        "published_table", name,
        fmt::format("Subscription {} writes to table {}; the capture fires on its rows too.", name,
                    context.table_text()),
        "Nothing to do before the switch; after it the publisher's values go through the new type.");
  }
}

}  // namespace

void published_table(const Context& context) {
  publications(context);
  subscriptions(context);
}

}  // namespace crossfade::checks
