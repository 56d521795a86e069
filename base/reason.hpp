#pragma once

#include <exception>
#include <string>

namespace mayfly {

/// What a library's exception says, for people: without the place in the library's source that Gloo
/// puts before it and Boost behind it.
[[nodiscard]] std::string reason_of(const std::exception& failure);

}  // namespace mayfly
