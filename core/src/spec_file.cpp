#include <cerrno>
#include <cstdio>
#include <cstring>
#include <memory>

#include <fmt/format.h>

#include "crossfade/core/error.hpp"
#include "crossfade/core/spec.hpp"
#include "spec_reader.hpp"

namespace crossfade {

std::string read_spec_file(const std::string& path) {
  const auto fail = [&](std::string_view reason) -> Error {
    return {ErrorCode::spec_unreadable,
            fmt::format("The spec file \"{}\" cannot be read: {}.", path, reason),
            {},
            path};
  };
  const std::unique_ptr<std::FILE, int (*)(std::FILE*)> file(std::fopen(path.c_str(), "rb"), std::fclose);
  if (!file) throw fail(std::strerror(errno));
  std::string text(kMaxSpecBytes + 1, '\0');
  text.resize(std::fread(text.data(), 1, text.size(), file.get()));
  if (std::ferror(file.get()) != 0) throw fail(std::strerror(errno));
  if (text.size() > kMaxSpecBytes) throw fail(fmt::format("it is larger than {} bytes", kMaxSpecBytes));
  return text;
}

}  // namespace crossfade
