#pragma once

// How checkpoints travel between a worker and the coordinator's process, on a connection of their
// own to the coordinator's port (elastic::Role::kTransfer), so that neither the control connection
// nor a training step waits for them. After the Welcome the worker says what it wants:
//
// - Offer, "I have this checkpoint": the coordinator answers that it has it, that it refuses it, or
//   from which byte on it wants it (a transfer that broke goes on where it was); the files follow
//   one after the other, and the coordinator says whether they are safe on its disk.
// - Question, "this is what I would start with": the coordinator answers that this is right, that
//   it is wrong, or sends an Offer of what to start with instead, and then the files. One worker
//   has its turn after the other.
// - Settings, "what is this job?": the coordinator answers with the settings of its job as a text,
//   and with kTransfer if it has no data set and wants the facts of the job.
// - Facts, "this is what I have": those of a worker's own job (engine/run/job_facts.hpp). The
//   coordinator answers when it knows them, from this worker or another.
//
// - Data, "I have no data set": engine/transfers/data_transfer.hpp goes on from there.
// - Evaluate, "I measure checkpoints": engine/transfers/evaluation_service.hpp goes on from there.
//
// Frames are a 32-bit length and a payload of base/bytes.hpp; the files follow as they are.

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "base/bytes.hpp"
#include "base/digest.hpp"
#include "base/ids.hpp"
#include "base/result.hpp"
#include "base/time.hpp"
#include "elastic/net/handshake.hpp"
#include "engine/run/job_facts.hpp"
#include "nn/checkpoint.hpp"

namespace mayfly::engine {

/// Neither side waits longer than this for the other side's next bytes.
inline constexpr Duration kTransferIdleMax = seconds(10);
/// A peer that sends or takes nothing until then is given up.
[[nodiscard]] Instant transfer_deadline();

/// What a checkpoint consists of.
struct TransferOffer {
  struct File {
    std::string name;
    std::uint64_t bytes = 0;
    Digest digest;
    friend bool operator==(const File&, const File&) = default;

    static void fields(auto& io, auto& r) {
      io.wire(r.name);
      io.wire(r.bytes);
      io.wire(r.digest);
    }
  };
  Step step{};
  std::vector<File> files;  ///< in the order in which they travel

  [[nodiscard]] std::uint64_t bytes() const;
  friend bool operator==(const TransferOffer&, const TransferOffer&) = default;

  static void fields(auto& io, auto& r) {
    io.wire(r.step);
    io.wire(r.files);
  }
};

/// What a worker would start with, before it takes part.
struct TransferQuestion {
  Step step{};
  Digest digest;            ///< of the checkpoint, as it was written
  bool is_foreign = false;  ///< it is from a checkpoint of a job with other settings
  bool has_state = false;   ///< it is from a checkpoint at all, and not one that was given to it
  /// It is for a parameter server, which gets no state from other members: it begins with the state
  /// that the job is resumed from, whether or not there are members already.
  bool needs_state = false;

  static void fields(auto& io, auto& r) {
    io.wire(r.step);
    io.wire(r.digest);
    io.wire(r.is_foreign);
    io.wire(r.has_state);
    io.wire(r.needs_state);
  }
};

struct TransferRequest {
  enum class Kind : std::uint8_t {
    kOffer = 0,
    kQuestion = 1,
    kSettings = 2,
    kFacts = 3,
    kData = 4,
    kEvaluate = 5
  };
  Kind kind = Kind::kOffer;
  TransferOffer offer;        ///< kOffer
  TransferQuestion question;  ///< kQuestion
  std::string facts;          ///< kFacts; at most kFactsBytesMax
  /// kSettings, kEvaluate: the provider's name for where it runs; may be empty
  std::string machine;

