#include "collectives/gloo/gloo_engine.hpp"

#include <dirent.h>
#include <fcntl.h>
#include <fmt/format.h>
#include <gloo/transport/unbound_buffer.h>
#include <netinet/in.h>

#include <algorithm>
#include <chrono>
#include <cstdlib>
#include <cstring>
#include <exception>
#include <optional>
#include <span>
#include <utility>

#include "base/aligned_buffer.hpp"
#include "base/random.hpp"
#include "base/text.hpp"
#include "collectives/plan/reduce_kernels.hpp"

namespace mayfly::collectives {
namespace {

using Piece = RingTask::Piece;
using std::chrono::milliseconds;

// Gloo needs two notifications and a thread switch per message, so messages are larger than the tcp
// link's pieces.
constexpr std::size_t kMessageBytes = 512 * 1024;
// Gloo's own timeout is no failure detector: it would also fire on a healthy peer that is busy.
constexpr milliseconds kForever = std::chrono::hours(24 * 7);
constexpr std::uint64_t kHeaderSlot = 1;

// The error of an exchange of this member, thrown to end run().
struct Failed : std::exception {
  explicit Failed(Error failure) : error(std::move(failure)) {}
  Error error;
};

struct Neighbour {
  int rank = 0;
  MemberId member{};
};

bool same_endpoint(const sockaddr_storage& a, const sockaddr_storage& b) {
  if (a.ss_family != b.ss_family) {
    return false;
  }
  if (a.ss_family == AF_INET) {
    const auto& a4 = reinterpret_cast<const sockaddr_in&>(a);
    const auto& b4 = reinterpret_cast<const sockaddr_in&>(b);
    return a4.sin_port == b4.sin_port && a4.sin_addr.s_addr == b4.sin_addr.s_addr;
  }
  const auto& a6 = reinterpret_cast<const sockaddr_in6&>(a);
  const auto& b6 = reinterpret_cast<const sockaddr_in6&>(b);
  return a.ss_family == AF_INET6 && a6.sin6_port == b6.sin6_port &&
         std::memcmp(&a6.sin6_addr, &b6.sin6_addr, sizeof a6.sin6_addr) == 0;
}

// A pair's socket is bound to the address that this side has published, or connected to the other
// side's address.
bool belongs_to(int fd, const std::vector<sockaddr_storage>& addresses) {
  for (const auto ask : {&::getsockname, &::getpeername}) {
    sockaddr_storage at{};
    socklen_t length = sizeof at;
    const bool known = ask(fd, reinterpret_cast<sockaddr*>(&at), &length) == 0;
    if (known && std::any_of(addresses.begin(), addresses.end(),
                             [&](const sockaddr_storage& a) { return same_endpoint(a, at); })) {
      return true;
    }
  }
  return false;
}

void shut_down_all(const std::vector<UniqueFd>& sockets) {
  for (const UniqueFd& fd : sockets) {
    ::shutdown(fd.get(), SHUT_RDWR);
  }
}

struct CloseFolder {
  void operator()(DIR* folder) const { ::closedir(folder); }
};

// A Gloo buffer over some memory, and the waits on it.
class Buffer {
 public:
  Buffer(gloo::Context& context, GlooAborter& aborter, std::span<std::byte> memory,
         std::optional<Instant> deadline)
      : aborter_(aborter),
        buffer_(context.createUnboundBuffer(memory.data(), memory.size())),
        guard_(aborter, *buffer_),
        deadline_(deadline) {}

  void send(Neighbour to, std::uint64_t slot, const std::byte* data, std::size_t bytes) {
    attempt(to, [&] {
      buffer_->send(to.rank, slot, offset_of(data), bytes);
      return true;
    });
  }
  void receive(Neighbour from, std::uint64_t slot, const std::byte* data, std::size_t bytes) {
    attempt(from, [&] {
      buffer_->recv(from.rank, slot, offset_of(data), bytes);
      return true;
    });
  }
  void wait_sent(Neighbour to) {
    attempt(to, [&] { return buffer_->waitSend(timeout()); });
  }
  void wait_received(Neighbour from) {
    attempt(from, [&] { return buffer_->waitRecv(timeout()); });
  }

 private:
  std::size_t offset_of(const std::byte* data) const {
    return static_cast<std::size_t>(data - static_cast<const std::byte*>(buffer_->ptr));
  }

  // Translates Gloo's three kinds of failure: false, an exception, and an abort in between.
  template <typename Call>
  void attempt(Neighbour with, const Call& call) {
    const Error aborted{Errc::kAborted, "the group was aborted"};
    try {
      if (!aborter_.aborted() && call() && !aborter_.aborted()) {
        return;
      }
    } catch (const std::exception& lost) {
      if (aborter_.aborted()) {
        throw Failed(aborted);
      }
      const bool late = deadline_ && monotonic_now() >= *deadline_;
      throw Failed({late ? Errc::kDeadline : Errc::kPeerLost,
                    fmt::format("member {}: {}", value(with.member), reason_of(lost)),
                    with.member});
    }
    throw Failed(aborted);
  }

