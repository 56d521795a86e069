#include "collectives/parameter_server/shard_clients.hpp"

#include <fmt/format.h>
#include <poll.h>
#include <unistd.h>

#include <algorithm>
#include <utility>

#include "base/check.hpp"
#include "base/log.hpp"
#include "base/net/sockets.hpp"
#include "collectives/parameter_server/shard_clients_loop.hpp"
#include "collectives/tcp/tcp_address.hpp"

namespace mayfly::parameter_server {
namespace {}  // namespace

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

void Clients::tell_all(MessageType type) {
  for (std::uint32_t i = 0; i < connections_.size(); ++i) {
    send(i, header_of(type, i));
  }
}

/// Without a connection nothing is sent: the flow says it again when there is one.
void Clients::send(std::uint32_t shard, const Header& header, std::span<const float> payload) {
  Connection& connection = connections_[shard];
  if (connection.phase == LinkPhase::kReady) {
    const Duration delay = options_.delay ? options_.delay() : Duration(0);
    const Instant before = connection.late.empty() ? Instant{} : connection.late.back().due;
    connection.late.push_back({std::max(before, monotonic_now() + delay), header, payload});
    send_what_is_due(connection);
  } else if (!connection.was_ready && payload.empty()) {
    connection.waiting.push_back(header);
  }
}

void Clients::send_what_is_due(Connection& connection) {
  if (connection.late.empty()) {
    return;
  }
  for (const Instant now = monotonic_now();
       !connection.late.empty() && connection.late.front().due <= now;) {
    Late& message = connection.late.front();
    const ByteSpan payload = std::as_bytes(message.payload);
    if (connection.slots != nullptr && !payload.empty()) {
      message.header.slot = connection.slots->write_gradient(payload);
    }
    connection.stream->send(message.header, payload, {}, options_.payload_hashes);
    connection.late.pop_front();
  }
  (void)connection.stream->flush();  // a broken connection shows when it is read
}

Result<void> Clients::move_to(std::uint32_t shard, const std::string& address) {
  Result<collectives::TcpAddress> parsed = collectives::parse_tcp_address(address);
  if (!parsed.ok()) {
    return std::move(parsed).error();
  }
  if (options_.addresses[shard] != address) {
    options_.addresses[shard] = address;
    connections_[shard].address = std::move(parsed).value();
    lose(shard, "it is led by its follower now");
    connections_[shard].next_try = monotonic_now();
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
  for (std::uint32_t shard = 0; shard < connections_.size(); ++shard) {
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
    header.first_sample = facts.first_sample;
    header.samples = facts.samples;
    header.correct = facts.correct;
    header.loss = facts.loss;
    header.sample_hash = facts.sample_hash;
    send(shard, header, gradients[shard]);
  }
}

std::optional<std::vector<StateVersion>> Clients::states_arrived() {
  std::vector<StateVersion> versions;
  for (const Connection& connection : connections_) {
    if (!connection.state_version) {
      return std::nullopt;
    }
    versions.push_back(*connection.state_version);
  }
  wants_states_ = false;
  return versions;
}

void Clients::connect(std::uint32_t shard) {
  Connection& connection = connections_[shard];
  const collectives::TcpAddress& to = connection.address;
  connection.next_try = monotonic_now() + kRetryInterval;
  connection.is_local = !to.unix_name.empty() && to.host_id == own_host_ && !own_host_.empty();
  Result<UniqueFd> fd = connection.is_local ? start_connect_unix(to.unix_name)
                                            : start_connect_tcp({to.host, to.port});
  if (fd.ok() && fd.value().valid()) {
    ask_while_idle(fd.value().get());
    connection.stream = std::make_unique<MessageStream>(
        std::move(fd).value(), 2 * sizeof(float) * options_.elements[shard]);
    connection.phase = LinkPhase::kConnecting;
  }
}

void Clients::greet(std::uint32_t shard) {
  Connection& connection = connections_[shard];
  if (connection_error(connection.stream->fd()) != 0) {
    lose(shard, "cannot connect");
    return;
  }
  Header hello = header_of(MessageType::kHello, shard);
  hello.key = key_;
  hello.serial = flow_.received();
  if (options_.share_memory && connection.is_local && options_.elements[shard] > 0) {
    auto made = SharedSlots::create(sizeof(float) * options_.elements[shard]);
    if (made.ok()) {
      connection.slots = std::move(made).value();
      connection.stream->hand_over(connection.slots->fd());
    }
  }
  connection.stream->send(hello);
  connection.phase = LinkPhase::kGreeting;
}

void Clients::lose(std::uint32_t shard, const std::string& why) {
  Connection& connection = connections_[shard];
  if (connection.phase == LinkPhase::kReady) {
    log::info(fmt::format("shard {}: {}", shard, why));
  }
  connection.stream.reset();
  connection.slots.reset();
  connection.late.clear();
  connection.phase = LinkPhase::kNone;
  connection.next_try = monotonic_now() + kRetryInterval;
}

void Clients::wait(Instant deadline) {
  std::vector<pollfd> polled = {{options_.wake != nullptr ? options_.wake->fd() : -1, POLLIN, 0}};
  for (std::uint32_t i = 0; i < connections_.size(); ++i) {
    Connection& connection = connections_[i];
    if (!flow_.may_greet(i)) {
      connection.watch.ready(monotonic_now());
    } else if (connection.phase == LinkPhase::kNone) {
      if (monotonic_now() >= connection.next_try) {
        connect(i);
      }
      if (connection.phase == LinkPhase::kNone) {
        deadline = std::min(deadline, connection.next_try);
      }
    }
    if (!connection.late.empty()) {
      deadline = std::min(deadline, connection.late.front().due);
    }
    const bool sends = connection.phase == LinkPhase::kConnecting ||
                       (connection.stream != nullptr && connection.stream->wants_to_send());
    const int fd = connection.stream != nullptr ? connection.stream->fd() : -1;
    const int reads = connection.phase == LinkPhase::kConnecting ? 0 : POLLIN;
    polled.push_back({fd, static_cast<short>(reads | (sends ? POLLOUT : 0)), 0});
  }
  (void)::poll(polled.data(), polled.size(), poll_timeout_ms(deadline));
  if (options_.wake != nullptr) {
    options_.wake->clear();
  }
  for (std::uint32_t i = 0; i < connections_.size(); ++i) {
    if (connections_[i].stream != nullptr && polled[i + 1].revents != 0) {
      serve(i, polled[i + 1].revents);
    }
    send_what_is_due(connections_[i]);
    look_after(i);
  }
}

void Clients::look_after(std::uint32_t shard) {
  Connection& connection = connections_[shard];
  const int fd = connection.stream != nullptr ? connection.stream->fd() : -1;
  const LinkFault fault = connection.watch.look(monotonic_now(), fd, connection.phase);
  if (fault != LinkFault::kNone && options_.on_unreachable) {
    options_.on_unreachable(shard, fault);
  }
}

void Clients::serve(std::uint32_t shard, short events) {
  Connection& connection = connections_[shard];
  if (connection.phase == LinkPhase::kConnecting) {
    greet(shard);
  }
  if (connection.stream != nullptr && (events & (POLLIN | POLLHUP | POLLERR)) != 0) {
    const Result<void> received =
        connection.stream->receive([&](const Header& header) { return expect(shard, header); },
                                   [&](const Header& header) { return handle(shard, header); });
    if (!received.ok()) {
      lose(shard, received.error().detail);
    }
  }
  if (connection.stream != nullptr && connection.stream->wants_to_send()) {
    if (const Result<void> sent = connection.stream->flush(); !sent.ok()) {
      lose(shard, sent.error().detail);
    }
  }
}

Result<std::unique_ptr<ShardClients>> ShardClients::make(const ShardClientsOptions& options,
                                                         WorkerFlow& flow, Target target) {
  auto clients = std::make_unique<Clients>(options, flow, std::move(target));
  TRY(clients->parse());
  return Result<std::unique_ptr<ShardClients>>(std::move(clients));
}

}  // namespace mayfly::parameter_server
