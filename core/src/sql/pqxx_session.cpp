#include "pqxx_session.hpp"

#include <algorithm>
#include <mutex>
#include <pqxx/pqxx>
#include <utility>

#define CROSSFADE_PQXX_AT_LEAST(major, minor) \
  (PQXX_VERSION_MAJOR > (major) || (PQXX_VERSION_MAJOR == (major) && PQXX_VERSION_MINOR >= (minor)))

namespace crossfade {
namespace {

constexpr std::size_t kMostNotices = 1000;

class Notices {
 public:
  void add(std::string text) {
    while (!text.empty() && text.back() == '\n') text.pop_back();
    const std::lock_guard guard(mutex_);
    if (texts_.size() < kMostNotices) texts_.push_back(std::move(text));
  }
  std::vector<std::string> take() {
    const std::lock_guard guard(mutex_);
    return std::exchange(texts_, {});
  }

 private:
  std::mutex mutex_;
  std::vector<std::string> texts_;
};

#if !CROSSFADE_PQXX_AT_LEAST(7, 10)
class NoticeHandler final : public pqxx::errorhandler {
 public:
  NoticeHandler(pqxx::connection& connection, Notices& notices)
      : errorhandler(connection), notices_(notices) {}
  bool operator()(const char text[]) noexcept override {
    try {
      notices_.add(text);
    } catch (...) {  // out of memory: the notice is lost, nothing else
    }
    return false;
  }

 private:
  Notices& notices_;
};
#endif

#if PQXX_VERSION_MAJOR >= 7
pqxx::params bound(const SqlParams& params) {
  pqxx::params out;
  for (const SqlValue& value : params) out.append(value);
  return out;
}
#else
std::vector<const char*> bound(const SqlParams& params) {
  std::vector<const char*> out;
  out.reserve(params.size());
  for (const SqlValue& value : params) out.push_back(value ? value->c_str() : nullptr);
  return out;
}
#endif

// libpqxx 6 would silently cut the value there; no PostgreSQL text can hold it.
void refuse_nul(const SqlParams& params) {
  const auto has_nul = [](const SqlValue& value) { return value && value->find('\0') != std::string::npos; };
  if (std::ranges::any_of(params, has_nul)) {
    throw Error(ErrorCode::internal_error,
                "A parameter holds a NUL byte, which PostgreSQL cannot store in text.");
  }
}

SqlResult copied(const pqxx::result& result) {
  SqlResult out;
  out.affected_rows = static_cast<std::int64_t>(result.affected_rows());
  out.rows.reserve(static_cast<std::size_t>(result.size()));
  for (const auto& row : result) {
    SqlResult::Row& values = out.rows.emplace_back();
    values.reserve(static_cast<std::size_t>(row.size()));
    for (const auto& field : row) {
      if (field.is_null()) {
        values.emplace_back();
      } else {
        values.emplace_back(std::in_place, field.c_str(), static_cast<std::size_t>(field.size()));
      }
    }
  }
  return out;
}

}  // namespace

struct PqxxSession::Connection {
  // Declared in this order: the connection may report until it is gone, and the handler must go before it.
  Notices notices;
  pqxx::connection pqxx;
#if !CROSSFADE_PQXX_AT_LEAST(7, 10)
  NoticeHandler handler;
  explicit Connection(const std::string& conninfo) : pqxx(conninfo), handler(pqxx, notices) {
    never_reconnect();
  }
#else
  explicit Connection(const std::string& conninfo) : pqxx(conninfo) {
    pqxx.set_notice_handler([this](pqxx::zview text) noexcept { notices.add(std::string(text)); });
  }
#endif

  void never_reconnect() {
#if PQXX_VERSION_MAJOR < 7
    // A revived connection would have lost its locks, settings and prepared statements without a word.
#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wdeprecated-declarations"
    pqxx.inhibit_reactivation(true);
#pragma GCC diagnostic pop
#endif
  }
};

PqxxSession::PqxxSession(const std::string& conninfo) : connection_(std::make_unique<Connection>(conninfo)) {
  backend_pid_ = connection_->pqxx.backendpid();
  server_version_ = connection_->pqxx.server_version();
  if (const char* role = connection_->pqxx.username()) role_ = role;
}

PqxxSession::~PqxxSession() = default;

SqlResult PqxxSession::exec(const std::string& sql) {
  pqxx::nontransaction transaction(connection_->pqxx);
  return copied(transaction.exec(sql));
}

SqlResult PqxxSession::exec(const std::string& sql, const SqlParams& params) {
  refuse_nul(params);
  pqxx::nontransaction transaction(connection_->pqxx);
#if CROSSFADE_PQXX_AT_LEAST(7, 10)
  return copied(transaction.exec(sql, bound(params)));
#elif PQXX_VERSION_MAJOR >= 7
  return copied(transaction.exec_params(sql, bound(params)));
#else
  const std::vector<const char*> values = bound(params);
  return copied(transaction.exec_params(sql, pqxx::prepare::make_dynamic_params(values)));
#endif
}

void PqxxSession::prepare(const std::string& name, const std::string& sql) {
  connection_->pqxx.prepare(name, sql);
}

SqlResult PqxxSession::exec_prepared(const std::string& name, const SqlParams& params) {
  refuse_nul(params);
  pqxx::nontransaction transaction(connection_->pqxx);
#if CROSSFADE_PQXX_AT_LEAST(7, 10)
  return copied(transaction.exec(pqxx::prepped{name}, bound(params)));
#elif PQXX_VERSION_MAJOR >= 7
  return copied(transaction.exec_prepared(name, bound(params)));
#else
  const std::vector<const char*> values = bound(params);
  return copied(transaction.exec_prepared(name, pqxx::prepare::make_dynamic_params(values)));
#endif
}

bool PqxxSession::is_open() const { return connection_->pqxx.is_open(); }

void PqxxSession::cancel() noexcept {
  try {
    connection_->pqxx.cancel_query();
  } catch (...) {  // the statement may have ended or the server gone; the statement's own error tells
  }
}

std::vector<std::string> PqxxSession::take_notices() { return connection_->notices.take(); }

}  // namespace crossfade
