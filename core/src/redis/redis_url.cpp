#include "redis_url.hpp"

#include <fmt/format.h>

#include <charconv>
#include <string_view>

#include "crossfade/core/error.hpp"

namespace crossfade::redis {
namespace {

[[noreturn]] void refuse(std::string_view why) {
  throw Error(ErrorCode::usage_error, fmt::format("The Redis url is malformed: {}.", why),
              "Write redis://HOST[:PORT][/DB], redis://:PASSWORD@HOST or unix:///path/to/socket.");
}

int number(std::string_view text, int least, int most, std::string_view what) {
  int value = 0;
  const auto [end, failure] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (failure != std::errc{} || end != text.data() + text.size() || value < least || value > most) {
    refuse(fmt::format("{} must be a number from {} to {}", what, least, most));
  }
  return value;
}

std::string percent_decoded(std::string_view text) {
  std::string out;
  for (std::size_t i = 0; i < text.size(); ++i) {
    if (text[i] != '%') {
      out += text[i];
      continue;
    }
    int byte = 0;
    const std::string_view digits = text.substr(i + 1, 2);
    const auto [end, failure] = std::from_chars(digits.data(), digits.data() + digits.size(), byte, 16);
    if (digits.size() != 2 || failure != std::errc{} || end != digits.data() + 2)
      refuse("a '%' without two digits");
    out += static_cast<char>(byte);
    i += 2;
  }
  return out;
}

void read_host(Url& url, std::string_view text) {
  std::string_view port;
  if (text.starts_with('[')) {  // IPv6
    const std::size_t end = text.find(']');
    if (end == std::string_view::npos) refuse("a '[' without its ']'");
    url.host = text.substr(1, end - 1);
    port = text.substr(end + 1);
  } else {
    url.host = text.substr(0, text.find(':'));
    port = text.substr(url.host.size());
  }
  if (url.host.empty()) refuse("no host");
  if (port.empty()) return;
  if (!port.starts_with(':')) refuse("something other than ':PORT' after the host");
  url.port = number(port.substr(1), 1, 65535, "the port");
}

}  // namespace

std::string Url::display() const {
  if (!socket.empty()) return "unix://" + socket;
  return fmt::format("redis://{}:{}/{}", host.find(':') == std::string::npos ? host : "[" + host + "]", port,
                     database);
}

Url parse_url(const std::string& text) {
  Url url;
  std::string_view rest = text;
  if (rest.starts_with("unix://")) {
    url.socket = rest.substr(7);
    if (!url.socket.starts_with('/')) refuse("a socket needs an absolute path");
    return url;
  }
  if (!rest.starts_with("redis://")) refuse("it starts with neither redis:// nor unix://");
  rest.remove_prefix(8);
  // The last '@': whatever an unescaped password holds, no part of it becomes a host name that errors would
  // show.
  if (const std::size_t at = rest.rfind('@'); at != std::string_view::npos) {
    const std::string_view login = rest.substr(0, at);
    rest.remove_prefix(at + 1);
    const std::size_t colon = login.find(':');
    if (colon == std::string_view::npos) refuse("a user without ':PASSWORD'");
    url.user = percent_decoded(login.substr(0, colon));
    url.password = percent_decoded(login.substr(colon + 1));
  }
  if (const std::size_t slash = rest.find('/'); slash != std::string_view::npos) {
    const std::string_view database = rest.substr(slash + 1);
    rest = rest.substr(0, slash);
    if (!database.empty()) url.database = number(database, 0, 65535, "the database");
  }
  read_host(url, rest);
  return url;
}

}  // namespace crossfade::redis
