#pragma once

// Constructs the provider that the settings name, and the report of `mayfly cloud doctor` on a
// job's GPUs. Starts nothing and sends no request.

#include <cstddef>
#include <memory>
#include <string>
#include <vector>

#include "base/result.hpp"
#include "cloud_hooks/core/provider.hpp"
#include "engine/config/config.hpp"

namespace mayfly::engine {

/// The label of the job's servers: cloud_job, or else the name of the run directory, in a form that
/// every provider accepts: [a-z0-9-], at most 40 characters. On hosts over ssh it also contains
/// token_mark(), if there is a token.
[[nodiscard]] std::string cloud_label(const JobConfig& config);
/// Eight hexadecimal digits of a hash of the job's token, equal in all its processes; empty without
/// one.
[[nodiscard]] std::string token_mark(const JobConfig& config);

/// The provider that config.cloud_provider names, for the job with that label. The local provider
/// starts the command `local_argv`. kInvalidInput if no provider has that name, or its settings are
/// wrong.
[[nodiscard]] Result<std::unique_ptr<cloud_hooks::Provider>> make_cloud_provider(
    const JobConfig& config, const std::string& label, std::vector<std::string> local_argv = {});

/// Provider objects for that many threads of one job: either one for each thread, which share keys
/// and cached facts, or a single one that all threads may call.
[[nodiscard]] Result<std::vector<std::unique_ptr<cloud_hooks::Provider>>> make_cloud_providers(
    const JobConfig& config, const std::string& label, const std::vector<std::string>& local_argv,
    std::size_t threads);

/// Splits a text at spaces, which "double" and 'single' quotes and backslashes protect, as a shell
/// does: the words of shell_line() come back. kInvalidInput for an open quote.
[[nodiscard]] Result<std::vector<std::string>> split_words(const std::string& text);

/// For a job whose servers compute on GPUs: the GPU of each offer's machine type, and whether the
/// bundle has the module that they need. Empty for other jobs. `config` is valid, so no GPU is
/// known to be too old. Reads the bundle; sends no request.
[[nodiscard]] std::vector<cloud_hooks::Finding> examine_gpus(const JobConfig& config);

}  // namespace mayfly::engine
