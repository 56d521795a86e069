#include "engine/processes/worker_join.hpp"

#include <fmt/format.h>

#include <filesystem>

#include "base/check.hpp"
#include "engine/processes/exit_codes.hpp"

namespace mayfly::engine {

Result<std::unique_ptr<elastic::MemberClient>> join_job(const JobConfig& config,
                                                        const JoinFacts& facts, Duration timeout) {
  elastic::MemberClientOptions options;
  options.endpoints = coordinator_endpoints(config);
  options.token = facts.token;
  options.sentinel = facts.sentinel;
  options.coordinator_timeout =
      Duration(static_cast<std::int64_t>(config.coordinator_timeout * 1e9));
  options.address = facts.address;
  options.server = config.server;
  options.fingerprint = facts.fingerprint;
  options.former = facts.former;
  options.reports = facts.reports;
  std::error_code absent;
  if (const std::string logs = config.run_dir + "/logs";
      std::filesystem::is_directory(logs, absent)) {
    options.flight_dir = logs;  // a worker on a machine of its own has no run directory
  }
  return elastic::connect_member(options, monotonic_now() + timeout);
}

Error with_advice(const JobConfig& config, const Error& error) {
  if (error.code != Errc::kRefused) {
    return error;
  }
  // Names in the fingerprint.
  if (error.detail.starts_with("device: ")) {
    return {error.code,
            fmt::format("{}; the job at {} wants the same device for all workers: only one with "
                        "--reduction fp32, without audits and parameter servers, takes any",
                        error.detail, config.coordinator)};
  }
  return error;
}

int exit_code_of(const elastic::member_effect::Leave& leave) {
  switch (leave.reason) {
    case elastic::DismissReason::kJobDone:
    case elastic::DismissReason::kDrained: return kExitDone;
    case elastic::DismissReason::kJobStopped: return kExitStopped;
    case elastic::DismissReason::kEvicted:
    case elastic::DismissReason::kCorrupted:
    case elastic::DismissReason::kUnreachable:
    case elastic::DismissReason::kJobFailed: return kExitFailed;
  }
  UNREACHABLE("every reason has an exit code");
}

}  // namespace mayfly::engine
