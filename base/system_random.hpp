#pragma once

// Random numbers of the operating system, for names and ids that must differ between processes and
// hosts. Nothing that a job computes may depend on them: see base/random.hpp for that. Secrets are
// made by elastic/net/job_token.

#include <cstdint>

namespace mayfly {

/// Another number at each call, in any process. Any thread. Ends the process if the system has no
/// random numbers.
[[nodiscard]] std::uint64_t system_random();

}  // namespace mayfly
