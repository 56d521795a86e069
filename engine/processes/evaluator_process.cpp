#include "engine/processes/evaluator_process.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <optional>
#include <thread>
#include <utility>

#include "base/log.hpp"
#include "base/thread_priority.hpp"
#include "base/try_assign.hpp"
#include "elastic/net/handshake.hpp"
#include "engine/config/derived_settings.hpp"
#include "engine/membership/exit_codes.hpp"
#include "engine/membership/run_place.hpp"
#include "engine/network/accuracy.hpp"
#include "engine/network/prepare_job.hpp"
#include "engine/transfers/checkpoint_transfer.hpp"
#include "engine/transfers/evaluation_service.hpp"

namespace mayfly::engine {
namespace {

constexpr Duration kConnectTimeout = seconds(5);  // of one attempt; a signal is noticed after it
constexpr Duration kConnectAgainAfter = seconds(1);
// Shorter connections do not count, because a coordinator that is not in charge also accepts a
// connection and closes it.
constexpr Duration kServedAtLeast = seconds(6);

struct Measure {
  TestSet test;
  std::uint32_t threads = 0;

  [[nodiscard]] Evaluation operator()(Step step, const nn::CheckpointFiles& files) const {
    const Instant begin = monotonic_now();
    Evaluation evaluation;
    evaluation.step = value(step);
    const Result<nn::ModelState> state = nn::decode_checkpoint(test.model, files);
    const Result<Accuracy> accuracy =
        state.ok() ? measure_accuracy(test.model, state.value(), test.data, threads)
                   : state.error();
    if (!accuracy.ok()) {
      evaluation.failure = accuracy.error().detail;
      log::warning(fmt::format("step {} is not measured: {}", value(step), evaluation.failure));
      return evaluation;
    }
    evaluation.samples = accuracy.value().samples;
    evaluation.test_top1 = accuracy.value().top1();
    evaluation.test_loss = accuracy.value().loss;
    evaluation.seconds = to_seconds(monotonic_now() - begin);
    log::info(fmt::format("step {}: test accuracy {:.2f} %, test loss {:.4f}", value(step),
                          100 * evaluation.test_top1, evaluation.test_loss));
    return evaluation;
  }
};

/// Serves one connection to a coordinator; returns the reason for its end. Sets `connected` to the
/// time at which a coordinator was found.
Result<std::string> serve_once(const JobConfig& config, const std::vector<std::string>& endpoints,
                               ByteSpan token, const Measure& measure, const LeaveSignals& signals,
                               std::optional<Instant>& connected) {
  elastic::Hello hello;
  hello.role = elastic::Role::kTransfer;
  TRY_ASSIGN(
      elastic::FirstSession found,
      elastic::open_first_session(endpoints, token, hello, monotonic_now() + kConnectTimeout));
  connected = monotonic_now();
  const int fd = found.session.fd.get();
  TransferRequest request;
  request.kind = TransferRequest::Kind::kEvaluate;
  request.machine = config.server;
  TRY(send_frame(fd, encode(request)));
  log::info("measuring checkpoints for " + endpoints[found.endpoint]);
  return serve_evaluations(fd, measure, [&signals] { return signals.asked(); });
}

}  // namespace

int run_evaluator(const JobConfig& config, const LeaveSignals& signals) {
  run_with_low_priority();
  const Result<Bytes> token = read_job_token(config);
  if (!token.ok()) {
    return fail(token.error(), kExitUsage);
  }
  Result<TestSet> test = open_test_set(config);
  if (!test.ok()) {
    return fail(test.error(), kExitUsage);
  }
  // In a job with GPUs `threads` is meant for workers; an evaluator computes on all cores instead.
  const std::uint32_t threads = uses_cuda(config.device) ? 0 : config.threads;
  const Measure measure{std::move(test).value(), threads};
  std::vector<std::string> endpoints = coordinator_endpoints(config);
  const auto patience = Duration(static_cast<std::int64_t>(config.coordinator_timeout * 1e9));
  Instant last_heard = monotonic_now();
  while (!signals.asked()) {
    std::optional<Instant> connected;
    const Result<std::string> end =
        serve_once(config, endpoints, token.value(), measure, signals, connected);
    if (end.ok()) {
      log::info("leaving: " + end.value());
      return kExitDone;
    }
    if (end.error().code == Errc::kRefused) {
      return fail(end.error(), kExitUsage);
    }
    // A failed attempt may also take long, because resolving a name cannot be interrupted.
    if (connected && monotonic_now() - *connected > kServedAtLeast) {
      last_heard = monotonic_now();
    } else if (monotonic_now() - last_heard > patience) {
      return fail(end.error(), kExitFailed);
    }
    log::info(fmt::format("connecting again: {}", end.error().detail));
    // Another coordinator may be in charge now.
    std::rotate(endpoints.begin(), endpoints.begin() + 1, endpoints.end());
    std::this_thread::sleep_for(kConnectAgainAfter);
  }
  return kExitDone;
}

}  // namespace mayfly::engine
