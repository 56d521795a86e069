#pragma once

// The event loop behind Shard; for shard.cpp (connections) and shard_messages.cpp (what workers
// say) only.

#include <poll.h>

#include <atomic>
#include <optional>
#include <thread>
#include <utility>

#include "base/aligned_buffer.hpp"
#include "collectives/parameter_server/message_stream.hpp"
#include "collectives/parameter_server/shard.hpp"

namespace mayfly::parameter_server {

/// A pushed slice that waits for its round, or is about to be applied.
struct Kept {
  AlignedBuffer<float> sum;
  Header header;
};

/// One connection of a worker.
struct Session {
  explicit Session(MessageStream s) : stream(std::move(s)) {}
  MessageStream stream;
  std::optional<Header> hello;  // until it is admitted
  std::optional<MemberId> worker;
  AlignedBuffer<float> space;  // where the present push goes
  std::uint64_t question = 0;
  bool over = false;
};

struct Roster {
  ViewId view{};
  std::uint64_t key = 0;
  std::set<MemberId> workers;
};

class ShardLoop final : public Shard {
 public:
  ShardLoop(const ShardOptions& options, const SyncPlan& plan, ShardState& state,
            ShardListener& listener)
      : options_(options),
        state_(state),
        listener_(listener),
        order_(plan),
        speeds_(options.straggling),
        payload_bytes_(state.values().size_bytes()) {
    if (options.number == 0) {
      desk_.emplace(plan,
                    LeaseDesk::Options{options.shards == 1, options.snapshots, options.stragglers});
    }
  }
  ~ShardLoop() override {
    stopping_ = true;
    wake();
    if (thread_.joinable()) {
      thread_.join();
    }
  }

  Result<void> listen();
  void begin() {
    thread_ = std::thread([this] { run(); });
  }

  const std::string& address() const override { return address_; }
  void set_workers(ViewId view, std::uint64_t key, std::set<MemberId> workers) override {
    {
      const std::lock_guard lock(mutex_);
      orders_.emplace_back(Roster{view, key, std::move(workers)});
    }
    wake();
  }
  void hold() override {
    {
      const std::lock_guard lock(mutex_);
      orders_.emplace_back(std::nullopt);
    }
    wake();
  }
  ShardFacts facts() const override {
    const std::lock_guard lock(mutex_);
    return facts_;
  }
  bool has_connections() const override { return connections_ > 0; }

 private:
  using Sessions = std::vector<std::unique_ptr<Session>>;

  void wake();
  void run();
  void wait_for_events(std::vector<pollfd>& polled);
  void accept_all(int listener);
  void take_orders();
  void meet(const Roster& roster);
  void admit();
  [[nodiscard]] bool is_admissible(const Header& hello) const;
  void serve(Session& session, short events);
  void close(Session& session, const std::string& why);
  void tidy();

  Result<PayloadTarget> expect(Session& session, const Header& header);
  Result<void> handle(Session& session, const Header& header);
  Result<void> handle_push(Session& session, const Header& header);
  void apply(const Update& update);
  void tell_desk(const Header& header, const PushOutcome& outcome);
  void answer(const std::vector<MemberId>& workers);
  void send_state(Session& session);
  void deliver(const Grants& grants);
  void note_lease(const Grant& grant);
  void follow_stragglers();
  void check_quiet();
  void publish_facts();
  Session* session_of(MemberId worker);
  AlignedBuffer<float> take_buffer();

  const ShardOptions options_;
  ShardState& state_;
  ShardListener& listener_;
  UniqueFd tcp_;
  UniqueFd unix_;
  UniqueFd wake_;
  std::string address_;
  std::atomic<bool> stopping_ = false;
  std::atomic<std::size_t> connections_ = 0;

  mutable std::mutex mutex_;
  std::vector<std::optional<Roster>> orders_;  // guarded by mutex_; nothing = hold
  ShardFacts facts_;                           // guarded by mutex_

  // The thread's own:
  UpdateOrder order_;
  std::optional<LeaseDesk> desk_;  // of the first shard
  StragglerWatch speeds_;          // the same
  std::uint64_t payload_bytes_;
  Sessions sessions_;
  Roster roster_;
  std::map<ViewId, std::uint64_t> keys_;
  std::map<std::uint64_t, Kept> kept_;  // by slice
  std::vector<AlignedBuffer<float>> spare_;
  ShardFacts own_facts_;
  bool told_quiet_ = true;
  std::thread thread_;
};

}  // namespace mayfly::parameter_server