  milliseconds timeout() const {
    if (!deadline_) {
      return kForever;
    }
    const auto left = std::chrono::duration_cast<milliseconds>(*deadline_ - monotonic_now());
    return std::max(left + milliseconds(1), milliseconds(1));
  }

  GlooAborter& aborter_;
  std::unique_ptr<gloo::transport::UnboundBuffer> buffer_;
  GlooAborter::Guard guard_;
  std::optional<Instant> deadline_;
};

// The memory that contains all pieces of a task.
std::span<std::byte> envelope_of(const RingTask& task) {
  std::byte* first = nullptr;
  std::byte* last = nullptr;
  for (const auto* pieces : {&task.outgoing, &task.incoming}) {
    for (const Piece& piece : *pieces) {
      if (piece.bytes > 0) {
        first = first == nullptr ? piece.data : std::min(first, piece.data);
        last = std::max(last, piece.data + piece.bytes);
      }
    }
  }
  return {first, last};
}

// The neighbours and slot of one run.
struct Route {
  Neighbour next;
  Neighbour previous;
  // Different for each operation, so that operations never mix their data.
  std::uint64_t slot = 0;
};

// One run of one task, message by message. Two receives are kept posted, so that one message is
// received while the other is reduced.
class GlooRun {
 public:
  GlooRun(const Operation& operation, gloo::Context& context, GlooAborter& aborter,
          std::span<std::byte> scratch, const Route& route, std::optional<Instant> deadline)
      : operation_(operation),
        task_(ring_task(operation, static_cast<std::uint32_t>(context.size),
                        static_cast<Rank>(context.rank), kMessageBytes)),
        route_(route),
        header_(operation.header),
        header_out_(context, aborter, bytes_of(header_), deadline),
        header_in_(context, aborter, bytes_of(their_header_), deadline),
        memory_(context, aborter, envelope_of(task_), deadline),
        halves_{scratch.first(kMessageBytes), scratch.last(kMessageBytes)},
        scratch_{{context, aborter, halves_[0], deadline},
                 {context, aborter, halves_[1], deadline}},
        ready_(task_.ready_bytes) {}

  void run() {
    exchange_headers();
    post_receives(0);
    post_sends();
    check_headers();
    for (std::size_t i = 0; i < task_.incoming.size(); ++i) {
      finish_receive(i);
      ready_ += task_.incoming[i].bytes;
      post_sends();
      post_receives(i + 1);
    }
    for (std::size_t i = 0; i < task_.outgoing.size(); ++i) {
      memory_.wait_sent(route_.next);
    }
    header_out_.wait_sent(route_.next);
  }

 private:
  static std::span<std::byte> bytes_of(OperationHeader& header) {
    return std::as_writable_bytes(std::span(&header, 1));
  }

  void exchange_headers() {
    header_in_.receive(route_.previous, kHeaderSlot, bytes_of(their_header_).data(),
                       sizeof(OperationHeader));
    header_out_.send(route_.next, kHeaderSlot, bytes_of(header_).data(), sizeof(OperationHeader));
  }

  void check_headers() {
    header_in_.wait_received(route_.previous);
    if (const Result<void> same = check_header(header_, their_header_, route_.previous.member);
        !same.ok()) {
      throw Failed(same.error());
    }
  }

  // Keeps receives posted, up to one message further than the awaited one.
  void post_receives(std::size_t awaited) {
    for (; posted_ < task_.incoming.size() && posted_ < awaited + 2; ++posted_) {
      const Piece& message = task_.incoming[posted_];
      Buffer& into = message.is_reduced ? scratch_[posted_ % 2] : memory_;
      const std::byte* const at = message.is_reduced ? halves_[posted_ % 2].data() : message.data;
      into.receive(route_.previous, route_.slot, at, message.bytes);
    }
  }

  void finish_receive(std::size_t i) {
    const Piece& message = task_.incoming[i];
    if (message.is_reduced) {
      scratch_[i % 2].wait_received(route_.previous);
      reduce(message.data, halves_[i % 2].data(), message.bytes / size_of(operation_.type),
             operation_.type, operation_.op);
    } else {
      memory_.wait_received(route_.previous);
    }
  }

  void post_sends() {
    for (; sent_ < task_.outgoing.size() && task_.outgoing[sent_].bytes <= ready_; ++sent_) {
      memory_.send(route_.next, route_.slot, task_.outgoing[sent_].data,
                   task_.outgoing[sent_].bytes);
      ready_ -= task_.outgoing[sent_].bytes;
    }
  }

