#include "engine/run/checkpoint_transfer.hpp"

#include <algorithm>
#include <array>
#include <utility>

#include "base/check.hpp"
#include "base/net/sockets.hpp"
#include "engine/run/checkpoint_store.hpp"

namespace mayfly::engine {
namespace {

constexpr std::size_t kFrameBytesMax = 64U << 10;
constexpr std::size_t kTextBytesMax = 32U << 10;  // settings may have long lists
constexpr std::size_t kNameBytesMax = 64;
constexpr std::size_t kChunkBytes = 256U << 10;
constexpr std::array kNames = {nn::kManifestFile, nn::kModelFile, nn::kOptimizerFile};

void put(WireWriter& out, const Digest& digest) {
  out.put(digest.high);
  out.put(digest.low);
}

Digest get_digest(WireReader& in) {
  Digest digest;
  digest.high = in.get<std::uint64_t>();
  digest.low = in.get<std::uint64_t>();
  return digest;
}

void put(WireWriter& out, const TransferOffer& offer) {
  out.put(value(offer.step));
  out.put(static_cast<std::uint32_t>(offer.files.size()));
  for (const TransferOffer::File& file : offer.files) {
    out.put_string(file.name);
    out.put(file.bytes);
    put(out, file.digest);
  }
}

TransferOffer get_offer(WireReader& in) {
  TransferOffer offer;
  offer.step = Step{in.get<std::uint64_t>()};
  const auto count = in.get<std::uint32_t>();
  for (std::uint32_t i = 0; i < std::min<std::uint32_t>(count, kNames.size() + 1); ++i) {
    TransferOffer::File file;
    file.name = in.get_string(kNameBytesMax);
    file.bytes = in.get<std::uint64_t>();
    file.digest = get_digest(in);
    offer.files.push_back(std::move(file));
  }
  return offer;
}

void put(WireWriter& out, const TransferQuestion& question) {
  out.put(value(question.step));
  put(out, question.digest);
  out.put(static_cast<std::uint8_t>(question.is_foreign));
  out.put(static_cast<std::uint8_t>(question.has_state));
}

TransferQuestion get_question(WireReader& in) {
  TransferQuestion question;
  question.step = Step{in.get<std::uint64_t>()};
  question.digest = get_digest(in);
  question.is_foreign = in.get<std::uint8_t>() != 0;
  question.has_state = in.get<std::uint8_t>() != 0;
  return question;
}

/// Exactly the files of a checkpoint, so that no name leads out of its folder.
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

template <typename T>
Result<T> checked(const WireReader& in, T message, bool is_sound) {
  if (!in.complete() || !is_sound) {
    return Error{Errc::kCorrupt, "not a message about a checkpoint"};
  }
  return message;
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
  WireWriter out;
  out.put(request.kind);
  switch (request.kind) {
    case TransferRequest::Kind::kOffer: put(out, request.offer); break;
    case TransferRequest::Kind::kQuestion: put(out, request.question); break;
    case TransferRequest::Kind::kSettings:
    case TransferRequest::Kind::kEvaluate:
      out.put_string(request.machine.substr(0, kTextBytesMax));
      break;
    case TransferRequest::Kind::kData: break;
    case TransferRequest::Kind::kFacts:
      out.put_string(request.facts.substr(0, kTextBytesMax));
      break;
  }
  return out.take();
}

Bytes encode(const TransferAnswer& answer) {
  WireWriter out;
  out.put(answer.verdict);
  out.put_string(answer.text.substr(0, kTextBytesMax));
  out.put(answer.first);
  put(out, answer.offer);
  return out.take();
}

Bytes encode(const TransferReceipt& receipt) {
  WireWriter out;
  out.put(static_cast<std::uint8_t>(receipt.is_safe));
  out.put_string(receipt.text.substr(0, kTextBytesMax));
  return out.take();
}

Result<TransferRequest> decode_transfer_request(ByteSpan bytes) {
  WireReader in(bytes);
  TransferRequest request;
  bool is_sound = true;
  switch (const auto kind = in.get<std::uint8_t>(); TransferRequest::Kind{kind}) {
    case TransferRequest::Kind::kOffer:
      request.offer = get_offer(in);
      is_sound = is_checkpoint(request.offer);
      break;
    case TransferRequest::Kind::kQuestion:
      request.kind = TransferRequest::Kind::kQuestion;
      request.question = get_question(in);
      break;
    case TransferRequest::Kind::kSettings:
    case TransferRequest::Kind::kEvaluate:
      request.kind = TransferRequest::Kind{kind};
      request.machine = in.get_string(kTextBytesMax);
      break;
    case TransferRequest::Kind::kData: request.kind = TransferRequest::Kind::kData; break;
    case TransferRequest::Kind::kFacts:
      request.kind = TransferRequest::Kind::kFacts;
      request.facts = in.get_string(kTextBytesMax);
      break;
    default: is_sound = false; break;
  }
  return checked(in, std::move(request), is_sound);
}

Result<TransferAnswer> decode_transfer_answer(ByteSpan bytes) {
  WireReader in(bytes);
  TransferAnswer answer;
  const auto verdict = in.get<std::uint8_t>();
  answer.verdict = static_cast<TransferAnswer::Verdict>(verdict);
  answer.text = in.get_string(kTextBytesMax);
  answer.first = in.get<std::uint64_t>();
  answer.offer = get_offer(in);
  const bool is_sound = verdict <= static_cast<std::uint8_t>(TransferAnswer::Verdict::kRefused) &&
                        (answer.offer.files.empty() || is_checkpoint(answer.offer));
  return checked(in, std::move(answer), is_sound);
}

Result<TransferReceipt> decode_transfer_receipt(ByteSpan bytes) {
  WireReader in(bytes);
  TransferReceipt receipt;
  receipt.is_safe = in.get<std::uint8_t>() != 0;
  receipt.text = in.get_string(kTextBytesMax);
  return checked(in, std::move(receipt), true);
}

Result<void> send_frame(int fd, ByteSpan payload) {
  WireWriter frame;
  frame.put_bytes(payload);
  return send_exactly(fd, frame.take(), transfer_deadline());
}

Result<Bytes> receive_frame(int fd) {
  std::uint32_t length = 0;
  const auto header = std::as_writable_bytes(std::span<std::uint32_t, 1>(&length, 1));
  TRY(receive_exactly(fd, header, transfer_deadline()));
  if (length > kFrameBytesMax) {
    return Error{Errc::kCorrupt, "a frame of " + std::to_string(length) + " bytes"};
  }
  Bytes payload(length);
  TRY(receive_exactly(fd, payload, transfer_deadline()));
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

Result<TransferAnswer> request_transfer(int fd, const TransferRequest& request) {
  TRY(send_frame(fd, encode(request)));
  Result<Bytes> heard = receive_frame(fd);
  if (!heard.ok()) {
    return std::move(heard).error();
  }
  return decode_transfer_answer(heard.value());
}

IncomingCheckpoint::IncomingCheckpoint(TransferOffer offer) : offer_(std::move(offer)) {}

/// Room is made as bytes come, so that nobody gets more memory by a word than by sending.
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
      return Error{Errc::kCorrupt, file.name + " did not arrive as it was sent"};
    }
    files[file.name] = Bytes(content.begin(), content.end());
    first += file.bytes;
  }
  bytes_ = {};
  received_ = 0;
  return files;
}

}  // namespace mayfly::engine
