#include "unit_claim.hpp"

namespace crossfade {

// Why a takeover need not wait for the leases of the runner before it. A lease only keeps two workers of one
// runner apart; what keeps an old runner's worker from writing is the fence. Its chunk either holds the unit
// row when we look (SKIP LOCKED passes over it until the chunk is over, and the next claim reads the
// watermark that it committed), or finds another lease token when it locks the row, and then writes neither
// rows nor watermark, even if its snapshot is from before the takeover. So a unit whose lease was taken under
// another token is free at once. The token is read as the claim begins: a claim of an old runner that began
// just before the takeover may still take a unit away from us. Our next chunk there finds another lease
// token, writes nothing, and we claim the unit again.
std::string claim_unit_sql() {
  // Started units first, so that leases are few and bounds are reached; the rest in an order that spreads
  // writes.
  return "WITH runner AS MATERIALIZED (SELECT m.token FROM crossfade.migration m WHERE m.id = $2::uuid"
         " AND m.token = $3::uuid),"
         " free AS (SELECT u.pass_id, u.number FROM crossfade.unit u WHERE u.pass_id = $1::bigint AND "
         "NOT u.done AND EXISTS (SELECT FROM runner)"
         " AND (u.lease_until IS NULL OR u.lease_until < clock_timestamp()"
         "  OR u.lease_runner IS DISTINCT FROM $3::uuid"
         "  OR NOT EXISTS (SELECT FROM pg_stat_activity a WHERE a.pid = u.lease_pid"
         "                 AND coalesce(a.backend_start, u.lease_backend_start) = u.lease_backend_start))"
         " ORDER BY u.watermark IS NULL, hashint4(u.number) LIMIT 1 FOR UPDATE SKIP LOCKED)"
         " UPDATE crossfade.unit u SET lease_token = gen_random_uuid(), lease_runner = $3::uuid,"
         " lease_pid = pg_backend_pid(),"
         " lease_backend_start = (SELECT a.backend_start FROM pg_stat_activity a WHERE a.pid = "
         "pg_backend_pid()),"
         " lease_until = clock_timestamp() + interval '15 s' FROM free f"
         " WHERE u.pass_id = f.pass_id AND u.number = f.number"
         " RETURNING u.number, u.low, u.high, u.watermark, u.lease_token, u.relation, u.window_bounds, "
         "u.visits,"
         " u.visit, u.piece, u.within, u.range_by";
}

// Only a column that nothing but the holder's next look reads is written, so whoever asks, and however late,
// changes no position. It waits for the chunk that has the unit's row locked, holding nothing itself, and for
// no longer than the worker's statement_timeout. Units that were not begun come first, then any: how much is
// left of one, only its holder can find out.
std::string ask_for_split_sql() {
  return "UPDATE crossfade.unit u SET split = 'wanted' FROM (SELECT o.pass_id, o.number FROM crossfade.unit o"
         " WHERE o.pass_id = $1::bigint AND NOT o.done AND o.split IS NULL AND "
         "o.lease_runner = $3::uuid"
         " AND o.lease_until > clock_timestamp()"
         " AND NOT EXISTS (SELECT FROM crossfade.unit w WHERE w.pass_id = $1::bigint AND w.split = 'wanted'"
         "  AND NOT w.done)"
         " ORDER BY o.watermark IS NOT NULL, random() LIMIT 1) f"
         " WHERE u.pass_id = f.pass_id AND u.number = f.number AND NOT u.done AND u.split IS NULL"
         " AND EXISTS (SELECT FROM crossfade.migration m WHERE m.id = $2::uuid AND m.token = $3::uuid)";
}

}  // namespace crossfade
