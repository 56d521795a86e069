#pragma once

// One connection that a process has made to a shard: its greeting, and then the gradients and
// answers of a worker, or the entries of the leader that this shard follows. One thread.

#include <cstdint>
#include <memory>
#include <span>
#include <string>

#include "base/bytes.hpp"
#include "base/ids.hpp"
#include "base/result.hpp"
#include "base/time.hpp"
#include "base/unique_fd.hpp"
#include "collectives/parameter_server/core/lease.hpp"
#include "collectives/parameter_server/core/update_order.hpp"
#include "collectives/parameter_server/message.hpp"
#include "collectives/parameter_server/message_stream.hpp"
#include "collectives/parameter_server/pushed_gradients.hpp"
#include "collectives/parameter_server/shared_slots.hpp"

namespace mayfly::parameter_server {

/// The parts that the sessions of one shard share.
struct SessionContext {
  std::uint32_t shard = 0;          ///< its number
  std::uint64_t payload_bytes = 0;  ///< of a gradient, and of the parameters
  bool payload_hashes = false;      ///< in answers
  // Counted by the sessions:
  std::uint64_t bytes_in = 0;      ///< headers and payloads that were received
  std::uint64_t bytes_out = 0;     ///< parameters and states that were sent, with their headers
  std::uint64_t bytes_shared = 0;  ///< payloads of both that are in memory shared with workers
  Bytes spare_copy{};              ///< see MessageStream
};

class Session {
 public:
  /// A process sends its greeting as soon as it is connected.
  static constexpr Duration kGreetingTimeout = seconds(5);
  /// A greeting of a view that is not known here is kept only for this time; a worker or leader
  /// connects again.
  static constexpr Duration kAdmissionTimeout = seconds(10);

  /// `context` outlives it.
  Session(UniqueFd socket, SessionContext& context);

  // The process at the other end. It is a stranger until it is admitted.
  [[nodiscard]] bool is_stranger() const { return peer_ <= Peer::kGreeted; }
  /// True if its greeting waits for admission; nothing is read until then.
  [[nodiscard]] bool is_greeted() const { return peer_ == Peer::kGreeted; }
  [[nodiscard]] bool is_worker() const { return peer_ == Peer::kWorker; }
  [[nodiscard]] bool is_leader() const { return peer_ == Peer::kLeader; }
  /// Only after it has sent one.
  [[nodiscard]] const Header& greeting() const { return greeting_; }
  /// Only for a worker.
  [[nodiscard]] MemberId worker() const { return MemberId{greeting_.worker}; }

  /// The greeting of a stranger has arrived.
  void greet(const Header& greeting);
  /// The stranger is the worker of its greeting. Sends it kWelcome, and uses the memory that it
  /// shares, if there is any and it is of the right size.
  void admit_worker();
  /// The stranger is the leader of this shard.
  void admit_leader() { peer_ = Peer::kLeader; }

  /// When a stranger's time is over.
  [[nodiscard]] Instant stranger_until() const {
    return connected_at_ + (is_greeted() ? kAdmissionTimeout : kGreetingTimeout);
  }
  [[nodiscard]] bool is_over() const { return is_over_; }
  /// The session is over: serve() and flush() do nothing any more.
  void end() { is_over_ = true; }
  /// As end(), with a line in the log if it is a worker's session.
  void fail(const std::string& why);

  /// For poll().
  [[nodiscard]] int fd() const { return stream_.fd(); }
  [[nodiscard]] short events() const;
  /// To be called after poll(): receives. Errors, including those of the handlers, end the session.
  void serve(short events, const MessageStream::OnHeader& on_header,
             const MessageStream::OnMessage& on_message);
  /// Sends as much as the socket accepts of what may be sent. An error ends the session.
  void flush();

  /// The memory for the payload of a message of a stranger or worker, for MessageStream::OnHeader:
  /// for a push it is memory of `gradients`. kCorrupt, kRefused.
  [[nodiscard]] Result<PayloadTarget> expect(const Header& header, PushedGradients& gradients);
  /// The gradient of this worker's push, which has arrived completely. kCorrupt if it is in a slot
  /// and is damaged.
  [[nodiscard]] Result<PushedSum> take_gradient(const Header& push);
  /// The worker's newest question; the next answer is to this one.
  void ask(std::uint64_t question) { question_ = question; }

  // Messages wait for release() of their gate; so do all later ones (MessageStream). The spans of
  // parameters must stay unchanged until they are sent, unless keep_copies() is called before.
  void send(const Header& header, std::uint64_t gate = 0) {
    stream_.send(header, {}, {}, false, gate);
  }
  void send_lease(const Lease& lease, std::uint64_t gate);
  /// Answers the worker's question.
  void send_parameters(std::uint64_t version, std::span<const float> values, std::uint64_t gate);
  /// Answers a fetch of the state. An earlier answer of which nothing has been sent is withdrawn,
  /// because the worker has given up that fetch.
  void send_state(const StateVersion& version, std::span<const float> values,
                  std::span<const float> momentum, std::uint64_t question, std::uint64_t gate);
  void release(std::uint64_t through) { stream_.release(through); }
  void keep_copies() { stream_.keep_copies(); }
  [[nodiscard]] std::uint64_t bytes_sent() const { return stream_.bytes_sent(); }

 private:
  enum class Peer : std::uint8_t { kSilent, kGreeted, kWorker, kLeader };

  void share_memory();

  SessionContext& context_;
  const Instant connected_at_ = monotonic_now();
  MessageStream stream_;
  Peer peer_ = Peer::kSilent;
  bool is_over_ = false;
  Header greeting_;
  std::shared_ptr<SharedSlots> slots_;  // shared with this worker and its gradients; null: none
  PushedSum space_;                     // for the gradient that is being received
  std::uint64_t question_ = 0;
};

}  // namespace mayfly::parameter_server
