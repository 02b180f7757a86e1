#include "crossfade/shadow/profile.hpp"

#include <nlohmann/json.hpp>

#include "crossfade/core/error.hpp"
#include "crossfade/shadow/key_sql.hpp"
#include "profile_sql.hpp"
#include "range_walk.hpp"
#include "reader_settings.hpp"

namespace crossfade {

namespace {

using nlohmann::json;

constexpr std::size_t kSampleKeys = 10;

json errors_json(const ProfileReport& report) {
  json errors = json::object();
  for (const auto& [sqlstate, samples] : report.errors_by_sqlstate) {
    json keys = json::array();
    for (const auto& key : samples.keys) keys.push_back(key.parts);
    errors[sqlstate] = {{"rows", samples.rows}, {"message", samples.message}, {"keys", keys}};
  }
  return errors;
}

json collisions_json(const ProfileReport& report) {
  json list = json::array();
  for (const auto& c : report.collisions) {
    json samples = json::array();
    for (const auto& [one, other] : c.samples) samples.push_back({one.parts, other.parts});
    list.push_back({{"index", c.index},
                    {"proved", c.proved},
                    {"groups", c.groups},
                    {"rows", c.rows},
                    {"samples", samples}});
  }
  return list;
}

std::vector<IndexCollisions> collisions_of(const json& list) {
  std::vector<IndexCollisions> collisions;
  for (const auto& j : list) {
    IndexCollisions c{j.at("index"), j.at("proved"), j.at("groups"), j.at("rows"), {}};
    for (const auto& pair : j.at("samples")) c.samples.emplace_back(Key{pair.at(0)}, Key{pair.at(1)});
    collisions.push_back(std::move(c));
  }
  return collisions;
}

json report_json(const ProfileReport& r) {
  return {{"rows", r.rows},
          {"changed", r.changed},
          {"nulls_in", r.nulls_in},
          {"nulls_out", r.nulls_out},
          {"errors", r.errors},
          {"lossy", r.lossy},
          {"respelled", r.respelled},
          {"rounded", r.rounded},
          {"errors_by_sqlstate", errors_json(r)},
          {"collisions", collisions_json(r)},
          {"row_bytes", r.row_bytes},
          {"seconds", r.seconds},
          {"rows_per_second", r.rows_per_second},
          {"wal_bytes_low", r.wal_bytes_low},
          {"wal_bytes_high", r.wal_bytes_high},
          {"disk_growth_bytes", r.disk_growth_bytes},
          {"seconds_low", r.seconds_low},
          {"seconds_high", r.seconds_high}};
}

ProfileReport report_of(const json& j) {
  ProfileReport r;
  r.rows = j.at("rows");
  r.changed = j.at("changed");
  r.nulls_in = j.at("nulls_in");
  r.nulls_out = j.at("nulls_out");
  r.errors = j.at("errors");
  r.lossy = j.at("lossy");
  r.respelled = j.at("respelled");
  r.rounded = j.at("rounded");
  for (const auto& [sqlstate, samples] : j.at("errors_by_sqlstate").items()) {
    auto& known = r.errors_by_sqlstate[sqlstate];
    known.rows = samples.at("rows");
    known.message = samples.at("message");
    for (const auto& key : samples.at("keys")) known.keys.push_back(Key{key});
  }
  r.collisions = collisions_of(j.value("collisions", json::array()));
  r.row_bytes = j.at("row_bytes");
  r.seconds = j.at("seconds");
  r.rows_per_second = j.at("rows_per_second");
  r.wal_bytes_low = j.at("wal_bytes_low");
  r.wal_bytes_high = j.at("wal_bytes_high");
  r.disk_growth_bytes = j.at("disk_growth_bytes");
  r.seconds_low = j.at("seconds_low");
  r.seconds_high = j.at("seconds_high");
  return r;
}

// Adds the counters of a later range.
void add(ProfileReport& sum, const ProfileReport& range) {
  sum.rows += range.rows;
  sum.changed += range.changed;
  sum.nulls_in += range.nulls_in;
  sum.nulls_out += range.nulls_out;
  sum.errors += range.errors;
  sum.lossy += range.lossy;
  sum.respelled += range.respelled;
  sum.rounded += range.rounded;
  sum.seconds += range.seconds;
  for (const auto& [sqlstate, samples] : range.errors_by_sqlstate) {
    auto& known = sum.errors_by_sqlstate[sqlstate];
    if (known.rows == 0) known.message = samples.message;
    known.rows += samples.rows;
    for (const auto& key : samples.keys) {
      if (known.keys.size() < kSampleKeys) known.keys.push_back(key);
    }
  }
}

ProfileReport counters_of(const SqlResult& groups) {
  ProfileReport counters;
  for (const auto& row : groups.rows) {
    const auto rows = int_of(row[1]);
    counters.rows += rows;
    counters.changed += int_of(row[2]);
    counters.nulls_in += int_of(row[3]);
    counters.nulls_out += int_of(row[4]);
    counters.lossy += int_of(row[5]);
    counters.respelled += int_of(row[6]);
    counters.rounded += int_of(row[7]);
    if (!row[0]) continue;
    counters.errors += rows;
    auto& samples = counters.errors_by_sqlstate[text_of(row[0])];
    samples.rows = rows;
    samples.message = text_of(row[8]);
    for (const auto& key : parse_array(text_of(row[9]))) samples.keys.push_back(parse_key(text_of(key)));
  }
  return counters;
}

// The backfill writes every row whose new value is not NULL: W = rows - nulls_out - errors row versions.
//   seconds  2 to 6 times the reading time of those rows: what an UPDATE of a row takes against reading it,
//            on tables without and with secondary indexes.
//   WAL      heap: W rows of the average width, times 1.2 (record headers, one column wider) to 2.2 (a page
//            image for about every page, after a checkpoint). Indexes: nothing when every update is HOT,
//            else one entry per row in each, which is the size of all indexes.
//   disk     as bad as it gets: every old row version still there (the heap again), a second entry in every
//            index.
void forecast(ProfileReport& report, std::int64_t heap_bytes, std::int64_t index_bytes) {
  report.rows_per_second = report.seconds > 0 ? static_cast<double>(report.rows) / report.seconds : 0;
  if (report.rows == 0) return;
  report.row_bytes = heap_bytes / report.rows;
  const auto written = report.rows - report.nulls_out - report.errors;
  const auto share = static_cast<double>(written) / static_cast<double>(report.rows);
  const auto heap = static_cast<double>(heap_bytes) * share;
  const auto indexes = static_cast<double>(index_bytes) * share;
  report.wal_bytes_low = static_cast<std::int64_t>(heap * 1.2);
  report.wal_bytes_high = static_cast<std::int64_t>(heap * 2.2 + indexes);
  report.disk_growth_bytes = static_cast<std::int64_t>(heap + indexes);
  report.seconds_low = report.seconds * share * 2;
  report.seconds_high = report.seconds * share * 6;
}

// The longest statement of all is the one that a standby's replay cancels first.
std::vector<IndexCollisions> collisions(SqlSession& session, SqlSession* reader, const Migration& m,
                                        const QualifiedName& table) {
  const auto checks = collision_checks(session, m, table, ComparedValue::forward);
  if (reader != nullptr) {
    try {
      return count_collisions(*reader, checks);
    } catch (const Error& error) {
      if (!error.is_serialization_or_deadlock() && reader->is_open()) throw;
    }
  }
  return count_collisions(session, checks);
}

Equality equality_of(SqlSession& session, const std::string& type) {
  try {
    session.exec(equality_probe_sql(type));
    return Equality::by_operator;
  } catch (const Error& error) {
    if (error.sqlstate() != "42883") throw;
    return Equality::by_image;
  }
}

class RangeProfile : public RangeReader {
 public:
  RangeProfile(const Migration& migration, const QualifiedName& table, Equality equality)
      : migration_(migration), table_(table), equality_(equality) {
    const auto& column = migration.binding.column;
    may_fail_ =
        !column.forward.try_function.empty() || (column.backward && !column.backward->try_function.empty());
  }

