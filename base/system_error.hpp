#pragma once

#include <string>

#include "base/result.hpp"

namespace mayfly {

/// "WHAT: No such file or directory": with what the system says about the errno `number`. Any
/// thread.
[[nodiscard]] Error system_error(const std::string& what, int number, Errc code = Errc::kIo);

}  // namespace mayfly
