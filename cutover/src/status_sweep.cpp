#include "status_sweep.hpp"

#include <nlohmann/json.hpp>
#include <string>

namespace crossfade {

StatusReport::Sweep sweep_of(SqlSession& session, std::int64_t pass, const UnitTotals& totals) {
  const auto told = nlohmann::json::parse(
      text_of(session.exec("SELECT sweep FROM crossfade.pass WHERE id = $1::bigint", {std::to_string(pass)})
                  .one("the sweep")[0]));
  StatusReport::Sweep sweep{told.value("order", "key"),
                            told.value("order_reason", ""),
                            told.value("interleave", 1),
                            told.value("interleave_reason", ""),
                            {}};
  if (totals.rows_written > 0)
    sweep.hot_ratio = static_cast<double>(totals.rows_hot) / static_cast<double>(totals.rows_written);
  return sweep;
}

}  // namespace crossfade
