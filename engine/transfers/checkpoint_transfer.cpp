#include "engine/transfers/checkpoint_transfer.hpp"

#include <algorithm>
#include <array>
#include <utility>

#include "base/check.hpp"
#include "base/net/sockets.hpp"
#include "base/try_assign.hpp"
#include "engine/run/checkpoint_store.hpp"
#include "engine/run/record_wire.hpp"

namespace mayfly::engine {
namespace {

constexpr std::size_t kTextBytesMax = 32U << 10;  // settings may have long lists
constexpr std::size_t kChunkBytes = 256U << 10;
constexpr std::array kNames = {nn::kManifestFile, nn::kModelFile, nn::kOptimizerFile};

/// Whether the offer has exactly the files of a checkpoint, so that no name leads out of its
/// folder.
bool is_checkpoint(const TransferOffer& offer) {
  const bool is_bounded = std::all_of(
      offer.files.begin(), offer.files.end(),
      [](const TransferOffer::File& file) { return file.bytes <= kCheckpointFileBytesMax; });
  return is_bounded && offer.files.size() == kNames.size() &&
         std::all_of(kNames.begin(), kNames.end(), [&](const char* name) {
           return std::any_of(offer.files.begin(), offer.files.end(),
                              [&](const TransferOffer::File& file) { return file.name == name; });
         });
}

template <typename M>
Result<M> checked(const std::optional<M>& message, bool is_sound) {
  return message && is_sound ? Result<M>(*message)
                             : Error{Errc::kCorrupt, "not a message about a checkpoint"};
}

}  // namespace

Instant transfer_deadline() {
  return monotonic_now() + kTransferIdleMax;
}

std::uint64_t TransferOffer::bytes() const {
  std::uint64_t sum = 0;
  for (const File& file : files) {
    sum += file.bytes;
  }
  return sum;
}

TransferOffer offer_of(Step step, const nn::CheckpointFiles& files) {
  TransferOffer offer;
  offer.step = step;
  for (const auto& [name, content] : files) {
    offer.files.push_back({name, content.size(), digest_of(ByteSpan(content))});
  }
  return offer;
}

Bytes encode(const TransferRequest& request) {
  return bytes_of(request, kTextBytesMax);
}

Bytes encode(const TransferAnswer& answer) {
  return bytes_of(answer, kTextBytesMax);
}

Bytes encode(const TransferReceipt& receipt) {
  return bytes_of(receipt, kTextBytesMax);
}

Result<TransferRequest> decode_transfer_request(ByteSpan bytes) {
  using Kind = TransferRequest::Kind;
  const auto request = message_in<TransferRequest>(bytes, kTextBytesMax);
  return checked(request, request && request->kind <= Kind::kEvaluate &&
                              (request->kind != Kind::kOffer || is_checkpoint(request->offer)));
}

Result<TransferAnswer> decode_transfer_answer(ByteSpan bytes) {
  const auto answer = message_in<TransferAnswer>(bytes, kTextBytesMax);
  return checked(answer, answer && answer->verdict <= TransferAnswer::Verdict::kRefused &&
                             (answer->offer.files.empty() || is_checkpoint(answer->offer)));
}

Result<TransferReceipt> decode_transfer_receipt(ByteSpan bytes) {
  return checked(message_in<TransferReceipt>(bytes, kTextBytesMax), true);
}

Result<void> send_frame(int fd, ByteSpan payload) {
  WireWriter frame;
  frame.put_bytes(payload);
  return send_exactly(fd, frame.take(), transfer_deadline());
}

Result<Bytes> receive_frame(int fd, std::size_t bytes_max, Duration idle_max) {
  std::uint32_t length = 0;
  const auto header = std::as_writable_bytes(std::span<std::uint32_t, 1>(&length, 1));
  TRY(receive_exactly(fd, header, monotonic_now() + idle_max));
  if (length > bytes_max) {
    return Error{Errc::kCorrupt, "a frame of " + std::to_string(length) + " bytes"};
  }
  Bytes payload(length);
  TRY(receive_exactly(fd, payload, monotonic_now() + idle_max));
  return payload;
}

Result<void> send_files(int fd, const TransferOffer& offer, const nn::CheckpointFiles& files) {
  for (const TransferOffer::File& file : offer.files) {
    ByteSpan left(files.at(file.name));
    while (!left.empty()) {
      const ByteSpan chunk = left.first(std::min(left.size(), kChunkBytes));
      TRY(send_exactly(fd, chunk, transfer_deadline()));
      left = left.subspan(chunk.size());
    }
  }
  return {};
}

Result<elastic::OpenSession> open_transfer(const std::string& endpoint, ByteSpan token,
                                           std::uint64_t job) {
  constexpr Duration kConnectTimeout = seconds(5);
  elastic::Hello hello;
  hello.role = elastic::Role::kTransfer;
  hello.job = job;
  return elastic::open_session(endpoint, token, std::move(hello),
                               monotonic_now() + kConnectTimeout);
}

Result<TransferAnswer> request_transfer(int fd, const TransferRequest& request, Duration idle_max) {
  TRY(send_frame(fd, encode(request)));
  while (true) {
    TRY_ASSIGN(const Bytes frame, receive_frame(fd, kFrameBytesMax, idle_max));
    if (!frame.empty()) {  // an empty one shows that the coordinator is alive
      return decode_transfer_answer(frame);
    }
  }
}

IncomingCheckpoint::IncomingCheckpoint(TransferOffer offer) : offer_(std::move(offer)) {}

/// Memory is allocated as bytes arrive, so that a sender cannot make this process allocate more
/// than it sends.
Result<void> IncomingCheckpoint::receive(int fd) {
  const std::uint64_t all = offer_.bytes();
  while (received_ < all) {
    const std::uint64_t count = std::min<std::uint64_t>(all - received_, kChunkBytes);
    bytes_.resize(received_ + count);
    const std::span<std::byte> target = std::span(bytes_).subspan(received_, count);
    TRY(receive_exactly(fd, target, transfer_deadline()));
    received_ += count;
  }
  return {};
}

Result<nn::CheckpointFiles> IncomingCheckpoint::take() {
  ENSURE(received_ == offer_.bytes(), "a checkpoint is taken when it is complete");
  nn::CheckpointFiles files;
  std::uint64_t first = 0;
  for (const TransferOffer::File& file : offer_.files) {
    const ByteSpan content = ByteSpan(bytes_).subspan(first, file.bytes);
    if (digest_of(content) != file.digest) {
      return Error{Errc::kCorrupt, file.name + " arrived damaged"};
    }
    files[file.name] = Bytes(content.begin(), content.end());
    first += file.bytes;
  }
  bytes_ = {};
  received_ = 0;
  return files;
}

}  // namespace mayfly::engine
