#pragma once

#include <string>
#include <string_view>

#include "base/result.hpp"

namespace mayfly::cli {

/// The JSON answer to `status` as readable text: one line per plain field, then one aligned table
/// per list of objects (the members). Unknown fields are shown like known ones, so that an older
/// program can ask a newer job. kCorrupt if it is not a JSON object.
[[nodiscard]] Result<std::string> status_table(std::string_view json);

}  // namespace mayfly::cli
