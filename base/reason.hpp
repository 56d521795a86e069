#pragma once

#include <exception>
#include <string>

namespace mayfly {

/// The message of a library's exception without the source location that Gloo puts before it and
/// Boost behind it.
[[nodiscard]] std::string reason_of(const std::exception& failure);

}  // namespace mayfly
