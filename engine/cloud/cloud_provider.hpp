#pragma once

// From settings to the provider that they name. It starts nothing and asks nobody.

#include <cstddef>
#include <memory>
#include <string>
#include <vector>

#include "base/result.hpp"
#include "cloud_hooks/core/provider.hpp"
#include "engine/config/config.hpp"

namespace mayfly::engine {

/// The label of the job's servers: cloud_job, or else the name of the run directory, as every
/// provider can write it: [a-z0-9-], at most 40 characters. On hosts over ssh also a mark of the
/// job's token, where there is one.
[[nodiscard]] std::string cloud_label(const JobConfig& config);

/// The provider that config.cloud_provider names, for the job of that label. `local_argv` is what
/// the local provider starts. kInvalidInput if there is none of that name, or its settings are
/// wrong.
[[nodiscard]] Result<std::unique_ptr<cloud_hooks::Provider>> make_cloud_provider(
    const JobConfig& config, const std::string& label, std::vector<std::string> local_argv = {});

/// As many of them, one for each thread of the same job: what one of them has learned, all know.
[[nodiscard]] Result<std::vector<std::unique_ptr<cloud_hooks::Provider>>> make_cloud_providers(
    const JobConfig& config, const std::string& label, const std::vector<std::string>& local_argv,
    std::size_t count);

/// A text cut at spaces; "double" and 'single' quotes keep them. kInvalidInput for an open quote.
[[nodiscard]] Result<std::vector<std::string>> split_words(const std::string& text);

}  // namespace mayfly::engine
