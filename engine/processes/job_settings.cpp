#include "engine/processes/job_settings.hpp"

#include <fmt/format.h>

#include <thread>
#include <utility>

#include "base/log.hpp"
#include "base/time.hpp"
#include "elastic/net/first_session.hpp"
#include "elastic/net/job_token.hpp"
#include "engine/parameter_server/ps_settings.hpp"
#include "engine/processes/network_interface.hpp"
#include "engine/run/checkpoint_transfer.hpp"

namespace mayfly::engine {
namespace {

constexpr Duration kWaitMax = seconds(60);  // as for being taken in
constexpr Duration kRetryAfter = milliseconds(200);

Result<Bytes> token_of(const JobConfig& own) {
  if (own.token_file.empty() && own.run_dir.empty()) {
    return Error{Errc::kInvalidInput,
                 "a worker needs the job's token: --token-file with a copy of the file 'token' in "
                 "the coordinator's run directory"};
  }
  return elastic::read_token_file(own.token_file.empty() ? own.run_dir + "/token" : own.token_file);
}

/// Once, of whichever coordinator answers first.
Result<std::string> ask(const std::vector<std::string>& endpoints, ByteSpan token,
                        Instant deadline) {
  elastic::Hello hello;
  hello.role = elastic::Role::kTransfer;
  Result<elastic::FirstSession> found =
      elastic::open_first_session(endpoints, token, hello, deadline);
  if (!found.ok()) {
    return std::move(found).error();
  }
  TransferRequest request;
  request.kind = TransferRequest::Kind::kSettings;
  const Result<TransferAnswer> answer = request_transfer(found.value().session.fd.get(), request);
  return answer.ok() ? Result<std::string>(answer.value().text)
                     : Result<std::string>(answer.error());
}

}  // namespace

std::string settings_to_tell(const JobConfig& job) {
  std::vector<std::string> also;
  if (uses_parameter_servers(job)) {  // a step has as many slices as the job has workers at first
    also.emplace_back("workers");
  }
  JobConfig told = job;
  if (!job.resume.empty()) {  // which brings its own weights; see CheckpointReceiver
    told.init_from.clear();
  }
  return job_settings_toml(told, also);
}

Result<JobConfig> ask_for_job_settings(const JobConfig& own) {
  if (Result<void> usable = check_reachable_host(own.bind_host); !usable.ok()) {
    return std::move(usable).error();
  }
  const Result<Bytes> token = token_of(own);
  if (!token.ok()) {
    return token.error();
  }
  const std::vector<std::string> endpoints = coordinator_endpoints(own);
  const Instant deadline = monotonic_now() + kWaitMax;
  Result<std::string> text = ask(endpoints, token.value(), deadline);
  while (!text.ok() && text.error().code == Errc::kPeerLost && monotonic_now() < deadline) {
    std::this_thread::sleep_for(kRetryAfter);  // it went away meanwhile
    text = ask(endpoints, token.value(), deadline);
  }
  if (!text.ok() && text.error().code == Errc::kRefused) {
    return Error{Errc::kRefused, fmt::format("the coordinator at {} refuses this worker: {}",
                                             own.coordinator, text.error().detail)};
  }
  if (!text.ok()) {
    return std::move(text).error();
  }
  JobConfig job;
  if (Result<void> read = apply_toml(job, text.value(), "the coordinator's settings"); !read.ok()) {
    return std::move(read).error();
  }
  return job;
}

}  // namespace mayfly::engine
