#include "engine/transfers/checkpoint_writer.hpp"

#include <fmt/format.h>
#include <pthread.h>
#include <algorithm>
#include <utility>

#include "base/log.hpp"
#include "base/net/sockets.hpp"
#include "base/try_assign.hpp"
#include "elastic/net/handshake.hpp"
#include "engine/run/checkpoint_store.hpp"
#include "engine/run/records.hpp"

namespace mayfly::engine {
namespace {

constexpr Duration kConnectTimeout = seconds(5);
constexpr Duration kRetryAfter = seconds(1);
/// With nobody to take it, a process that is to end does not wait for longer.
constexpr Duration kClosingPatience = seconds(5);
constexpr Duration kTurn = milliseconds(50);
/// A worker that took silence for an answer might begin from nothing what a checkpoint has.
constexpr Duration kAskTimeout = seconds(60);
constexpr Duration kStateTimeout = seconds(600);  // the answers to others may be large
constexpr Duration kAskAgainAfter = milliseconds(200);
constexpr std::size_t kUploadChunkBytes = 128U << 10;

}  // namespace

double upload_bytes_per_second(std::uint64_t bytes, Duration interval) {
  constexpr double kShareOfInterval = 1.0 / 8;
  constexpr double kMin = 2.0 * (1 << 20);
  constexpr double kMax = 64.0 * (1 << 20);
  const double spread_s = kShareOfInterval * to_seconds(interval);
  return std::clamp(static_cast<double>(bytes) / spread_s, kMin, kMax);
}

CheckpointUploader::CheckpointUploader(std::vector<std::string> endpoints, Bytes token)
    : endpoints_(std::move(endpoints)),
      token_(std::move(token)),
      moved_(monotonic_now()),
      given_at_(moved_),
      thread_([this] { run(); }) {}

CheckpointUploader::~CheckpointUploader() {
  is_urgent_ = true;
  moved_ = monotonic_now();
  {
    const std::lock_guard lock(mutex_);  // else the thread may be about to wait for it
    is_closing_ = true;
  }
  changed_.notify_all();
  thread_.join();
}

void CheckpointUploader::upload(Step step, nn::CheckpointFiles files) {
  Item item;
  item.step = step;
  item.offer = offer_of(step, files);
  item.files = std::move(files);
  item.is_done.resize(endpoints_.size());
  {
    const std::lock_guard lock(mutex_);
    const Instant now = monotonic_now();
    item.bytes_per_second = upload_bytes_per_second(item.offer.bytes(), now - given_at_);
    item.number = ++given_;
    waiting_ = std::move(item);
    given_at_ = now;
    refused_.reset();
    moved_ = now;
  }
  changed_.notify_all();
}

Result<void> CheckpointUploader::wait(Duration patience, const std::function<bool()>& is_over) {
  is_urgent_ = true;
  moved_ = monotonic_now();
  std::unique_lock lock(mutex_);
  while (home_ != given_) {
    if (refused_) {
      return *refused_;
    }
    if (is_over()) {
      return Error{Errc::kAborted, "the view is over"};
    }
    if (monotonic_now() - moved_.load() > patience) {
      return Error{Errc::kDeadline, "no coordinator takes the checkpoint"};
    }
    changed_.wait_for(lock, kTurn);
  }
  is_urgent_ = false;
  return {};
}

void CheckpointUploader::run() {
  pthread_setname_np(pthread_self(), "uploads");
  std::optional<Item> item;
  while (true) {
    {
      std::unique_lock lock(mutex_);
      const auto is_called = [&] { return is_closing_.load() || waiting_.has_value(); };
      if (item) {
        changed_.wait_for(lock, is_closing_ || is_urgent_ ? kTurn : kRetryAfter);
      } else {
        changed_.wait(lock, is_called);
      }
      if (waiting_) {
        item = std::exchange(waiting_, std::nullopt);
      }
    }
    if (item) {
      try_all(*item);
      if (is_done(*item)) {
        item.reset();
      }
    }
    const bool is_late = is_closing_ && monotonic_now() - moved_.load() > kClosingPatience;
    const std::lock_guard lock(mutex_);
    if (is_closing_ && !waiting_ && (!item || is_late || home_ == given_)) {
      return;
    }
  }
}

bool CheckpointUploader::is_done(const Item& item) const {
  return std::all_of(item.is_done.begin(), item.is_done.end(), [](bool done) { return done; });
}

void CheckpointUploader::try_all(Item& item) {
  for (std::size_t i = 0; i < endpoints_.size(); ++i) {
    if (item.is_done[i]) {
      continue;
    }
    const Result<void> sent = attempt(endpoints_[i], item);
    const bool is_refused = !sent.ok() && sent.error().code == Errc::kRefused;
    item.is_done[i] = sent.ok() || is_refused;
    if (is_refused) {
      log::warning(fmt::format("the coordinator at {} does not take the checkpoint of step {}: {}",
                               endpoints_[i], value(item.step), sent.error().detail));
    } else if (!sent.ok()) {
      log::debug(fmt::format("checkpoint of step {} to {}: {}", value(item.step), endpoints_[i],
                             sent.error().detail));
    }
    const std::lock_guard lock(mutex_);
    if (sent.ok()) {
      home_ = item.number;
      changed_.notify_all();
    } else if (is_refused && given_ == item.number && home_ != item.number) {
      refused_ = sent.error();
      changed_.notify_all();
    }
  }
}

Result<void> CheckpointUploader::attempt(const std::string& endpoint, const Item& item) {
  elastic::Hello hello;
  hello.role = elastic::Role::kTransfer;
  TRY_ASSIGN(
      elastic::OpenSession session,
      elastic::open_session(endpoint, token_, std::move(hello), monotonic_now() + kConnectTimeout));
  const int fd = session.fd.get();
  TransferRequest request;
  request.offer = item.offer;
  TRY_ASSIGN(const TransferAnswer answer, request_transfer(fd, request));
  switch (answer.verdict) {
    case TransferAnswer::Verdict::kNothing: return {};
    case TransferAnswer::Verdict::kRefused: return Error{Errc::kRefused, answer.text};
    case TransferAnswer::Verdict::kTransfer: break;
  }
  TRY(send_files(fd, item, answer.first));
  const Result<Bytes> end = receive_frame(fd);
  TRY_ASSIGN(const TransferReceipt receipt,
             end.ok() ? decode_transfer_receipt(end.value()) : end.error());
  return receipt.is_safe ? Result<void>() : Result<void>(Error{Errc::kRefused, receipt.text});
}

Result<void> CheckpointUploader::send_files(int fd, const Item& item, std::uint64_t first) {
  const Instant began = monotonic_now();
  double sent = 0;
  for (const TransferOffer::File& file : item.offer.files) {
    const std::uint64_t skipped = std::min(first, file.bytes);
    first -= skipped;
    ByteSpan left = ByteSpan(item.files.at(file.name)).subspan(skipped);
    while (!left.empty()) {
      const ByteSpan chunk = left.first(std::min(left.size(), kUploadChunkBytes));
      const Result<void> done = send_exactly(fd, chunk, monotonic_now() + kTransferIdleMax);
      if (!done.ok()) {
        return done;
      }
      moved_ = monotonic_now();
      left = left.subspan(chunk.size());
      sent += static_cast<double>(chunk.size());
      const Instant due =
          began + Duration(static_cast<std::int64_t>(sent / item.bytes_per_second * 1e9));
      while (!is_urgent_ && monotonic_now() < due) {
        std::this_thread::sleep_for(std::min<Duration>(kTurn, due - monotonic_now()));
      }
    }
  }
  return {};
}

namespace {

Result<std::optional<nn::CheckpointFiles>> ask(const std::string& endpoint, ByteSpan token,
                                               const TransferQuestion& question) {
  elastic::Hello hello;
  hello.role = elastic::Role::kTransfer;
  Result<elastic::OpenSession> session =
      elastic::open_session(endpoint, token, std::move(hello), monotonic_now() + kConnectTimeout);
  if (!session.ok()) {
    return Error{Errc::kPeerLost, session.error().detail};
  }
  const int fd = session.value().fd.get();
  TransferRequest request;
  request.kind = TransferRequest::Kind::kQuestion;
  request.question = question;
  TRY_ASSIGN(TransferAnswer answer, request_transfer(fd, request));
  switch (answer.verdict) {
    case TransferAnswer::Verdict::kNothing: return std::optional<nn::CheckpointFiles>();
    case TransferAnswer::Verdict::kRefused: return Error{Errc::kRefused, answer.text};
    case TransferAnswer::Verdict::kTransfer: break;
  }
  IncomingCheckpoint incoming(std::move(answer.offer));
  TRY(incoming.receive(fd));
  Result<nn::CheckpointFiles> files = incoming.take();
  return files.ok() ? Result<std::optional<nn::CheckpointFiles>>(std::move(files).value())
                    : Result<std::optional<nn::CheckpointFiles>>(std::move(files).error());
}

}  // namespace

Result<std::optional<nn::CheckpointFiles>> ask_for_better_state(
    const std::vector<std::string>& endpoints, ByteSpan token, const TransferQuestion& question,
    const std::function<bool()>& gives_up) {
  const Instant deadline = monotonic_now() + (question.needs_state ? kStateTimeout : kAskTimeout);
  while (true) {
    bool is_answered = false;
    for (const std::string& endpoint : endpoints) {  // a standby knows of nothing
      Result<std::optional<nn::CheckpointFiles>> answer = ask(endpoint, token, question);
      const bool is_said =
          answer.ok() ? answer.value().has_value() : answer.error().code == Errc::kRefused;
      if (is_said) {
        return answer;
      }
      if (!answer.ok()) {
        log::info(
            fmt::format("{} does not say what to start with: {}", endpoint, answer.error().detail));
      }
      is_answered = is_answered || answer.ok();
    }
    const bool is_over = monotonic_now() >= deadline;
    const bool is_given_up = !is_answered && !is_over && gives_up();
    if (question.needs_state && is_given_up) {
      return Error{Errc::kAborted, "asked to leave before the state was there"};
    }
    if (question.needs_state && is_over && !is_answered) {
      return Error{Errc::kPeerLost, "no coordinator says what to start with"};
    }
    if (is_answered || is_over || is_given_up) {
      return std::optional<nn::CheckpointFiles>();
    }
    std::this_thread::sleep_for(kAskAgainAfter);
  }
}

CheckpointWriter::CheckpointWriter(const Job& job, std::string folder, Listener listener,
                                   CheckpointUploader* uploader)
    : job_(job),
      folder_(std::move(folder)),
      listener_(std::move(listener)),
      uploader_(uploader),
      thread_([this] { run(); }) {}

CheckpointWriter::~CheckpointWriter() {
  {
    const std::lock_guard lock(mutex_);
    stopping_ = true;
  }
  changed_.notify_all();
  thread_.join();
}

void CheckpointWriter::write_later(Step committed, nn::CheckpointFiles files) {
  {
    const std::lock_guard lock(mutex_);
    pending_ = Pending{std::move(files), committed, ++given_};
  }
  changed_.notify_all();
}

void CheckpointWriter::hurry(bool is_urgent) {
  if (uploader_ != nullptr) {
    uploader_->hurry(is_urgent);
  }
}

bool CheckpointWriter::write_now(Step committed, nn::CheckpointFiles files) {
  std::uint64_t order = 0;
  {
    const std::lock_guard lock(mutex_);
    order = ++given_;
  }
  return write({std::move(files), committed, order});
}

void CheckpointWriter::run() {
  pthread_setname_np(pthread_self(), "checkpoints");
  std::unique_lock lock(mutex_);
  while (true) {
    changed_.wait(lock, [this] { return stopping_ || pending_.has_value(); });
    if (!pending_.has_value()) {
      return;
    }
    Pending pending = *std::exchange(pending_, std::nullopt);
    lock.unlock();
    write(std::move(pending));
    lock.lock();
  }
}

Result<void> CheckpointWriter::wait_until_home(Duration patience,
                                               const std::function<bool()>& is_over) {
  return uploader_ == nullptr ? Result<void>() : uploader_->wait(patience, is_over);
}

bool CheckpointWriter::write(Pending pending) {
  const std::lock_guard lock(write_mutex_);
  // A job with parameter servers may fall back and come to this step again in another state.
  const auto named = pending.files.find(nn::kManifestFile);  // has the hashes of the others
  const Digest manifest = named == pending.files.end() ? Digest() : digest_of(named->second);
  const bool is_there = last_written_ == pending.committed && last_manifest_ == manifest;
  if (pending.order < order_written_ || is_there) {
    return true;
  }
  order_written_ = pending.order;
  const Result<std::string> written =
      save_checkpoint(folder_, pending.files, pending.committed, job_.config.keep_checkpoints);
  CheckpointRecord record{value(pending.committed), written.ok(),
                          written.ok() ? written.value() : written.error().detail};
  if (written.ok()) {
    last_written_ = pending.committed;
    last_manifest_ = manifest;
    failures_.is_over();
  } else if (failures_.is_news(record.text)) {
    log::warning(record.text);
  }
  listener_(record);
  if (uploader_ != nullptr) {
    uploader_->upload(pending.committed, std::move(pending.files));
  }
  return written.ok();
}

}  // namespace mayfly::engine
