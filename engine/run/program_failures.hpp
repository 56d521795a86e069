#pragma once

// Programs that fail at the same place. A microbatch whose computation raises on one worker is
// computed by another one, as after any loss. If it raises there, too, its samples or the program
// are the cause, and each further worker would fail as well.

#include <map>
#include <optional>
#include <string>

#include "engine/run/records.hpp"

namespace mayfly::engine {

/// One thread.
class ProgramFailures {
 public:
  /// The reason to end the job, if another worker has already failed at the same microbatch or at
  /// the same chunk of an evaluation; nothing otherwise. It names both workers, the samples, and
  /// the exception.
  [[nodiscard]] std::optional<std::string> reason_to_end(const ProgramFailureRecord& failure);

 private:
  std::map<std::string, std::uint64_t> first_at_;  // the member that failed there first
};

/// "17, 4 and 6": sample numbers, at most twelve of them.
[[nodiscard]] std::string sample_words(const std::vector<std::uint64_t>& samples);

}  // namespace mayfly::engine
