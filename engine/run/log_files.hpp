#pragma once

#include <cstddef>
#include <string>
#include <string_view>

namespace mayfly::engine {

/// A job that replaces its workers has new ids for ever, and each leaves files in the run
/// directory's logs/: of those whose names begin with `prefix` the `keep` that were written last
/// stay. One that is removed while its member lives is begun anew when there is more to write. Any
/// thread.
void keep_newest_logs(const std::string& run_dir, std::string_view prefix, std::size_t keep);

}  // namespace mayfly::engine
