#pragma once

// The facts of a job (JobFacts) as text. A worker sends them to a coordinator that has no data set.
// A run directory keeps them in `facts.json`, so that a restarted coordinator need not ask a
// worker.

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

/// For the log: describes the data set or program. Warns if a program's steps have fewer
/// microbatches than the job has workers, and names the differences from the run that is resumed.
[[nodiscard]] std::string sentence_of(const JobFacts& facts, const JobConfig& config);

/// The differences between a program's facts before and now: "microbatch 4 (was 8), torch 2.6 (was
/// 1.13)". The number of steps is not compared, nor are initial values, which the resumed state
/// replaces.
[[nodiscard]] std::string changes_of(const JobFacts& before, const JobFacts& now);

/// kCorrupt if the text lacks a fact or contains an impossible one.
[[nodiscard]] Result<JobFacts> parse_facts(const std::string& text);

[[nodiscard]] std::string facts_path(const std::string& run_dir);

/// Reads the facts of a run directory. kNotFound if it has none.
[[nodiscard]] Result<JobFacts> read_facts(const std::string& run_dir);

/// The same, or, for a resumed job, the facts of the run directory or checkpoint that it is resumed
/// from.
[[nodiscard]] Result<JobFacts> facts_on_record(const std::string& run_dir,
                                               const std::string& resume);

}  // namespace mayfly::engine
