#include "dsn.hpp"

#include <fmt/format.h>
#include <libpq-fe.h>

#include <algorithm>
#include <cctype>
#include <memory>
#include <set>

namespace crossfade {
namespace {

struct FreeOptions {
  void operator()(PQconninfoOption* options) const { PQconninfoFree(options); }
};
using Options = std::unique_ptr<PQconninfoOption, FreeOptions>;

std::string_view after_uri_scheme(std::string_view text) {
  for (const std::string_view scheme : {"postgresql://", "postgres://"}) {
    if (text.starts_with(scheme)) return text.substr(scheme.size());
  }
  return {};
}

// libpq ends the credentials at the first '@' or '/'. With either character unescaped in the password, the
// rest of the password becomes part of host, port or database, which errors do show.
bool has_misplaced_at(std::string_view text) {
  std::string_view rest = after_uri_scheme(text);
  const std::size_t end = rest.find_first_of("@/");
  if (end != std::string_view::npos && rest[end] == '@') rest.remove_prefix(end + 1);
  return rest.substr(0, rest.find('?')).find('@') != std::string_view::npos;
}

[[noreturn]] void throw_unreadable() {
  throw Error(ErrorCode::usage_error,
              "The connection string cannot be read; it is not shown, as it may hold a secret.",
              "Write it as 'host=… dbname=…' or postgresql://USER@HOST/DATABASE, with special characters "
              "percent-encoded.");
}

bool mentions_password(std::string_view text) {
  std::string lower(text);
  std::ranges::transform(lower, lower.begin(),
                         [](unsigned char c) { return static_cast<char>(std::tolower(c)); });
  if (lower.find("password") != std::string::npos) return true;
  const std::string_view rest = after_uri_scheme(text);
  const std::size_t at = rest.find('@');
  return at != std::string_view::npos && rest.substr(0, at).find(':') != std::string_view::npos;
}

std::string quoted_value(const std::string& value) {
  const auto plain = [](char c) {
    return std::isalnum(static_cast<unsigned char>(c)) != 0 ||
           std::string_view("_-./:,").find(c) != std::string_view::npos;
  };
  if (!value.empty() && std::ranges::all_of(value, plain)) return value;
  std::string out = "'";
  for (const char c : value) {
    if (c == '\'' || c == '\\') out += '\\';
    out += c;
  }
  return out + "'";
}

}  // namespace

namespace dsn {

Keywords parse(std::string_view text) {
  if (text.find('\0') != std::string_view::npos || has_misplaced_at(text)) throw_unreadable();
  const Options options(PQconninfoParse(std::string(text).c_str(), nullptr));
  if (!options) throw_unreadable();
  Keywords keywords;
  for (const PQconninfoOption* option = options.get(); option->keyword != nullptr; ++option) {
    if (option->val != nullptr) keywords.emplace(option->keyword, option->val);
  }
  return keywords;
}

std::string to_conninfo(const Keywords& keywords) {
  std::string out;
  for (const auto& [keyword, value] : keywords) {
    out += fmt::format("{}{}={}", out.empty() ? "" : " ", keyword, quoted_value(value));
  }
  return out;
}

bool is_secret(const std::string& keyword) {
  static const std::set<std::string> secrets = [] {
    std::set<std::string> found{"password", "sslpassword"};
    const Options options(PQconndefaults());
    for (const PQconninfoOption* option = options.get(); option && option->keyword; ++option) {
      if (option->dispchar != nullptr && *option->dispchar == '*') found.insert(option->keyword);
    }
    return found;
  }();
  return secrets.contains(keyword);
}

std::string for_session(const ConnectOptions& options) {
  Keywords keywords = parse(options.dsn);
  keywords["client_encoding"] = "UTF8";
  if (!options.application_name.empty())
    keywords["application_name"] = options.application_name.substr(0, 63);
  const auto seconds = std::chrono::ceil<std::chrono::seconds>(options.connect_timeout).count();
  keywords.emplace("connect_timeout", std::to_string(std::max<std::int64_t>(seconds, 1)));
  // A peer that vanished without a word is noticed within half a minute, not after the kernel's two hours.
  keywords.emplace("keepalives", "1");
  keywords.emplace("keepalives_idle", "10");
  keywords.emplace("keepalives_interval", "5");
  keywords.emplace("keepalives_count", "4");
  keywords.emplace("tcp_user_timeout", "30000");
  return to_conninfo(keywords);
}

std::string description(const Keywords& keywords) {
  Keywords all = keywords;
  const Options defaults(PQconndefaults());
  for (const PQconninfoOption* option = defaults.get(); option && option->keyword; ++option) {
    if (option->val != nullptr) all.emplace(option->keyword, option->val);
  }
  if (!keywords.contains("dbname") && all.contains("service"))
    return fmt::format("service \"{}\"", all["service"]);
  const std::string database = all["dbname"].empty() ? all["user"] : all["dbname"];
  std::string host = all["host"].empty() ? all["hostaddr"] : all["host"];
  if (host.empty()) host = "the local socket";
  return fmt::format("database \"{}\" at {}, port {}", database, host, all["port"]);
}

}  // namespace dsn

void refuse_password(std::string_view text) {
  const auto refuse = [] {
    throw Error(ErrorCode::password_in_dsn,
                "The connection string holds a password, which other users could see.",
                "Use a password file (~/.pgpass), a service file, or the environment variable PGPASSWORD.");
  };
  dsn::Keywords keywords;
  try {
    keywords = dsn::parse(text);
  } catch (const Error&) {
    if (mentions_password(text)) refuse();
    throw;
  }
  for (const auto& [keyword, value] : keywords) {
    if (dsn::is_secret(keyword)) refuse();
  }
}

std::string redacted(std::string_view text) {
  try {
    dsn::Keywords keywords = dsn::parse(text);
    std::erase_if(keywords, [](const auto& entry) { return dsn::is_secret(entry.first); });
    return dsn::to_conninfo(keywords);
  } catch (const Error&) {
    return "(an unreadable connection string)";
  }
}

}  // namespace crossfade
