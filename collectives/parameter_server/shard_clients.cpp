#include "collectives/parameter_server/shard_clients.hpp"

#include <fmt/format.h>
#include <poll.h>

#include <algorithm>
#include <deque>
#include <utility>

#include "base/log.hpp"
#include "base/net/sockets.hpp"
#include "base/try_assign.hpp"
#include "collectives/parameter_server/shared_slots.hpp"

namespace mayfly::parameter_server {
namespace {

// A message that is sent later.
struct Late {
  Instant due;
  Header header;
  std::span<const float> payload;
};

// The leader of one shard.
struct Server {
  Server(std::uint64_t payload_max, ShardConnection::Handlers handlers)
      : connection(payload_max, std::move(handlers)) {}

  ShardConnection connection;
  std::shared_ptr<SharedSlots> slots;  // also owned by payloads that are being read; null: none
  std::vector<Header> waiting;         // to be sent after its first welcome
  std::deque<Late> late;               // to be sent at their instants, in order
  bool was_ready = false;
  std::uint64_t known_version = 0;
  std::optional<StateVersion> state_version;  // version in the answer to the present question
  std::uint64_t state_got = 0;                // bytes of the state that have arrived
};

class Clients final : public ShardClients {
 public:
  Clients(const ShardClientsOptions& options, WorkerFlow& flow, Target target)
      : options_(options), flow_(flow), target_(std::move(target)) {
    for (std::uint32_t shard = 0; shard < options_.addresses.size(); ++shard) {
      servers_.push_back(std::make_unique<Server>(
          2 * sizeof(float) * options_.elements[shard],
          ShardConnection::Handlers{
              .greet = [this, shard](MessageStream& stream) { greet(shard, stream); },
              .on_header = [this, shard](const Header& header) { return expect(shard, header); },
              .on_message = [this, shard](const Header& header) { return handle(shard, header); },
              .on_lost = [this, shard](const std::string& why,
                                       bool was_ready) { lost(shard, why, was_ready); }}));
    }
  }

  Result<void> parse() {
    for (std::size_t i = 0; i < servers_.size(); ++i) {
      TRY(servers_[i]->connection.set_address(options_.addresses[i]));
    }
    return {};
  }

  void set_view(ViewId view, std::uint64_t key) override {
    view_ = view;
    key_ = key;
    for (const auto& server : servers_) {
      server->connection.on_view();
    }
  }
  Result<void> move_to(std::uint32_t shard, const std::string& address) override;
  void pull(const flow::Pull& action) override;
  void push(const flow::Compute& action, const PushFacts& facts,
            const std::vector<std::span<const float>>& gradients) override;
  void rest() override { send_to_all(MessageType::kRest); }
  void bye() override {
    bye_sent_ = true;
    send_to_all(MessageType::kBye);
  }
  void pull_states() override {
    ++state_question_;
    wants_states_ = true;
    for (std::uint32_t i = 0; i < servers_.size(); ++i) {
      Server& server = *servers_[i];
      server.state_version.reset();
      if (server.connection.is_open()) {
        server.connection.stream().discard(MessageType::kState);
      }
      pull_state(i);
    }
  }
  std::optional<std::vector<StateVersion>> states_arrived() override;
  Instant state_received_at() const override { return state_received_at_; }
  bool all_sent() const override {
    return std::none_of(servers_.begin(), servers_.end(), [](const auto& server) {
      ShardConnection& connection = server->connection;
      return !server->late.empty() || (connection.is_open() && connection.stream().wants_to_send());
    });
  }
  void wait(Instant deadline) override;
  std::uint64_t known_version(std::uint32_t shard) const override {
    return servers_[shard]->known_version;
  }

 private:
  [[nodiscard]] Header header_of(MessageType type, std::uint32_t shard) const;
  void send_to_all(MessageType type);
  void pull_state(std::uint32_t shard);
  /// True for the answer to the present question. Other answers are late, of a fetch that was given
  /// up.
  [[nodiscard]] bool awaits_state(std::uint32_t shard, const Header& header) const {
    return wants_states_ && !servers_[shard]->state_version && header.question == state_question_;
  }
  void note_state(Server& server);
  void send(std::uint32_t shard, const Header& header, std::span<const float> payload = {});
  void send_what_is_due(Server& server);
  void greet(std::uint32_t shard, MessageStream& stream);
  void lost(std::uint32_t shard, const std::string& why, bool was_ready);
  Result<PayloadTarget> expect(std::uint32_t shard, const Header& header);
  Result<void> handle(std::uint32_t shard, const Header& header);
  void handle_welcome(std::uint32_t shard, const Header& header);
  void handle_state(std::uint32_t shard, const Header& header);
  Result<void> handle_answer(std::uint32_t shard, const Header& header);

