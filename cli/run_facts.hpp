#pragma once

// Reads a run directory into what a calibration needs of it. Any thread.

#include <string>
#include <vector>

#include "base/result.hpp"
#include "cli/arguments.hpp"
#include "cloud_hooks/core/provider.hpp"
#include "planner/runs/run_facts.hpp"

namespace mayfly::cli {

/// What a run directory does not record, as the user says it.
struct RunKnowledge {
  std::string machine;  ///< type of workers that no provider started; empty = the host's name
  double cores = 0;     ///< of the host that several of them shared; 0 = as recorded, or those of
                        ///< this machine if it is that host
};

struct RunRecord {
  planner::RunFacts facts;
  planner::RunCourse course;
};

/// The options that say it, and what they say.
[[nodiscard]] std::vector<OptionSpec> run_knowledge_options();
[[nodiscard]] Result<RunKnowledge> read_knowledge(const ParsedArguments& arguments);

/// What a calibration from own runs calls the machine type of an offer: without what separates the
/// types of a cluster, and not empty.
[[nodiscard]] std::string machine_of_offer(const cloud_hooks::Offer& offer);

/// Reads the records of a run that has ended or still goes on. kNotFound or kInvalidInput with one
/// line if the folder is no run directory, its records are of an earlier version, or no step is on
/// record.
[[nodiscard]] Result<RunRecord> read_run_record(const std::string& path,
                                                const RunKnowledge& knowledge);

}  // namespace mayfly::cli
