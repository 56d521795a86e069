#pragma once

// The event loop behind Shard; for shard.cpp (connections), shard_messages.cpp (messages of
// workers) and shard_replica.cpp (messages between leader and follower) only.

#include <poll.h>

#include <atomic>
#include <deque>
#include <functional>
#include <optional>
#include <thread>
#include <utility>
#include <variant>

#include "base/aligned_buffer.hpp"
#include "base/net/wake_up.hpp"
#include "collectives/parameter_server/connection.hpp"
#include "collectives/parameter_server/core/replicas.hpp"
#include "collectives/parameter_server/core/shard_core.hpp"
#include "collectives/parameter_server/shard.hpp"
#include "collectives/parameter_server/shared_slots.hpp"

namespace mayfly::parameter_server {

/// The most bytes of the ids of a view's workers in a message to a follower.
inline constexpr std::uint64_t kRosterBytesMax = std::uint64_t{1} << 17;

/// What was pushed: in memory of the shard's own, or where its worker has written it, in a slot
/// that is the worker's again when this is gone.
struct PushedSum {
  AlignedBuffer<float> own;
  TakenSlot slot;

  [[nodiscard]] std::span<const float> span() const {
    const ByteSpan shared = slot.payload();
    return own.size() > 0 ? own.span()
                          : std::span(reinterpret_cast<const float*>(shared.data()),
                                      shared.size() / sizeof(float));
  }
};

/// A pushed slice that waits for its round, or is about to be applied, or is applied and not yet
/// known to be with the follower.
struct Kept {
  PushedSum sum;
  Header header;
  std::uint64_t entry = 0;  // of the log
  bool is_applied = false;
};

/// One connection of a worker, or of the leader that we follow.
struct Session {
  explicit Session(MessageStream s) : stream(std::move(s)) {}
  MessageStream stream;
  std::optional<Header> hello;  // until it is admitted
  std::optional<MemberId> worker;
  bool is_leader = false;
  std::shared_ptr<SharedSlots> slots;  // with this worker, and with what it pushed; null: none
  PushedSum space;                     // where the present push goes
  std::vector<std::uint64_t> words;    // where a roster or stragglers go
  std::uint64_t question = 0;
  bool over = false;
};

/// A message that the leader has received.
struct ReplicaEntry {
  Header header;                     ///< as it came, with its number in `entry`
  std::vector<std::uint64_t> words;  ///< kRoster, kStragglers
};

/// The connection of a shard's leader to its follower: sends what the leader is told, entry by
/// entry (core/replicas.hpp), and hears how much the follower has. When a connection breaks,
/// what is not known to have been taken is sent once more over the next one.
class ReplicaLink {
 public:
  /// `shard`: its number. `gradient_of`: the pushed floats that belong to an entry; empty if it
  /// changes nothing. They must stay where they are until the entry is taken.
  using GradientOf = std::function<ByteSpan(const Header&)>;
  /// The follower has all entries up to this one; an error ends the connection.
  using OnTaken = std::function<Result<void>(std::uint64_t)>;
  /// Packets to the follower are lost, or it cannot be reached; told once in each view.
  using OnUnreachable = std::function<void()>;
  ReplicaLink(std::uint32_t shard, bool payload_hashes, GradientOf gradient_of, OnTaken on_taken,
              OnUnreachable on_unreachable);

  /// The view that lets us in, and where the follower is. kInvalidInput if that is no address.
  /// Before the first one nothing is connected.
  [[nodiscard]] Result<void> set_view(ViewId view, std::uint64_t key, const std::string& address);
  void send(ReplicaEntry entry);

  /// For poll(): a descriptor (or -1) and events; how long to wait for at most.
  [[nodiscard]] int fd() const { return connection_.fd(); }
  [[nodiscard]] short events() const { return connection_.events(); }
  [[nodiscard]] std::optional<Instant> deadline() const;
  /// After poll(): connects, sends, receives.
  void serve(short events);
  /// So many bytes were sent so far.
  [[nodiscard]] std::uint64_t bytes_out() const { return bytes_out_; }

 private:
  void put(const ReplicaEntry& entry);
  Result<void> handle(const Header& header);
  /// For the view's follower, or for what it has not taken.
  [[nodiscard]] bool waits() const {
    return has_view_ && (!connection_.is_ready() || !entries_.empty());
  }

  const std::uint32_t shard_;
  const bool payload_hashes_;
  const GradientOf gradient_of_;
  const OnTaken on_taken_;
  const OnUnreachable on_unreachable_;
  ShardConnection connection_;
  bool has_view_ = false;
  ViewId view_{};
  std::uint64_t key_ = 0;
  std::deque<ReplicaEntry> entries_;  // not known to have been taken
  std::uint64_t bytes_out_ = 0;
};

class ShardLoop final : public Shard {
 public:
  ShardLoop(const ShardOptions& options, const SyncPlan& plan, ShardState& state,
            ShardListener& listener)
      : options_(options),
        state_(state),
        listener_(listener),
        core_(plan,
              {options.number == 0, {options.shards == 1, options.stragglers}, options.divergence}),
        role_(options.role),
        log_(options.role == ShardRole::kLeads && options.has_follower),
        speeds_(options.straggling),
        payload_bytes_(state.values().size_bytes()) {
    facts_.leads = role_ == ShardRole::kLeads;
    if (log_.has_follower()) {
      link_.emplace(
          options.number, options.payload_hashes,
          [this](const Header& header) { return gradient_of(header); },
          [this](std::uint64_t through) { return log_.taken(through); },
          [this] { listener_.on_unreachable(follower_id_); });
    }
  }
  ~ShardLoop() override { ShardLoop::stop(); }

