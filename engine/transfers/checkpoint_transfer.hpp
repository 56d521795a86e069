#pragma once

// The protocol by which checkpoints are sent between a worker and the coordinator's process, on
// separate connections to the coordinator's port (elastic::Role::kTransfer), so that neither the
// control connection nor a training step waits for them. After the Welcome the worker sends one of
// these requests:
//
// - Offer, "I have this checkpoint": the coordinator answers that it already has the checkpoint,
//   that it refuses it, or from which byte on the worker should send it (an interrupted transfer
//   continues). The worker sends the files one after the other, and the coordinator confirms that
//   they are on its disk, or reports why not.
// - Question, "I would start with this state": the coordinator answers that the state is right or
//   wrong, or sends an Offer of the checkpoint to start with instead, followed by its files.
//   Workers are served one after the other. While the coordinator reads the checkpoint it sends
//   empty frames (engine/transfers/alive_frames.hpp).
// - Settings, "what is this job?": the coordinator answers with the settings of its job as a text,
//   and with kTransfer if it has no data set and needs the facts of the job.
// - Facts: the worker sends the facts of its own job (engine/run/job_facts.hpp). The coordinator
//   answers when it has the facts, from this worker or another one.
//
// - Data, "I have no data set": engine/transfers/data_transfer.hpp describes the rest.
// - Evaluate, "I measure checkpoints": engine/transfers/evaluation_service.hpp describes the rest.
//
// Frames are a 32-bit length and a payload of base/bytes.hpp; the content of files has no frames.

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
/// The time until which a peer has to send or receive something, from now on.
[[nodiscard]] Instant transfer_deadline();

/// The files of a checkpoint.
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
  std::vector<File> files;  ///< in the order in which they are sent

  [[nodiscard]] std::uint64_t bytes() const;
  friend bool operator==(const TransferOffer&, const TransferOffer&) = default;

  static void fields(auto& io, auto& r) {
    io.wire(r.step);
    io.wire(r.files);
  }
};

/// The state with which a process would start, before it joins the job.
struct TransferQuestion {
  Step step{};
  Digest digest;            ///< of the checkpoint, as it was written
  bool is_foreign = false;  ///< it is from a checkpoint of a job with other settings
  bool has_state = false;  ///< it is from a checkpoint of its own, not from one that was sent to it
  /// The process is a parameter server, which gets no state from other members: it begins with the
  /// state that the job is resumed from, even if the job already has members.
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
  /// kSettings, kEvaluate: the provider's name for the sender's machine; may be empty
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
    kNothing = 0,  ///< nothing needs to be sent
    kTransfer = 1,
    kRefused = 2,  ///< permanently; `text` is the reason
  };
  Verdict verdict = Verdict::kNothing;
  std::string text;         ///< the reason of a refusal, or the settings
  std::uint64_t first = 0;  ///< answers an offer: the first byte to send
  TransferOffer offer;      ///< answers a question: the checkpoint that follows

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
  std::string text;  ///< the reason if it is not safe

  static void fields(auto& io, auto& r) {
    io.wire(r.is_safe);
    io.wire(r.text);
  }
};

[[nodiscard]] TransferOffer offer_of(Step step, const nn::CheckpointFiles& files);

[[nodiscard]] Bytes encode(const TransferRequest& request);
[[nodiscard]] Bytes encode(const TransferAnswer& answer);
[[nodiscard]] Bytes encode(const TransferReceipt& receipt);
/// kCorrupt if the bytes are not such a message, or an offer has other files than a checkpoint.
[[nodiscard]] Result<TransferRequest> decode_transfer_request(ByteSpan bytes);
[[nodiscard]] Result<TransferAnswer> decode_transfer_answer(ByteSpan bytes);
[[nodiscard]] Result<TransferReceipt> decode_transfer_receipt(ByteSpan bytes);

/// Upper limits of one message, and of a request, which may contain the facts of a job.
inline constexpr std::size_t kFrameBytesMax = 64U << 10;
inline constexpr std::size_t kRequestBytesMax = kFactsBytesMax + kFrameBytesMax;

// Input and output on a connection. Every wait ends after kTransferIdleMax, or `idle_max`. Errors:
// kPeerLost, kDeadline, kCorrupt.
[[nodiscard]] Result<void> send_frame(int fd, ByteSpan payload);
[[nodiscard]] Result<Bytes> receive_frame(int fd, std::size_t bytes_max = kFrameBytesMax,
                                          Duration idle_max = kTransferIdleMax);
/// Sends the content of the files, in the order of the offer.
[[nodiscard]] Result<void> send_files(int fd, const TransferOffer& offer,
                                      const nn::CheckpointFiles& files);
/// Connects to a coordinator, for up to five seconds. Fails as elastic::open_session() does.
/// `job`: the job that this process is a member of; 0 = none. kRefused if the coordinator leads
/// another one.
[[nodiscard]] Result<elastic::OpenSession> open_transfer(const std::string& endpoint,
                                                         ByteSpan token, std::uint64_t job = 0);
/// Sends the request of a worker and receives the coordinator's answer. kDeadline: the coordinator
/// is connected but has sent nothing for `idle_max`, for example because it serves other workers.
[[nodiscard]] Result<TransferAnswer> request_transfer(int fd, const TransferRequest& request,
                                                      Duration idle_max = kTransferIdleMax);

/// A checkpoint that is being received.
class IncomingCheckpoint {
 public:
  explicit IncomingCheckpoint(TransferOffer offer);

  [[nodiscard]] const TransferOffer& offer() const { return offer_; }
  [[nodiscard]] std::uint64_t received() const { return received_; }
  /// Receives the remaining bytes. If the connection breaks, the bytes received so far are kept.
  [[nodiscard]] Result<void> receive(int fd);
  /// The received files. kCorrupt, with the name, if a file differs from the offer. To be called
  /// only when all bytes are received.
  [[nodiscard]] Result<nn::CheckpointFiles> take();

 private:
  TransferOffer offer_;
  Bytes bytes_;  // the received bytes, followed by some unused ones
  std::uint64_t received_ = 0;
};

}  // namespace mayfly::engine