  static void fields(auto& io, auto& r) {
    io.wire(r.kind);
    switch (r.kind) {
      case Kind::kOffer: io.wire(r.offer); break;
      case Kind::kQuestion: io.wire(r.question); break;
      case Kind::kSettings:
      case Kind::kEvaluate: io.wire(r.machine); break;
      case Kind::kFacts: io.whole(r.facts, kFactsBytesMax); break;
      case Kind::kData: break;
    }
  }
};

struct TransferAnswer {
  enum class Verdict : std::uint8_t {
    kNothing = 0,  ///< nothing needs to travel
    kTransfer = 1,
    kRefused = 2,  ///< for good, `text` says why
  };
  Verdict verdict = Verdict::kNothing;
  std::string text;         ///< why it is refused, or the settings
  std::uint64_t first = 0;  ///< of an offer: from this byte on
  TransferOffer offer;      ///< of a question: what travels

  static void fields(auto& io, auto& r) {
    io.wire(r.verdict);
    io.wire(r.text);
    io.wire(r.first);
    io.wire(r.offer);
  }
};

/// The end of an accepted offer.
struct TransferReceipt {
  bool is_safe = false;
  std::string text;  ///< where it is, or why not

  static void fields(auto& io, auto& r) {
    io.wire(r.is_safe);
    io.wire(r.text);
  }
};

[[nodiscard]] TransferOffer offer_of(Step step, const nn::CheckpointFiles& files);

[[nodiscard]] Bytes encode(const TransferRequest& request);
[[nodiscard]] Bytes encode(const TransferAnswer& answer);
[[nodiscard]] Bytes encode(const TransferReceipt& receipt);
/// kCorrupt if the bytes are no such message, or an offer has other files than a checkpoint.
[[nodiscard]] Result<TransferRequest> decode_transfer_request(ByteSpan bytes);
[[nodiscard]] Result<TransferAnswer> decode_transfer_answer(ByteSpan bytes);
[[nodiscard]] Result<TransferReceipt> decode_transfer_receipt(ByteSpan bytes);

/// Upper limits of one message, and of a request, which may contain the facts of a job.
inline constexpr std::size_t kFrameBytesMax = 64U << 10;
inline constexpr std::size_t kRequestBytesMax = kFactsBytesMax + kFrameBytesMax;

// On a connection; every wait ends after kTransferIdleMax, or `idle_max`. kPeerLost, kDeadline,
// kCorrupt.
[[nodiscard]] Result<void> send_frame(int fd, ByteSpan payload);
[[nodiscard]] Result<Bytes> receive_frame(int fd, std::size_t bytes_max = kFrameBytesMax,
                                          Duration idle_max = kTransferIdleMax);
/// Sends the content of the files, in the order of the offer.
[[nodiscard]] Result<void> send_files(int fd, const TransferOffer& offer,
                                      const nn::CheckpointFiles& files);
/// Connects to a coordinator, for up to five seconds; errors as of elastic::open_session().
[[nodiscard]] Result<elastic::OpenSession> open_transfer(const std::string& endpoint,
                                                         ByteSpan token);
/// Sends what a worker wants, and receives the coordinator's answer. kDeadline: the coordinator is
/// there, but has not answered for `idle_max`, as while it serves others.
[[nodiscard]] Result<TransferAnswer> request_transfer(int fd, const TransferRequest& request,
                                                      Duration idle_max = kTransferIdleMax);

/// A checkpoint that is being received.
class IncomingCheckpoint {
 public:
  explicit IncomingCheckpoint(TransferOffer offer);

  [[nodiscard]] const TransferOffer& offer() const { return offer_; }
  [[nodiscard]] std::uint64_t received() const { return received_; }
  /// Receives until all is there. What has come stays if the connection breaks.
  [[nodiscard]] Result<void> receive(int fd);
  /// kCorrupt, with the file, if one is not what was offered. Complete ones only.
  [[nodiscard]] Result<nn::CheckpointFiles> take();

 private:
  TransferOffer offer_;
  Bytes bytes_;  // as many as were received, and some more room
  std::uint64_t received_ = 0;
};

}  // namespace mayfly::engine