  Result<void> listen();
  void begin() {
    thread_ = std::thread([this] { run(); });
  }

  const std::string& address() const override { return address_; }
  void set_view(ShardView view) override {
    {
      const std::lock_guard lock(mutex_);
      orders_.emplace_back(std::move(view));
    }
    wake_.notify();
  }
  void hold() override {
    {
      const std::lock_guard lock(mutex_);
      orders_.emplace_back(std::nullopt);
    }
    wake_.notify();
  }
  ShardFacts facts() const override {
    const std::lock_guard lock(mutex_);
    return facts_;
  }
  bool has_connections() const override { return connections_ > 0; }
  void stop() override {
    stopping_ = true;
    wake_.notify();
    if (thread_.joinable()) {
      thread_.join();
    }
  }

 private:
  using Sessions = std::vector<std::unique_ptr<Session>>;

  void run();
  void close_all();
  void wait_for_events(std::vector<pollfd>& polled);
  void accept_all(int listener);
  void make_room();
  void take_orders();
  void meet(const ShardView& view);
  void begin_hold();
  void admit();
  void admit(Session& session);
  void share(Session& session);
  [[nodiscard]] bool is_admissible(const Header& hello) const;
  void serve(Session& session, short events);
  void close(Session& session, const std::string& why);
  void tidy();

  // shard_messages.cpp: messages of workers
  Result<PayloadTarget> expect(Session& session, const Header& header);
  Result<void> handle(Session& session, const Header& header);
  Result<void> handle_worker(Session& session, const Header& header);
  Result<void> take_from_slot(Session& session, const Header& header);
  Result<void> take(const ShardEvent& event, Header header, PushedSum* gradient);
  void apply(const Update& update);
  void restore(const Rewind& rewind);
  void answer(const std::vector<MemberId>& workers);
  void send_state(Session& session, std::uint64_t question);
  void deliver(const Grants& grants);
  void note_lease(const Grant& grant);
  void follow_stragglers();
  void set_stragglers(const std::map<MemberId, double>& stragglers);
  void check_quiet();
  void publish_facts();
  Session* session_of(MemberId worker);
  PushedSum take_buffer();

  // shard_replica.cpp: messages between leader and follower
  void follow_up(const ShardView& view);
  void begin_to_lead();
  void admit_leader(Session& session);
  [[nodiscard]] ByteSpan gradient_of(const Header& header) const;
  Result<PayloadTarget> expect_entry(Session& session, const Header& header);
  Result<void> take_entry(Session& session, const Header& header);
  Result<void> diverged(const std::string& why);
  void acknowledge();
  void release();
  [[nodiscard]] std::uint64_t gate() const { return log_.has_follower() ? log_.last() : 0; }

  const ShardOptions options_;
  ShardState& state_;
  ShardListener& listener_;
  UniqueFd tcp_;
  UniqueFd unix_;
  const WakeUp wake_;
  std::string address_;
  std::atomic<bool> stopping_ = false;
  std::atomic<std::size_t> connections_ = 0;

  mutable std::mutex mutex_;
  std::vector<std::optional<ShardView>> orders_;  // guarded by mutex_; nothing = hold
  ShardFacts facts_;                              // guarded by mutex_

  // The thread's own:
  ShardCore core_;
  ShardRole role_;
  LeaderLog log_;         // without a follower it keeps nothing back
  FollowerLog followed_;  // while we follow
  std::uint64_t acknowledged_ = 0;
  MemberId follower_id_{};           // of a leader
  std::optional<ReplicaLink> link_;  // of a leader with a follower
  using Facts = std::variant<UpdateFacts, RewindFacts>;
  HeldBack<Facts> unsaid_;
  StragglerWatch speeds_;  // of a leader that is the first shard
  std::uint64_t payload_bytes_;
  Sessions sessions_;
  bool has_no_descriptors_ = false;  // for connections that wait
  ViewId view_{};                    // the newest
  std::set<MemberId> workers_;
  std::map<ViewId, std::uint64_t> keys_;
  std::map<std::uint64_t, Kept> kept_;       // by slice
  std::vector<AlignedBuffer<float>> spare_;  // for pushes
  Bytes spare_copy_;                         // for answers under way when parameters change
  ShardFacts own_facts_;
  bool told_quiet_ = true;
  bool told_over_ = false;
  std::thread thread_;
};

}  // namespace mayfly::parameter_server