  RangeRead read(SqlSession& reader, const Piece& piece) override {
    const auto began = std::chrono::steady_clock::now();
    auto profile = counters(reader, key_range_sql(migration_.binding.key, "t", piece.read), piece.processes);
    profile.seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - began).count();
    RangeRead result;
    result.rows = profile.rows;
    result.differences = profile.errors;
    result.result = to_json(profile);
    return result;
  }

 private:
  ProfileReport counters(SqlSession& reader, const std::string& range, int processes) {
    try {
      return read_once(reader, range, processes);
    } catch (const Error& error) {
      if (tolerance_ == Tolerance::tolerant || !error.is_data_error() || !may_fail_) throw;
    }
    tolerance_ = Tolerance::tolerant;
    return read_once(reader, range, processes);
  }

  // Where one row failed the next range begins tolerant.
  ProfileReport read_once(SqlSession& reader, const std::string& range, int processes) {
    auto profile = counters_of(
        exec_shared(reader, profile_range_sql(migration_, table_, equality_, tolerance_, range), processes));
    if (profile.errors == 0) tolerance_ = Tolerance::strict;
    return profile;
  }

  const Migration& migration_;
  const QualifiedName& table_;
  Equality equality_;
  bool may_fail_ = false;
  Tolerance tolerance_ = Tolerance::strict;
};

}  // namespace

