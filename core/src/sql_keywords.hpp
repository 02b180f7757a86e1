// The words that quote_ident() of PostgreSQL quotes: every keyword that is not unreserved.
#pragma once

#include <string_view>

namespace crossfade {

bool is_reserved_keyword(std::string_view word);

}  // namespace crossfade
