#include "engine/transfers/checkpoint_uploader.hpp"

#include <fmt/format.h>
#include <pthread.h>

#include <algorithm>
#include <utility>

#include "base/log.hpp"
#include "base/net/sockets.hpp"
#include "base/try_assign.hpp"

namespace mayfly::engine {
namespace {

constexpr Duration kRetryAfter = seconds(1);
/// A process that is about to end waits no longer than this if no coordinator accepts the
/// checkpoint.
constexpr Duration kClosingPatience = seconds(5);
constexpr Duration kTurn = milliseconds(50);
constexpr std::size_t kUploadChunkBytes = 128U << 10;

}  // namespace

double upload_bytes_per_second(std::uint64_t bytes, Duration interval) {
  constexpr double kShareOfInterval = 1.0 / 8;
  constexpr double kMin = 2.0 * (1 << 20);
  constexpr double kMax = 64.0 * (1 << 20);
  const double spread_s = kShareOfInterval * to_seconds(interval);
  return std::clamp(static_cast<double>(bytes) / spread_s, kMin, kMax);
}

CheckpointUploader::CheckpointUploader(std::vector<std::string> endpoints, Bytes token,
                                       std::uint64_t job)
    : endpoints_(std::move(endpoints)),
      token_(std::move(token)),
      job_(job),
      last_sent_at_(monotonic_now()),
      submitted_at_(last_sent_at_),
      thread_([this] { run(); }) {}

CheckpointUploader::~CheckpointUploader() {
  is_urgent_ = true;
  last_sent_at_ = monotonic_now();
  {
    const std::lock_guard lock(mutex_);  // else the thread may miss the notification
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
    item.bytes_per_second = upload_bytes_per_second(item.offer.bytes(), now - submitted_at_);
    item.number = ++submitted_;
    waiting_ = std::move(item);
    submitted_at_ = now;
    refused_.reset();
    last_sent_at_ = now;
  }
  changed_.notify_all();
}

Result<void> CheckpointUploader::wait(Duration patience, const std::function<bool()>& is_over) {
  is_urgent_ = true;
  last_sent_at_ = monotonic_now();
  std::unique_lock lock(mutex_);
  while (delivered_ != submitted_) {
    if (refused_) {
      return *refused_;
    }
    if (is_over()) {
      return Error{Errc::kAborted, "the view is over"};
    }
    if (monotonic_now() - last_sent_at_.load() > patience) {
      return Error{Errc::kDeadline, "no coordinator accepts the checkpoint"};
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
    const bool is_late = is_closing_ && monotonic_now() - last_sent_at_.load() > kClosingPatience;
    const std::lock_guard lock(mutex_);
    if (is_closing_ && !waiting_ && (!item || is_late || delivered_ == submitted_)) {
      return;
    }
  }
}

bool CheckpointUploader::is_done(const Item& item) const {
  return std::all_of(item.is_done.begin(), item.is_done.end(), [](bool done) { return done; });
}

/// Offers the item to all coordinators that do not have it. A coordinator that refuses it may be a
/// standby, so a refusal is only an error if no coordinator has accepted the item.
void CheckpointUploader::try_all(Item& item) {
  std::optional<Error> refusal;
  for (std::size_t i = 0; i < endpoints_.size(); ++i) {
    if (item.is_done[i]) {
      continue;
    }
    const Result<void> sent = attempt(endpoints_[i], item);
    const bool is_refused = !sent.ok() && sent.error().code == Errc::kRefused;
    item.is_done[i] = sent.ok() || is_refused;
    if (is_refused) {
      log::warning(
          fmt::format("the coordinator at {} does not accept the checkpoint of step {}: {}",
                      endpoints_[i], value(item.step), sent.error().detail));
    } else if (!sent.ok()) {
      log::debug(fmt::format("checkpoint of step {} to {}: {}", value(item.step), endpoints_[i],
                             sent.error().detail));
    }
    if (is_refused) {
      refusal = sent.error();
    } else if (sent.ok()) {
      const std::lock_guard lock(mutex_);
      delivered_ = item.number;
      changed_.notify_all();
    }
  }
  const std::lock_guard lock(mutex_);
  if (refusal && submitted_ == item.number && delivered_ != item.number) {
    refused_ = std::move(refusal);
    changed_.notify_all();
  }
}

Result<void> CheckpointUploader::attempt(const std::string& endpoint, const Item& item) {
  TRY_ASSIGN(elastic::OpenSession session, open_transfer(endpoint, token_, job_));
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
      last_sent_at_ = monotonic_now();
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

}  // namespace mayfly::engine