std::int64_t colliding_rows(const ProfileReport& report) {
  std::int64_t rows = 0;
  for (const auto& collisions : report.collisions) rows += collisions.rows;
  return rows;
}

std::string to_json(const ProfileReport& report) { return report_json(report).dump(); }

std::optional<ProfileReport> profile_of(const PassRow& pass) {
  if (pass.state != "ended") return std::nullopt;
  const auto stored = json::parse(pass.result);
  if (!stored.contains("rows")) return std::nullopt;
  return report_of(stored);
}

ProfileReport profile_from_json(const std::string& text) { return report_of(json::parse(text)); }

Profiler::Profiler(const Migration& migration, QualifiedName table, RangePace pace)
    : migration_(migration), table_(std::move(table)), pace_(pace), reader_(new_reader()) {}

Profiler::~Profiler() = default;

PassRow Profiler::open_pass(SqlSession& session) {
  return open_read_pass(session, migration_, table_, "profile", "forward", "", reader_);
}

bool Profiler::run(SqlSession& session, CursorCache& cache, const PassRow& pass,
                   std::chrono::milliseconds slice, const std::atomic<bool>& stop,
                   const std::function<void(std::int64_t rows)>& progress, const ReadCrew& crew) {
  if (!walk_ || walk_->pass() != pass.id) {
    RangeWalk::Setup setup{migration_, table_, pass, reader_, "", "dry_run.flushed", "", {}, false, {}};
    setup.reader_of_ranges = [this, equality = equality_of(session, migration_.binding.column.old_type)] {
      return std::make_unique<RangeProfile>(migration_, table_, equality);
    };
    walk_ = std::make_unique<RangeWalk>(std::move(setup), pace_);
  }
  return walk_->run(session, cache, crew, slice, stop, progress);
}

std::int64_t Profiler::rows_read() const { return walk_ ? walk_->rows_read() : 0; }

ProfileReport Profiler::report(SqlSession& session, std::int64_t pass, SqlSession* reader) {
  const SqlParams id{std::to_string(pass)};
  const auto row =
      session
          .exec("SELECT state, result::text, result ? 'rows' FROM crossfade.pass WHERE id = $1::bigint", id)
          .one("the pass");
  if (text_of(row[0]) != "ended") {
    throw Error(ErrorCode::not_ready, "The dry run has not read the whole table yet.",
                "Continue it with 'crossfade next'.");
  }
  if (bool_of(row[2])) return profile_from_json(text_of(row[1]));
  ProfileReport report;
  for (const auto& range :
       session
           .exec("SELECT result::text FROM crossfade.comparison WHERE pass_id = $1::bigint"
                 " ORDER BY number",
                 id)
           .rows) {
    add(report, profile_from_json(text_of(range[0])));
  }
  const auto sizes =
      session.exec(kTableSizes, {std::to_string(migration_.row.table_oid.value)}).one("the sizes");
  forecast(report, int_of(sizes[0]), int_of(sizes[1]));
  report.collisions = collisions(session, reader, migration_, table_);
  session.exec("UPDATE crossfade.pass SET result = result || $2::jsonb WHERE id = $1::bigint",
               {id[0], to_json(report)});
  return report;
}

}  // namespace crossfade
