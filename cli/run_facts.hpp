#pragma once

// Reads the facts of a run directory that a calibration needs. Any thread.

#include <string>
#include <vector>

#include "base/result.hpp"
#include "cli/arguments.hpp"
#include "cloud_hooks/core/provider.hpp"
#include "planner/runs/run_facts.hpp"

namespace mayfly::cli {

/// Facts from the user that a run directory does not record.
struct RunKnowledge {
  std::string machine;  ///< type of workers that no provider started; empty = the host's name
  double cores = 0;     ///< of the host that several workers shared; 0 = as recorded, or those of
                        ///< this machine if it is that host
};

struct RunRecord {
  planner::RunFacts facts;
  planner::RunCourse course;
};

/// The options with these facts, and their values.
[[nodiscard]] std::vector<OptionSpec> run_knowledge_options();
[[nodiscard]] Result<RunKnowledge> read_knowledge(const ParsedArguments& arguments);

/// The name of an offer's machine type in a calibration from own runs: with '-' for the characters
/// that separate the types of a cluster, and never empty.
[[nodiscard]] std::string machine_of_offer(const cloud_hooks::Offer& offer);

/// Reads the records of a run that has ended or still goes on. kNotFound or kInvalidInput with one
/// line if the folder is no run directory, or no step is on record.
[[nodiscard]] Result<RunRecord> read_run_record(const std::string& path,
                                                const RunKnowledge& knowledge);

}  // namespace mayfly::cli