  ShardClientsOptions options_;
  WorkerFlow& flow_;
  Target target_;
  std::vector<std::unique_ptr<Server>> servers_;  // by shard; their connections must not move
  ViewId view_{};
  std::uint64_t key_ = 0;
  bool wants_states_ = false;
  std::uint64_t state_question_ = 0;  // number of fetches of all states so far
  Instant state_received_at_;
  bool bye_sent_ = false;
};

Header Clients::header_of(MessageType type, std::uint32_t shard) const {
  Header header;
  header.type = type;
  header.worker = value(options_.self);
  header.shard = shard;
  header.view = value(view_);
  header.serial = flow_.done_through();
  if (const std::optional<Rewind>& rewind = flow_.rewind()) {
    header.rewound_at = rewind->at;
    header.rewound_to = rewind->to;
  }
  return header;
}

void Clients::send_to_all(MessageType type) {
  for (std::uint32_t i = 0; i < servers_.size(); ++i) {
    send(i, header_of(type, i));
  }
}

void Clients::pull_state(std::uint32_t shard) {
  Header header = header_of(MessageType::kStatePull, shard);
  header.question = state_question_;
  send(shard, header);
}

/// Without a connection nothing is sent: the flow repeats its messages when there is one.
void Clients::send(std::uint32_t shard, const Header& header, std::span<const float> payload) {
  Server& server = *servers_[shard];
  if (server.connection.is_ready()) {
    const Duration delay = options_.delay ? options_.delay() : Duration(0);
    const Instant before = server.late.empty() ? Instant{} : server.late.back().due;
    server.late.push_back({std::max(before, monotonic_now() + delay), header, payload});
    send_what_is_due(server);
  } else if (!server.was_ready && payload.empty()) {
    server.waiting.push_back(header);
  }
}

void Clients::send_what_is_due(Server& server) {
  if (server.late.empty()) {
    return;
  }
  MessageStream& stream = server.connection.stream();
  for (const Instant now = monotonic_now();
       !server.late.empty() && server.late.front().due <= now;) {
    Late& message = server.late.front();
    const ByteSpan payload = std::as_bytes(message.payload);
    if (server.slots != nullptr && !payload.empty()) {
      message.header.slot = server.slots->write_gradient(payload);
    }
    stream.send(message.header, payload, {}, options_.payload_hashes);
    server.late.pop_front();
  }
  (void)stream.flush();  // a broken connection is detected when it is read
}

Result<void> Clients::move_to(std::uint32_t shard, const std::string& address) {
  if (options_.addresses[shard] != address) {
    ShardConnection& connection = servers_[shard]->connection;
    connection.close("it is led by its follower now");
    TRY(connection.set_address(address));
    options_.addresses[shard] = address;
  }
  return {};
}

void Clients::pull(const flow::Pull& action) {
  for (const std::uint32_t shard : action.shards) {
    Header header = header_of(MessageType::kPull, shard);
    header.wanted = action.version;
    header.clock = action.clock;
    header.question = action.question;
    send(shard, header);
  }
}

void Clients::push(const flow::Compute& action, const PushFacts& facts,
                   const std::vector<std::span<const float>>& gradients) {
  for (std::uint32_t shard = 0; shard < servers_.size(); ++shard) {
    Header header = header_of(MessageType::kPush, shard);
    header.slice = action.slice;
    header.version = flow_.version(shard);
    header.clock = action.clock;
    if (std::find(action.pulls.begin(), action.pulls.end(), shard) != action.pulls.end()) {
      header.flags |= flags::kAsks;
      header.wanted = action.version;
      header.question = action.question;
    }
    header.flags |= action.wants_lease ? flags::kWantsLease : 0;
    header.flags |= action.at_once ? flags::kAtOnce : 0;
    header.count = facts.microbatches;
    header.samples = facts.samples;
    header.correct = facts.correct;
    header.loss = facts.loss;
    header.sample_hash = facts.sample_hash;
    send(shard, header, gradients[shard]);
  }
}

std::optional<std::vector<StateVersion>> Clients::states_arrived() {
  std::vector<StateVersion> versions;
  for (const auto& server : servers_) {
    if (!server->state_version) {
      return std::nullopt;
    }
    versions.push_back(*server->state_version);
  }
  wants_states_ = false;
  return versions;
}

void Clients::greet(std::uint32_t shard, MessageStream& stream) {
  Server& server = *servers_[shard];
  Header hello = header_of(MessageType::kHello, shard);
  hello.key = key_;
  hello.serial = flow_.received();
  if (options_.share_memory && server.connection.is_local() && options_.elements[shard] > 0) {
    auto made = SharedSlots::create(sizeof(float) * options_.elements[shard]);
    if (made.ok()) {
      server.slots = std::move(made).value();
      stream.hand_over(server.slots->fd());
    }
  }
  stream.send(hello);
}

void Clients::lost(std::uint32_t shard, const std::string& why, bool was_ready) {
  if (was_ready) {
    log::info(fmt::format("shard {}: {}", shard, why));
  }
  servers_[shard]->slots.reset();
  servers_[shard]->late.clear();
}

void Clients::wait(Instant deadline) {
  std::vector<pollfd> polled = {{options_.wake != nullptr ? options_.wake->fd() : -1, POLLIN, 0}};
  for (std::uint32_t i = 0; i < servers_.size(); ++i) {
    const Server& server = *servers_[i];
    ShardConnection& connection = servers_[i]->connection;
    if (!flow_.may_greet(i)) {
      connection.not_needed();
    } else {
      connection.connect();
      deadline = std::min(deadline, connection.next_try().value_or(deadline));
    }
    if (!server.late.empty()) {
      deadline = std::min(deadline, server.late.front().due);
    }
    polled.push_back({connection.fd(), connection.events(), 0});
  }
  (void)::poll(polled.data(), polled.size(), poll_timeout_ms(deadline));
  if (options_.wake != nullptr) {
    options_.wake->clear();
  }
  for (std::uint32_t i = 0; i < servers_.size(); ++i) {
    ShardConnection& connection = servers_[i]->connection;
    connection.serve(polled[i + 1].revents);
    note_state(*servers_[i]);
    send_what_is_due(*servers_[i]);
    const ConnectionFault fault = connection.look();
    if (fault != ConnectionFault::kNone && options_.on_unreachable) {
      options_.on_unreachable(i, fault);
    }
  }
}

void Clients::note_state(Server& server) {
  ShardConnection& connection = server.connection;
  const std::uint64_t got =
      connection.is_open() ? connection.stream().payload_got(MessageType::kState) : 0;
  state_received_at_ = got > server.state_got ? monotonic_now() : state_received_at_;
  server.state_got = got;
}

Result<PayloadTarget> Clients::expect(std::uint32_t shard, const Header& header) {
  const std::uint64_t bytes = options_.elements[shard] * sizeof(float);
  const bool is_state = header.type == MessageType::kState;
  const bool is_answer = header.type == MessageType::kParameters;
  if (header.payload_bytes != (is_answer ? bytes : is_state ? 2 * bytes : 0)) {
    return Error{Errc::kCorrupt, "a message of the wrong size"};
  }
  if (header.slot != 0) {
    const bool is_there =
        is_answer && servers_[shard]->slots != nullptr && header.slot == SharedSlots::kAnswer;
    return is_there ? Result<PayloadTarget>(PayloadTarget{})
                    : Result<PayloadTarget>(Error{Errc::kCorrupt, "a slot that is not shared"});
  }
  if ((is_answer && flow_.expects(shard, header.question)) ||
      (is_state && awaits_state(shard, header))) {
    return target_(shard, is_state);
  }
  return PayloadTarget{};
}

Result<void> Clients::handle(std::uint32_t shard, const Header& header) {
  switch (header.type) {
    case MessageType::kWelcome: handle_welcome(shard, header); return {};
    case MessageType::kParameters: return handle_answer(shard, header);
    case MessageType::kState: handle_state(shard, header); return {};
    case MessageType::kLease: {
      TRY_ASSIGN(const Lease lease, lease_of(header));
      flow_.granted(lease);
      return {};
    }
    default: return Error{Errc::kCorrupt, "a message that shards do not send"};
  }
}

void Clients::handle_welcome(std::uint32_t shard, const Header& header) {
  Server& server = *servers_[shard];
  server.connection.welcomed();
  if ((header.flags & flags::kShares) == 0) {
    server.slots.reset();
  } else if (server.slots != nullptr) {
    server.slots->open_answers();
  }
  flow_.welcomed(shard);
  if (std::exchange(server.was_ready, true)) {
    flow_.reconnected(shard);
    if (wants_states_ && !server.state_version) {
      pull_state(shard);
    }
    if (bye_sent_) {
      send(shard, header_of(MessageType::kBye, shard));
    }
  }
  for (const Header& message : std::exchange(server.waiting, {})) {
    send(shard, message);
  }
}

/// If the header has arrived while another question or none was asked, the payload was discarded.
void Clients::handle_state(std::uint32_t shard, const Header& header) {
  state_received_at_ = monotonic_now();
  if (awaits_state(shard, header)) {
    servers_[shard]->state_version = StateVersion{header.version, header.slice, header.prefix};
  }
}

Result<void> Clients::handle_answer(std::uint32_t shard, const Header& header) {
  Server& server = *servers_[shard];
  const bool is_expected = flow_.expects(shard, header.question);
  if (header.slot != 0) {
    const TakenSlot answer(server.slots, header.slot);
    if (is_expected) {
      TRY(copy_payload(answer.payload(), header, target_(shard, false)));
    }
  }
  server.known_version = std::max(server.known_version, header.version);
  if (is_expected) {
    flow_.answered(shard, header.version);
  }
  return {};
}

}  // namespace

Result<std::unique_ptr<ShardClients>> ShardClients::make(const ShardClientsOptions& options,
                                                         WorkerFlow& flow, Target target) {
  auto clients = std::make_unique<Clients>(options, flow, std::move(target));
  TRY(clients->parse());
  return Result<std::unique_ptr<ShardClients>>(std::move(clients));
}

}  // namespace mayfly::parameter_server
