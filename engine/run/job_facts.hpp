#pragma once

// The facts of a job (JobFacts) as a text: what a worker tells a coordinator that has no data set,
// and the file `facts.json` of a run directory, from which a coordinator goes on without asking.

#include <cstddef>
#include <cstdint>
#include <string>

#include "base/result.hpp"
#include "engine/job/job.hpp"

namespace mayfly::engine {

/// Upper limit of their text: room for the names of tens of thousands of tensors.
inline constexpr std::size_t kFactsBytesMax = std::size_t{1} << 20;

/// One line of JSON.
[[nodiscard]] std::string to_json(const JobFacts& facts);

/// What is trained on, for the log; that some of the workers will have nothing to compute, if a
/// program's steps have fewer microbatches; and what is different in the run that is resumed.
[[nodiscard]] std::string sentence_of(const JobFacts& facts, const JobConfig& config);

/// What a program now has otherwise than before: "microbatch 4 (was 8), torch 2.6 (was 1.13)". The
/// number of steps does not count, nor initial values, in whose place the resumed state comes.
[[nodiscard]] std::string changes_of(const JobFacts& before, const JobFacts& now);

/// kCorrupt if the text does not say all of them, or one that cannot be.
[[nodiscard]] Result<JobFacts> parse_facts(const std::string& text);

[[nodiscard]] std::string facts_path(const std::string& run_dir);

/// Reads the facts of a run directory. kNotFound if it has none.
[[nodiscard]] Result<JobFacts> read_facts(const std::string& run_dir);

/// The same, or, for a resumed job, the facts of the run directory or checkpoint that it is resumed
/// from.
[[nodiscard]] Result<JobFacts> facts_on_record(const std::string& run_dir,
                                               const std::string& resume);

}  // namespace mayfly::engine
