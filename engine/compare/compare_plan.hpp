#pragma once

// The runs of `mayfly compare`: every variant of synchronisation under every condition, with the
// same sample budget and the same seeds. Pure; no thread matters.

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "base/result.hpp"
#include "engine/config/config.hpp"

namespace mayfly::engine {

/// A setting of a job and its value.
using SettingValue = std::pair<std::string, std::string>;

/// A way to synchronise: "allreduce", or phases as --phases takes them ("bsp", "ssp:2",
/// "bsp:25%,asp"), optionally with a policy for stragglers ("bsp:25%,asp+elastic").
struct CompareVariant {
  std::string name;
  std::vector<SettingValue> settings;
};

/// "clean", "straggler" (with --inject), "kill" (with --chaos) or "straggler+kill". The defaults of
/// these settings: one worker is three times as slow in every other eighth of the job, and one dies
/// after a third of the job and is replaced a tenth of the job later.
struct CompareCondition {
  std::string name;
  bool straggler = false;
  bool kill = false;
};

/// The cost of an hour of one worker; 0 = not given.
struct WorkerPrices {
  double spot = 0;
  double on_demand = 0;
};

struct CompareOptions {
  std::string folder;  ///< for all results; finished runs in it are kept
  std::string variants =
      "allreduce bsp ssp:2 asp bsp:25%,asp bsp:25%,asp+greedy bsp:25%,asp+elastic";
  std::string conditions = "clean straggler kill";
  std::uint32_t seeds = 3;
  std::uint64_t first_seed = 1;
  std::vector<SettingValue> settings;  ///< of every job; "inject" and "chaos" of some
  bool quick = false;                  ///< a small job and one seed by default
  bool json = false;                   ///< print the results instead of a table
  WorkerPrices prices;                 ///< the table then contains the cost of the runs
};

/// The units of the counts in a job's records.
struct WorkSize {
  std::uint64_t microbatch = 0;      ///< samples that are always computed again together
  std::uint64_t slice = 0;           ///< the same, of parameter servers
  std::uint64_t gradient_bytes = 4;  ///< of each number of a gradient in the all-reduce
};

/// One run.
struct CompareCell {
  std::string id;  ///< a file name
  std::string variant;
  std::string condition;
  std::uint64_t seed = 0;
  std::vector<SettingValue> settings;  ///< complete except the run directory
  WorkSize size{};
};

struct ComparePlan {
  std::vector<std::string> variants;    ///< by name, in order
  std::vector<std::string> conditions;  ///< the same
  std::vector<CompareCell> cells;       ///< those of one seed follow each other
  JobConfig base;                       ///< the settings that all cells share

  /// The settings that must be equal for earlier results to be kept.
  [[nodiscard]] std::string fingerprint() const;
};

/// The default settings of a small or a usual job.
[[nodiscard]] std::vector<SettingValue> compare_defaults(bool quick);

[[nodiscard]] Result<CompareVariant> parse_compare_variant(const std::string& text);
[[nodiscard]] Result<CompareCondition> parse_compare_condition(const std::string& text);

/// The command line of this comparison, word by word.
[[nodiscard]] std::vector<std::string> compare_words(const CompareOptions& options);
/// Appends the flags that describe the job: --quick, and settings with their values.
void append_job(std::vector<std::string>& words, bool quick,
                const std::vector<SettingValue>& settings);

/// kInvalidInput names the invalid variant, condition or setting, before any job is run.
[[nodiscard]] Result<ComparePlan> make_compare_plan(const CompareOptions& options);

}  // namespace mayfly::engine
