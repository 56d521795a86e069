#include "engine/transfers/checkpoint_receiver.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <filesystem>
#include <utility>

#include "base/check.hpp"
#include "base/file.hpp"
#include "base/log.hpp"
#include "base/net/sockets.hpp"
#include "base/try_assign.hpp"
#include "elastic/net/frame.hpp"
#include "engine/config/ps_settings.hpp"
#include "engine/run/job_facts.hpp"
#include "engine/transfers/alive_frames.hpp"

namespace mayfly::engine {
namespace {

constexpr std::size_t kManifestBytesMax = 1U << 20;
constexpr std::uint64_t kSpareBytes = 16U << 20;  // free space that is left for the run's records

}  // namespace

CheckpointReceiver::CheckpointReceiver(const Job& job, StartingPoint start,
                                       std::optional<Step> newest, std::string settings,
                                       Hooks hooks)
    : job_(job),
      start_(std::move(start)),
      settings_(std::move(settings)),
      hooks_(std::move(hooks)),
      folder_(job.config.run_dir + "/checkpoints"),
      lacks_facts_(hooks_.on_facts != nullptr),
      newest_(newest) {}

void CheckpointReceiver::take(UniqueFd socket, std::string host) {
  requests_.add({std::move(socket), std::move(host)},
                [this](Transfer& transfer) { return serve(transfer); });
}

std::optional<Step> CheckpointReceiver::newest() const {
  const std::lock_guard lock(mutex_);
  return newest_;
}

void CheckpointReceiver::on_saved(const ReceivedCheckpoint& received) {
  {
    const std::lock_guard lock(mutex_);
    newest_ = received.step;
  }
  hooks_.on_received(received);
}

Result<void> CheckpointReceiver::serve(Transfer& transfer) {
  const int fd = transfer.socket.get();
  TRY(elastic::send_message(fd, elastic::Welcome{}, monotonic_now() + kTransferIdleMax));
  TRY_ASSIGN(const Bytes frame, receive_frame(fd, kRequestBytesMax));
  const Result<TransferRequest> request = decode_transfer_request(frame);
  if (!request.ok()) {
    return request.error();
  }
  const TransferRequest::Kind kind = request.value().kind;
  const bool may_lack_facts = kind == TransferRequest::Kind::kSettings ||
                              kind == TransferRequest::Kind::kFacts ||
                              kind == TransferRequest::Kind::kData;
  if (lacks_facts_ && !may_lack_facts) {  // no process can become a worker yet
    return Error{Errc::kInvalidInput, "the job is not complete"};
  }
  switch (kind) {
    case TransferRequest::Kind::kOffer:
      offers_.add(std::move(transfer), [this, offer = request.value().offer](Transfer& sender) {
        return receive(sender, offer);
      });
      return {};
    case TransferRequest::Kind::kQuestion:
      states_.add(std::move(transfer), [this, asked = request.value().question](Transfer& asker) {
        return answer(asker, asked);
      });
      return {};
    case TransferRequest::Kind::kSettings: return send_settings(transfer, request.value().machine);
    case TransferRequest::Kind::kFacts: return take_facts(transfer, request.value().facts);
    case TransferRequest::Kind::kData: return pass_on_data_request(transfer);
    case TransferRequest::Kind::kEvaluate:
      hooks_.on_evaluator(std::move(transfer.socket), transfer.host, request.value().machine);
      return {};
  }
  UNREACHABLE("a decoded request has a known kind");
}

Result<void> CheckpointReceiver::send_settings(const Transfer& transfer,
                                               const std::string& machine) const {
  TransferAnswer answer;
  answer.verdict = lacks_facts_ ? TransferAnswer::Verdict::kTransfer : answer.verdict;
  answer.text = settings_ + (hooks_.on_settings ? hooks_.on_settings(machine) : "");
  return send_frame(transfer.socket.get(), encode(answer));
}

/// Passes a worker that asks for the data set to the hook that serves it, if this host has the data
/// set. A job may lack facts although it has the data set, because the host has no device; then its
/// first worker needs the data set before it can send the facts.
Result<void> CheckpointReceiver::pass_on_data_request(Transfer& transfer) {
  std::error_code absent;
  const bool is_absent = lacks_facts_ && !std::filesystem::exists(job_.config.data, absent);
  if (is_absent || hooks_.on_data == nullptr) {
    TransferAnswer answer;
    answer.verdict = TransferAnswer::Verdict::kRefused;
    answer.text = "it has no data set to send, as its --data does not exist";
    return send_frame(transfer.socket.get(), encode(answer));
  }
  hooks_.on_data(std::move(transfer.socket), transfer.host);
  return {};
}

Result<void> CheckpointReceiver::take_facts(const Transfer& transfer, const std::string& text) {
  TransferAnswer answer;
  if (lacks_facts_) {
    const Result<JobFacts> facts = parse_facts(text);
    const Result<void> taken = facts.ok() ? hooks_.on_facts(facts.value()) : facts.error();
    lacks_facts_ = !taken.ok();
    if (!taken.ok()) {
      hooks_.on_refused(
          fmt::format("a worker on {} is refused: {}", transfer.host, taken.error().detail));
      answer.verdict = TransferAnswer::Verdict::kRefused;
      answer.text = taken.error().detail;
    }
  }
  return send_frame(transfer.socket.get(), encode(answer));
}

std::optional<std::string> CheckpointReceiver::reason_to_refuse(const TransferOffer& offer) const {
  if (value(offer.step) > job_.total_steps) {
    return fmt::format("it is of step {}, the job's last is {}", value(offer.step),
                       job_.total_steps);
  }
  std::error_code unknown;
  const std::filesystem::space_info space = std::filesystem::space(job_.config.run_dir, unknown);
  if (!unknown && space.available < offer.bytes() + kSpareBytes) {
    return fmt::format(
        "{} has {} MiB left; the checkpoint needs {}, and {} more are kept free for the run's "
        "records",
        folder_, space.available >> 20, (offer.bytes() >> 20) + 1, kSpareBytes >> 20);
  }
  return std::nullopt;
}

/// Whether the offered checkpoint is already in the run directory: the worker writes to the same
/// disk, or another worker has sent it. The folder may not be named as the latest yet, if an
/// earlier coordinator process was lost while it saved the checkpoint.
bool CheckpointReceiver::has(const TransferOffer& offer) const {
  const std::string folder = folder_of_checkpoint(folder_, offer.step);
  for (const TransferOffer::File& file : offer.files) {
    std::error_code absent;
    const auto size = std::filesystem::file_size(folder + "/" + file.name, absent);
    if (absent || size != file.bytes) {
      return false;
    }
    if (file.name == nn::kManifestFile) {  // it contains the hashes of the other files
      const Result<Bytes> content = read_file(folder + "/" + file.name, kManifestBytesMax);
      if (!content.ok() || digest_of(ByteSpan(content.value())) != file.digest) {
        return false;
      }
    }
  }
  return true;
}

/// Whether the offered checkpoint is older than the newest received one: the worker was
/// disconnected for a while. Parameter servers may fall back, and then an earlier step is the
/// newest.
bool CheckpointReceiver::comes_too_late(const TransferOffer& offer) const {
  const std::optional<Step> here = newest();
  return here && offer.step < *here && !uses_parameter_servers(job_.config);
}

Result<void> CheckpointReceiver::receive(const Transfer& transfer, const TransferOffer& offer) {
  const int fd = transfer.socket.get();
  const Instant began = monotonic_now();
  TransferAnswer answer;
  const auto refuse = [&](const std::string& reason) {
    hooks_.on_refused(fmt::format("the checkpoint of step {} on {} is refused: {}",
                                  value(offer.step), transfer.host, reason));
    answer.verdict = TransferAnswer::Verdict::kRefused;
    answer.text = reason;
    return send_frame(fd, encode(answer));
  };
  if (comes_too_late(offer)) {
    return send_frame(fd, encode(answer));
  }
  if (has(offer)) {
    if (const Result<void> named = name_latest(folder_, offer.step); !named.ok()) {
      return refuse(named.error().detail);
    }
    on_saved(
        {offer.step, folder_of_checkpoint(folder_, offer.step), transfer.host, 0, Duration(0)});
    return send_frame(fd, encode(answer));
  }
  if (const auto reason = reason_to_refuse(offer)) {
    return refuse(*reason);
  }
  if (!incoming_ || incoming_->offer() != offer) {
    incoming_.emplace(offer);
  }
  answer.verdict = TransferAnswer::Verdict::kTransfer;
  answer.first = incoming_->received();
  TRY(send_frame(fd, encode(answer)));
  if (Result<void> received = incoming_->receive(fd); !received.ok()) {
    return received;  // the bytes received so far are kept for the next attempt
  }
  Result<nn::CheckpointFiles> files = incoming_->take();
  incoming_.reset();
  if (!files.ok() && damaged_ != offer) {  // without a receipt the worker sends all of it again
    damaged_ = offer;
    return std::move(files).error();
  }
  const Result<void> saved =
      files.ok() ? save(transfer, offer.step, files.value(), began, offer.bytes() - answer.first)
                 : files.error();
  TransferReceipt receipt{saved.ok(), saved.ok() ? std::string() : saved.error().detail};
  if (!saved.ok()) {
    hooks_.on_refused(saved.error().detail);
  }
  return send_frame(fd, encode(receipt));
}

/// Verifies the checkpoint by the content of its files alone, and saves it.
Result<void> CheckpointReceiver::save(const Transfer& transfer, Step step,
                                      const nn::CheckpointFiles& files, Instant began,
                                      std::uint64_t travelled) {
  TRY_ASSIGN(const nn::CheckpointInfo info, nn::decode_manifest(files.at(nn::kManifestFile)));
  if (const auto other = difference(job_.fingerprint, info.fingerprint)) {
    return Error{Errc::kInvalidInput, fmt::format("the checkpoint of step {} on {} is of another "
                                                  "job: {}",
                                                  value(step), transfer.host, *other)};
  }
  if (info.committed != step) {
    return Error{Errc::kCorrupt,
                 fmt::format("the checkpoint of step {} on {} says that it is of step {}",
                             value(step), transfer.host, value(info.committed))};
  }
  if (is_program(job_.config)) {
    TRY(nn::check_files(files));
  } else {
    TRY(nn::decode_checkpoint(job_.model, files));
  }
  TRY_ASSIGN(std::string saved,
             save_checkpoint(folder_, files, step, job_.config.keep_checkpoints));
  on_saved({step, saved, transfer.host, travelled, monotonic_now() - began});
  return {};
}

std::optional<std::string> CheckpointReceiver::reason_to_refuse(
    const TransferQuestion& asked) const {
  if (!asked.has_state) {
    return std::nullopt;
  }
  if (value(asked.step) > job_.total_steps) {
    return fmt::format("its checkpoint (--resume) is of step {}, the job's last is {}",
                       value(asked.step), job_.total_steps);
  }
  if (asked.is_foreign && !is_the_start(asked)) {
    return "its checkpoint (--resume) is of a job with other settings";
  }
  // The members could not compute a step together with it: it would be evicted as soon as it joins.
  if (const std::optional<Step> held = hooks_.step_of_holders();
      held && asked.step > std::max(*held, newest().value_or(Step{}))) {
    return fmt::format("its checkpoint (--resume) is of step {}, the job is at step {} only",
                       value(asked.step), value(*held));
  }
  return std::nullopt;
}

bool CheckpointReceiver::is_the_start(const TransferQuestion& asked) const {
  return value(asked.step) == start_.step && to_string(asked.digest) == start_.digest;
}

/// Whether a process of a job with parameter servers certainly lacks the state that the job is
/// resumed from. A worker without any state is not meant: it gets the parameters from the servers.
bool CheckpointReceiver::lacks_start(const TransferQuestion& asked) const {
  if (!uses_parameter_servers(job_.config) || job_.config.resume.empty()) {
    return false;
  }
  const bool has_another = asked.has_state && !start_.digest.empty() && !is_the_start(asked);
  return has_another || (asked.needs_state && !asked.has_state);
}

/// In a job with parameter servers: the checkpoint that the job was resumed from, if the process
/// needs it. All processes count from its step, and only the servers have a newer state.
std::optional<LoadedCheckpoint> CheckpointReceiver::start_for(const TransferQuestion& asked) const {
  const bool is_first = !asked.has_state && hooks_.step_without_holder();
  if (job_.config.resume.empty() || !(is_first || lacks_start(asked))) {
    return std::nullopt;
  }
  Result<LoadedCheckpoint> start = load_intact_checkpoint(job_.config.resume);
  return start.ok() ? std::optional(std::move(start).value()) : std::nullopt;
}

/// The newest intact checkpoint in the coordinator's own folder. A damaged one is set aside, so
/// that a worker's copy of that step can be stored.
Result<LoadedCheckpoint> CheckpointReceiver::newest_intact() {
  Result<LoadedCheckpoint> found = load_intact_checkpoint(job_.config.run_dir);
  if (!found.ok() || found.value().passed_over.empty()) {
    return found;
  }
  found = set_damaged_aside(folder_);
  if (found.ok() && !found.value().passed_over.empty()) {
    hooks_.on_refused(found.value().passed_over);
    const std::lock_guard lock(mutex_);
    newest_ = std::min(newest_, std::optional(found.value().info.committed));
  }
  return found;
}

/// The checkpoint with which this worker should start instead, as no member has the job's state. If
/// all checkpoints are damaged, it is an error, so that the job does not begin again over them.
Result<std::optional<LoadedCheckpoint>> CheckpointReceiver::better_than(
    const TransferQuestion& asked) {
  const std::optional<LoadedCheckpoint> none;
  if (uses_parameter_servers(job_.config)) {
    return start_for(asked);
  }
  const std::optional<Step> last = hooks_.step_without_holder();
  if (!last) {
    return none;
  }
  const auto is_useful = [&](const LoadedCheckpoint& checkpoint) {
    const Step step = checkpoint.info.committed;
    const bool is_of_this_part = step >= Step{start_.step};  // written since the job was resumed
    // A worker without a checkpoint of its own may have received one of this step earlier.
    return is_of_this_part && step <= std::max(*last, newest().value_or(Step{})) &&
           (step > asked.step || (step == asked.step && !asked.has_state));
  };
  Result<LoadedCheckpoint> newest = newest_intact();
  if (newest.ok() && is_useful(newest.value()) &&
      !difference(job_.fingerprint, newest.value().info.fingerprint)) {
    return std::optional(std::move(newest).value());
  }
  if (!job_.config.resume.empty()) {
    Result<LoadedCheckpoint> start = load_intact_checkpoint(job_.config.resume);
    if (start.ok() && is_useful(start.value())) {
      return std::optional(std::move(start).value());
    }
  }
  const bool is_lost = !newest.ok() && newest.error().code != Errc::kNotFound && !asked.has_state;
  return is_lost ? Result<std::optional<LoadedCheckpoint>>(newest.error()) : none;
}

Result<void> CheckpointReceiver::answer(const Transfer& transfer,
                                        const TransferQuestion& question) {
  const int fd = transfer.socket.get();
  if (at_end(fd)) {
    return Error{Errc::kPeerLost, "it has not waited for its turn"};
  }
  if (question.needs_state && hooks_.is_in_charge != nullptr && !hooks_.is_in_charge()) {
    return Error{Errc::kRefused, "this coordinator is not in charge"};
  }
  TransferAnswer answer;
  std::optional<std::string> reason = reason_to_refuse(question);
  std::optional<LoadedCheckpoint> better;
  if (!reason) {
    const AliveFrames alive(fd);  // reading a large checkpoint takes longer than a worker waits
    Result<std::optional<LoadedCheckpoint>> found = better_than(question);
    if (!found.ok()) {
      reason = "no member has the job's state, and " + found.error().detail;
    } else if (found.value()) {
      better = std::move(found).value();
      answer.verdict = TransferAnswer::Verdict::kTransfer;
      answer.offer = offer_of(better->info.committed, better->files);
    }
  }
  // A server that comes to servers at work leaves again, whatever it has.
  const bool may_lack_start = !question.has_state && hooks_.step_of_holders().has_value();
  if (!reason && !better && lacks_start(question) && !may_lack_start) {
    reason = fmt::format("the checkpoint that the job is resumed from, {}, cannot be read any more",
                         job_.config.resume);
  }
  if (reason) {
    hooks_.on_refused(fmt::format("a worker on {} is refused: {}", transfer.host, *reason));
    answer.verdict = TransferAnswer::Verdict::kRefused;
    answer.text = *reason;
    return send_frame(fd, encode(answer));
  }
  TRY(send_frame(fd, encode(answer)));
  return better ? send_files(fd, answer.offer, better->files) : Result<void>();
}

}  // namespace mayfly::engine
