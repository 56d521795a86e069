#include "engine/membership/job_settings.hpp"

#include <fmt/format.h>

#include <thread>
#include <utility>

#include "base/log.hpp"
#include "base/time.hpp"
#include "base/try_assign.hpp"
#include "elastic/net/handshake.hpp"
#include "engine/config/bind_host.hpp"
#include "engine/config/ps_settings.hpp"
#include "engine/membership/run_place.hpp"
#include "engine/membership/worker_join.hpp"
#include "engine/run/job_facts.hpp"
#include "engine/transfers/checkpoint_transfer.hpp"

namespace mayfly::engine {
namespace {

constexpr Duration kAskAgainAfter = milliseconds(200);

Result<Bytes> token_of(const JobConfig& own) {
  if (own.token_file.empty() && own.run_dir.empty()) {
    return Error{Errc::kInvalidInput,
                 "a worker needs the job's token: --token-file with a copy of the file 'token' in "
                 "the coordinator's run directory"};
  }
  JobConfig with_place = own;
  if (own.token_file.empty()) {
    with_place.token_file = own.run_dir + "/token";
  }
  return read_job_token(with_place);
}

/// Sends the request once, to the first coordinator that answers.
Result<TransferAnswer> ask_once(const std::vector<std::string>& endpoints, ByteSpan token,
                                const TransferRequest& request, Instant deadline) {
  elastic::Hello hello;
  hello.role = elastic::Role::kTransfer;
  Result<elastic::FirstSession> found =
      elastic::open_first_session(endpoints, token, hello, deadline);
  return found.ok() ? request_transfer(found.value().session.fd.get(), request)
                    : Result<TransferAnswer>(std::move(found).error());
}

/// Sends the request, and repeats it if the connection to the coordinator is lost. kRefused also if
/// the coordinator answers with a refusal.
Result<TransferAnswer> ask(const JobConfig& own, const TransferRequest& request) {
  TRY_ASSIGN(const Bytes token, token_of(own));
  const std::vector<std::string> endpoints = coordinator_endpoints(own);
  const Instant deadline = monotonic_now() + first_answer_timeout(own);
  Result<TransferAnswer> answer = ask_once(endpoints, token, request, deadline);
  while (!answer.ok() && answer.error().code == Errc::kPeerLost && monotonic_now() < deadline) {
    std::this_thread::sleep_for(kAskAgainAfter);
    answer = ask_once(endpoints, token, request, deadline);
  }
  const bool is_refused = answer.ok() ? answer.value().verdict == TransferAnswer::Verdict::kRefused
                                      : answer.error().code == Errc::kRefused;
  if (is_refused) {
    return Error{Errc::kRefused,
                 fmt::format("the coordinator at {} refuses this worker: {}", own.coordinator,
                             answer.ok() ? answer.value().text : answer.error().detail)};
  }
  return answer;
}

}  // namespace

std::string settings_to_send(const JobConfig& job) {
  std::vector<std::string> also = {"coordinator_timeout"};  // a worker's own setting overrides it
  if (uses_parameter_servers(job)) {  // a step has as many slices as the job has workers at first
    also.emplace_back("workers");
  }
  JobConfig sent = job;
  if (!job.resume.empty()) {  // the checkpoint contains the weights; see CheckpointReceiver
    sent.init_from.clear();
  }
  return job_settings_toml(sent, also);
}

Result<JobConfig> ask_for_job_settings(const JobConfig& own) {
  TRY(check_reachable_host(own.bind_host));
  TransferRequest request;
  request.kind = TransferRequest::Kind::kSettings;
  request.machine = own.server;
  TRY_ASSIGN(const TransferAnswer answer, ask(own, request));
  JobConfig job;
  TRY(apply_toml(job, answer.text, "the coordinator's settings"));
  job.tells_facts = answer.verdict == TransferAnswer::Verdict::kTransfer;
  return job;
}

Result<void> tell_facts(const JobConfig& own, const JobFacts& facts) {
  TransferRequest request;
  request.kind = TransferRequest::Kind::kFacts;
  request.facts = to_json(facts);
  if (request.facts.size() > kFactsBytesMax) {
    return Error{Errc::kInvalidInput,
                 fmt::format("the names of the tensors and the other facts about this job have {} "
                             "bytes together, at most {} are possible",
                             request.facts.size(), kFactsBytesMax)};
  }
  const Result<TransferAnswer> answer = ask(own, request);
  return answer.ok() ? Result<void>() : answer.error();
}

}  // namespace mayfly::engine
