#include "engine/membership/run_place.hpp"

#include <fmt/chrono.h>
#include <fmt/format.h>

#include <algorithm>
#include <ctime>
#include <filesystem>

#include "base/usable_cores.hpp"
#include "elastic/net/job_token.hpp"
#include "engine/config/derived_settings.hpp"
#include "engine/run/run_directory.hpp"

namespace mayfly::engine {
namespace {

std::string fresh_run_dir(const std::string& model) {
  std::tm now{};
  const std::time_t seconds_now = std::time(nullptr);
  localtime_r(&seconds_now, &now);
  const std::string base = fmt::format("runs/{}-{:%Y%m%d-%H%M%S}", model, now);
  std::string path = base;
  for (int copy = 2; std::filesystem::exists(path); ++copy) {
    path = fmt::format("{}-{}", base, copy);
  }
  return path;
}

}  // namespace

void resolve_defaults(JobConfig& config) {
  if (config.run_dir.empty()) {
    config.run_dir = fresh_run_dir(config.model);
  }
  if (config.token_file.empty()) {
    config.token_file = config.run_dir + "/token";
  }
  if (config.cache_dir.empty()) {
    const std::filesystem::path parent = std::filesystem::path(config.run_dir).parent_path();
    config.cache_dir = (parent / ".cache").string();
  }
  if (config.threads == 0) {
    const std::uint32_t workers = std::max(1U, config.workers);
    config.threads = uses_cuda(config.device) ? 1 : std::max(1U, usable_cores() / workers);
  }
}

Result<Bytes> read_job_token(const JobConfig& config) {
  Result<Bytes> token = elastic::read_token_file(config.token_file);
  if (token.ok() && config.tls && !elastic::is_encrypted(token.value())) {
    return Error{Errc::kInvalidInput,
                 "--tls: the token in " + config.token_file +
                     " is for unencrypted connections; `mayfly token --tls FILE` makes another"};
  }
  return token;
}

/// If two coordinators start without --run-dir in the same second, one of them takes the next name.
Result<LockFile> lock_run_directory(JobConfig& config) {
  const bool may_choose = config.run_dir.empty();
  while (true) {
    if (may_choose) {
      config.run_dir = fresh_run_dir(config.model);
    }
    const std::string path = view_log_path(config.run_dir) + ".lock";
    Result<LockFile> lock = may_choose ? LockFile::take(path, Duration(0)) : LockFile::take(path);
    const bool is_taken = !lock.ok() && lock.error().code == Errc::kRefused;
    if (is_taken && !may_choose) {
      return Error{Errc::kRefused, lock.error().detail + ": a coordinator of this job is running"};
    }
    if (!is_taken) {
      return lock;
    }
  }
}

}  // namespace mayfly::engine
