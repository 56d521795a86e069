#pragma once

#include <cstddef>
#include <string>

namespace mayfly::engine {

/// A member that has seen trouble leaves logs/flight-member-ID.log, and a job that replaces its
/// workers has new ids for ever: of these files the `keep` that were written last stay. One that is
/// removed while its member lives is begun anew when there is more to write.
void prune_member_records(const std::string& run_dir, std::size_t keep);

}  // namespace mayfly::engine