  const Operation& operation_;
  const RingTask task_;
  const Route route_;
  OperationHeader header_;
  OperationHeader their_header_;
  Buffer header_out_;
  Buffer header_in_;
  Buffer memory_;
  std::span<std::byte> halves_[2];
  Buffer scratch_[2];
  std::size_t posted_ = 0;  // number of posted receives
  std::size_t sent_ = 0;    // number of outgoing messages passed to Gloo
  std::size_t ready_;       // bytes of the outgoing stream that are ready and not sent
};

class GlooEngine final : public GroupEngine {
 public:
  GlooEngine(std::shared_ptr<gloo::rendezvous::Context> context, const std::vector<Peer>& peers,
             std::shared_ptr<GlooAborter> aborter)
      : context_(std::move(context)),
        next_(neighbour(1, peers)),
        previous_(neighbour(context_->size - 1, peers)),
        aborter_(std::move(aborter)) {}
  ~GlooEngine() override { aborter_->shut_down(); }

  void begin(const Operation& operation) override { operation_ = &operation; }

  Result<bool> advance(std::optional<Instant> until) override {
    const OperationHeader& header = operation_->header;
    const Route route{
        .next = next_, .previous = previous_, .slot = mix64(header.shape ^ mix64(header.sequence))};
    try {
      GlooRun(*operation_, *context_, *aborter_, scratch_.span(), route, until).run();
    } catch (const Failed& failed) {
      return failed.error;
    } catch (const std::exception& failed) {  // Gloo rejects the buffers themselves
      return Error{Errc::kIo, reason_of(failed)};
    }
    return true;
  }

  bool returns_by(std::optional<Instant> /*until*/) const override { return false; }

  void abort() noexcept override { aborter_->abort(); }

 private:
  // The member that is `ahead` places after this one in the ring.
  [[nodiscard]] Neighbour neighbour(int ahead, const std::vector<Peer>& peers) const {
    const int rank = (context_->rank + ahead) % context_->size;
    return {rank, peers[static_cast<std::size_t>(rank)].member};
  }

  const std::shared_ptr<gloo::rendezvous::Context> context_;  // Gloo's objects share it
  const Neighbour next_;
  const Neighbour previous_;
  const Operation* operation_ = nullptr;
  const std::shared_ptr<GlooAborter> aborter_;  // shared with the transport while it forms
  AlignedBuffer<std::byte> scratch_{2 * kMessageBytes};
};

}  // namespace

std::unique_ptr<GroupEngine> make_gloo_engine(std::shared_ptr<gloo::rendezvous::Context> context,
                                              const std::vector<Peer>& peers,
                                              std::shared_ptr<GlooAborter> aborter) {
  return std::make_unique<GlooEngine>(std::move(context), peers, std::move(aborter));
}

void GlooAborter::abort() noexcept {
  aborted_.store(true, std::memory_order_release);
  const std::lock_guard lock(mutex_);
  for (gloo::transport::UnboundBuffer* buffer : buffers_) {
    buffer->abortWaitRecv();
    buffer->abortWaitSend();
  }
  if (sockets_.empty()) {  // still connecting
    shut_down_all(find_sockets());
  }
  shut_down_all(sockets_);
}

void GlooAborter::note_addresses(ByteSpan published, std::size_t pair_count) {
  const std::size_t each = published.size() / pair_count;
  if (each < sizeof(sockaddr_storage) || published.size() % pair_count != 0) {
    return;  // another version of Gloo; aborting waits still works
  }
  const std::lock_guard lock(mutex_);
  for (std::size_t i = 0; i < pair_count; ++i) {
    sockaddr_storage address{};
    std::memcpy(&address, published.data() + i * each, sizeof address);
    if (address.ss_family == AF_INET || address.ss_family == AF_INET6) {
      addresses_.push_back(address);
    }
  }
}

void GlooAborter::capture_sockets() {
  const std::lock_guard lock(mutex_);
  sockets_ = find_sockets();
}

void GlooAborter::shut_down() noexcept {
  const std::lock_guard lock(mutex_);
  shut_down_all(sockets_);
}

std::vector<UniqueFd> GlooAborter::find_sockets() const {
  std::vector<UniqueFd> found;
  const std::unique_ptr<DIR, CloseFolder> folder(::opendir("/proc/self/fd"));
  while (const dirent* entry = folder ? ::readdir(folder.get()) : nullptr) {
    const int number = std::atoi(entry->d_name);
    if (number < 3 || !belongs_to(number, addresses_)) {
      continue;  // closing a duplicate of a file would release this process's record locks on it
    }
    UniqueFd fd(::fcntl(number, F_DUPFD_CLOEXEC, 3));
    // Again, because Gloo may have closed the socket, and the number may be another one's, by now.
    if (fd.valid() && belongs_to(fd.get(), addresses_)) {
      found.push_back(std::move(fd));
    }
  }
  return found;
}

GlooAborter::Guard::Guard(GlooAborter& aborter, gloo::transport::UnboundBuffer& buffer)
    : aborter_(aborter), buffer_(buffer) {
  const std::lock_guard lock(aborter_.mutex_);
  aborter_.buffers_.push_back(&buffer_);
  if (aborter_.aborted()) {
    buffer_.abortWaitRecv();
    buffer_.abortWaitSend();
  }
}

GlooAborter::Guard::~Guard() {
  const std::lock_guard lock(aborter_.mutex_);
  std::erase(aborter_.buffers_, &buffer_);
}

}  // namespace mayfly::collectives
