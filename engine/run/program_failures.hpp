#pragma once

// Programs that fail at the same place. A microbatch whose computation raises on one worker is
// computed by another one, as after any loss. If it raises there, too, the reason is in its samples
// or in the program, and each further worker would be lost to it as well.

#include <map>
#include <optional>
#include <string>

#include "engine/run/records.hpp"

namespace mayfly::engine {

/// One thread.
class ProgramFailures {
 public:
  /// Why the job has to end, if another worker has failed at the same microbatch, or chunk of an
  /// evaluation, before: with both workers, the samples, and what was raised.
  [[nodiscard]] std::optional<std::string> reason_to_end(const ProgramFailureRecord& failure);

 private:
  std::map<std::string, std::uint64_t> first_at_;  // the member that failed there first
};

/// "17, 4 and 6": sample numbers, at most twelve of them.
[[nodiscard]] std::string sample_words(const std::vector<std::uint64_t>& samples);

}  // namespace mayfly::engine
