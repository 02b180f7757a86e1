// Where a Redis is and how to log in to it.
#pragma once

#include <string>

namespace crossfade::redis {

struct Url {
  std::string socket;  // a path; else host and port count
  std::string host;
  int port = 6379;
  int database = 0;
  std::string user, password;
  // Without user and password, for people.
  std::string display() const;
};

// redis://[[USER]:PASSWORD@]HOST[:PORT][/DB] or unix:///path; user and password may be percent-encoded.
// Throws usage_error without repeating the text, which may hold a password.
Url parse_url(const std::string& text);

}  // namespace crossfade::redis
