#include "engine/transfers/evaluation_service.hpp"

#include <fmt/format.h>
#include <pthread.h>
#include <sys/socket.h>

#include <utility>

#include "base/log.hpp"
#include "base/thread_priority.hpp"
#include "base/try_assign.hpp"
#include "engine/run/checkpoint_store.hpp"
#include "engine/run/record_json.hpp"
#include "engine/run/record_wire.hpp"
#include "engine/transfers/alive_frames.hpp"
#include "engine/transfers/checkpoint_transfer.hpp"

namespace mayfly::engine {
namespace {

constexpr std::size_t kEvaluatorsMax = 64;
constexpr std::size_t kEvaluationTextBytesMax = 2000;
constexpr Duration kLookForCheckpointsEvery = milliseconds(500);

Result<void> send_answer(int fd, TransferAnswer::Verdict verdict, std::string text = {}) {
  TransferAnswer answer;
  answer.verdict = verdict;
  answer.text = std::move(text);
  return send_frame(fd, encode(answer));
}

Result<Evaluation> receive_evaluation(int fd) {
  while (true) {
    TRY_ASSIGN(Bytes frame, receive_frame(fd));
    if (!frame.empty()) {
      return decode_evaluation(frame);
    }
  }
}

std::string place_of(const EvaluatorStatus& evaluator) {
  return evaluator.server.empty() ? evaluator.host : evaluator.server;
}

}  // namespace

Fact fact_of_joined(const EvaluatorStatus& evaluator) {
  return {"evaluator_joined",
          {{"server", evaluator.server}, {"host", evaluator.host}},
          fmt::format("evaluator on {} joined", place_of(evaluator))};
}

Fact fact_of_left(const EvaluatorStatus& evaluator, const std::string& why) {
  return {why.empty() ? "evaluator_left" : "evaluator_lost",
          {{"server", evaluator.server},
           {"host", evaluator.host},
           {"measured", evaluator.measured},
           {"detail", why}},
          why.empty() ? "" : fmt::format("evaluator on {} lost: {}", place_of(evaluator), why)};
}

Bytes encode(const Evaluation& evaluation) {
  return bytes_of(evaluation, kEvaluationTextBytesMax);
}

Result<Evaluation> decode_evaluation(ByteSpan bytes) {
  const auto evaluation = message_in<Evaluation>(bytes, kEvaluationTextBytesMax);
  return evaluation ? Result<Evaluation>(*evaluation)
                    : Error{Errc::kCorrupt, "not a message of an evaluator"};
}

// --- The coordinator's side

EvaluationService::EvaluationService(std::string run_dir, Hooks hooks)
    : run_dir_(std::move(run_dir)), hooks_(std::move(hooks)) {}

void EvaluationService::close() {
  {
    const std::lock_guard lock(mutex_);
    is_closing_ = true;
    for (const Connection& connection : connections_) {
      ::shutdown(connection.socket.get(), SHUT_RDWR);
    }
  }
  changed_.notify_all();
  for (Connection& connection : connections_) {  // take() does not add to the list any more
    if (connection.thread.joinable()) {
      connection.thread.join();
    }
  }
}

void EvaluationService::take(UniqueFd socket, std::string host, std::string machine) {
  const std::lock_guard lock(mutex_);
  if (is_closing_) {
    return;
  }
  connections_.remove_if([](Connection& connection) {
    if (connection.is_over) {
      connection.thread.join();
    }
    return connection.is_over;
  });
  if (connections_.size() == kEvaluatorsMax) {
    return;
  }
  Connection& connection = connections_.emplace_back();
  connection.status.number = next_number_++;
  connection.status.server = std::move(machine);
  connection.status.host = std::move(host);
  connection.socket = std::move(socket);
  connection.thread = std::thread([this, &connection] { serve(connection); });
}

std::vector<EvaluatorStatus> EvaluationService::evaluators() const {
  const std::lock_guard lock(mutex_);
  std::vector<EvaluatorStatus> all;
  for (const Connection& connection : connections_) {
    if (!connection.is_over) {
      all.push_back(connection.status);
    }
  }
  return all;
}

void EvaluationService::dismiss(std::uint64_t number) {
  {
    const std::lock_guard lock(mutex_);
    for (Connection& connection : connections_) {
      connection.is_dismissed = connection.is_dismissed || connection.status.number == number;
    }
  }
  changed_.notify_all();
}

bool EvaluationService::drain() {
  {
    const std::lock_guard lock(mutex_);
    is_draining_ = true;
  }
  changed_.notify_all();
  return !evaluators().empty();
}

void EvaluationService::serve(Connection& connection) {
  pthread_setname_np(pthread_self(), "evaluator");
  run_with_low_priority();
  const EvaluatorStatus first = [&] {
    const std::lock_guard lock(mutex_);
    return connection.status;
  }();
  hooks_.on_joined(first);
  const Result<void> served = measure_all(connection);
  ::shutdown(connection.socket.get(), SHUT_RDWR);
  EvaluatorStatus last;
  {
    const std::lock_guard lock(mutex_);
    if (connection.status.measures) {  // another evaluator has to measure that checkpoint
      seen_->erase(*connection.status.measures);
    }
    connection.is_over = true;
    last = connection.status;
  }
  hooks_.on_left(last, served.ok() ? std::string() : served.error().detail);
}

/// Gives the evaluator one checkpoint after the other until it is dismissed.
Result<void> EvaluationService::measure_all(Connection& connection) {
  const int fd = connection.socket.get();
  while (hooks_.is_in_charge()) {
    const std::optional<FoundCheckpoint> checkpoint = claim(connection);
    if (checkpoint) {
      TRY(measure(connection, *checkpoint));
      continue;
    }
    bool is_let_go = false;
    {
      std::unique_lock lock(mutex_);
      const auto is_called = [&] { return is_draining_ || is_closing_ || connection.is_dismissed; };
      changed_.wait_for(lock, kLookForCheckpointsEvery, is_called);
      is_let_go = connection.is_dismissed || is_closing_;
      if (is_draining_ && !is_let_go) {  // read first, so that the last checkpoint is in the folder
        is_let_go = checkpoints_to_measure(run_dir_, *seen_).empty();
      }
    }
    if (is_let_go) {
      return send_answer(fd, TransferAnswer::Verdict::kRefused, "it is not needed any more");
    }
    TRY(send_answer(fd, TransferAnswer::Verdict::kNothing));
    if (const Result<Evaluation> alive = receive_evaluation(fd); !alive.ok()) {
      return alive.error();
    }
  }
  return Error{Errc::kAborted, "this coordinator is not in charge"};
}

/// The oldest checkpoint that was not measured and is not being measured.
std::optional<FoundCheckpoint> EvaluationService::claim(Connection& connection) {
  const std::lock_guard lock(mutex_);
  if (!seen_) {
    seen_ = checkpoints_on_record(run_dir_);
  }
  const std::vector<FoundCheckpoint> found = checkpoints_to_measure(run_dir_, *seen_);
  if (found.empty() || connection.is_dismissed || is_closing_) {
    return std::nullopt;
  }
  seen_->insert_or_assign(found.front().step, found.front().manifest);
  connection.status.measures = found.front().step;
  return found.front();
}

Result<void> EvaluationService::measure(Connection& connection, const FoundCheckpoint& checkpoint) {
  const int fd = connection.socket.get();
  const std::uint64_t step = checkpoint.step;
  Result<LoadedCheckpoint> loaded = Error{Errc::kNotFound, ""};
  TransferAnswer answer;
  answer.verdict = TransferAnswer::Verdict::kTransfer;
  {
    const AliveFrames alive(fd);  // a large one on a slow disk takes longer than anybody waits
    loaded = load_checkpoint(folder_of_checkpoint(run_dir_ + "/checkpoints", Step{step}));
    if (loaded.ok()) {
      answer.offer = offer_of(Step{step}, loaded.value().files);
    }
  }
  Evaluation evaluation;
  std::string manifest = checkpoint.manifest;
  if (loaded.ok()) {
    manifest = manifest_of(loaded.value().files);
    TRY(send_frame(fd, encode(answer)));
    TRY(send_files(fd, answer.offer, loaded.value().files));
    loaded = Error{Errc::kNotFound, ""};  // large, and not needed while the evaluator computes
    TRY_ASSIGN(evaluation, receive_evaluation(fd));
  } else {  // it may have been removed meanwhile, because newer ones exist
    evaluation.failure = loaded.error().detail;
  }
  evaluation.step = step;
  evaluation.manifest = std::move(manifest);
  record(connection, std::move(evaluation));
  return {};
}

void EvaluationService::record(Connection& connection, Evaluation evaluation) {
  evaluation.evaluator = connection.status.server;
  {
    const std::lock_guard lock(mutex_);
    connection.status.measures.reset();
    if (evaluation.failure.empty()) {
      ++connection.status.measured;
      Result<void> written;
      if (lines_ == nullptr) {
        Result<std::unique_ptr<LineFile>> opened =
            LineFile::open(evaluations_path(run_dir_), LineFile::Content::kLines);
        if (opened.ok()) {
          lines_ = std::move(opened).value();
        } else {
          written = opened.error();
        }
      }
      if (lines_ != nullptr) {
        written = lines_->append(to_json(evaluation));
      }
      if (!written.ok()) {
        log::warning("an evaluation is not recorded: " + written.error().detail);
      }
    }
  }
  hooks_.on_measured(evaluation);
}

// --- The evaluator's side

Result<std::string> serve_evaluations(
    int fd, const std::function<Evaluation(Step, const nn::CheckpointFiles&)>& measure,
    const std::function<bool()>& should_leave) {
  while (!should_leave()) {
    TRY_ASSIGN(const Bytes frame, receive_frame(fd));
    if (frame.empty()) {
      continue;  // the coordinator reads a checkpoint
    }
    TRY_ASSIGN(TransferAnswer answer, decode_transfer_answer(frame));
    Evaluation evaluation;
    switch (answer.verdict) {
      case TransferAnswer::Verdict::kRefused: return answer.text;
      case TransferAnswer::Verdict::kNothing: break;
      case TransferAnswer::Verdict::kTransfer: {
        const Step step = answer.offer.step;
        IncomingCheckpoint incoming(std::move(answer.offer));
        TRY(incoming.receive(fd));
        const AliveFrames alive(fd);
        TRY_ASSIGN(const nn::CheckpointFiles files, incoming.take());
        evaluation = measure(step, files);
        break;
      }
    }
    TRY(send_frame(fd, encode(evaluation)));
  }
  return std::string("it was asked to leave");
}

}  // namespace mayfly::engine
