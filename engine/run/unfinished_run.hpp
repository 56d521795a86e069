#pragma once

// A run directory whose coordinator died: what it says about the job that goes on without one.

#include <cstdint>
#include <string>

#include "base/result.hpp"
#include "engine/config/config.hpp"

namespace mayfly::engine {

/// The view log of a run directory.
[[nodiscard]] std::string view_log_path(const std::string& run_dir);
/// Its summary, which is written when all else is done, and removed when a new part begins.
[[nodiscard]] std::string summary_path(const std::string& run_dir);

/// Whether the directory's view log says that its job has not ended, or it has and there is no
/// summary: the coordinator died before it had told all members, released servers and written it.
/// A log that cannot be read counts: whoever opens it will say what is wrong.
[[nodiscard]] bool holds_unfinished_job(const std::string& run_dir);
[[nodiscard]] bool has_summary(const std::string& run_dir);
/// And it says that the job was done. False if it cannot be read.
[[nodiscard]] bool says_done(const std::string& run_dir);

/// The configuration that the job was started with.
[[nodiscard]] Result<JobConfig> config_of_run(const std::string& run_dir);

/// `asked`, with the folders that "latest" meant when the job was started. kInvalidInput, naming
/// the first setting, if the two describe different jobs or different ways to run it.
[[nodiscard]] Result<JobConfig> config_to_go_on_with(const JobConfig& asked,
                                                     const JobConfig& recorded);

/// The port in the directory's `coordinator` file; 0 if there is none.
[[nodiscard]] std::uint16_t port_of_run(const std::string& run_dir);
/// The same of any file that holds one HOST:PORT.
[[nodiscard]] std::uint16_t port_in(const std::string& path);

}  // namespace mayfly::engine
