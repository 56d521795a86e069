#pragma once

// What is behind ShardClients; for shard_clients.cpp (connections, what we say) and
// shard_clients_messages.cpp (what shards say) only. One thread.

#include <utility>

#include "collectives/parameter_server/shard_connection.hpp"
#include "collectives/tcp/tcp_address.hpp"

namespace mayfly::parameter_server {

class Clients final : public ShardClients {
 public:
  Clients(const ShardClientsOptions& options, WorkerFlow& flow, Target target)
      : options_(options),
        flow_(flow),
        target_(std::move(target)),
        connections_(options.addresses.size()),
        own_host_(collectives::this_host_id()) {}

  Result<void> parse() {
    for (std::size_t i = 0; i < connections_.size(); ++i) {
      Result<collectives::TcpAddress> address =
          collectives::parse_tcp_address(options_.addresses[i]);
      if (!address.ok()) {
        return std::move(address).error();
      }
      connections_[i].address = std::move(address).value();
    }
    return {};
  }

  void set_view(ViewId view, std::uint64_t key) override {
    view_ = view;
    key_ = key;
    for (Connection& connection : connections_) {
      connection.watch.view_came(monotonic_now());
    }
  }
  Result<void> move_to(std::uint32_t shard, const std::string& address) override;
  void pull(const flow::Pull& action) override;
  void push(const flow::Compute& action, const PushFacts& facts,
            const std::vector<std::span<const float>>& gradients) override;
  void rest() override { tell_all(MessageType::kRest); }
  void bye() override {
    said_bye_ = true;
    tell_all(MessageType::kBye);
  }
  void pull_states() override {
    for (Connection& connection : connections_) {
      connection.state_version.reset();
    }
    wants_states_ = true;
    tell_all(MessageType::kStatePull);
  }
  std::optional<std::vector<StateVersion>> states_arrived() override;
  bool all_sent() const override {
    return std::none_of(connections_.begin(), connections_.end(), [](const Connection& c) {
      return !c.late.empty() || (c.stream != nullptr && c.stream->wants_to_send());
    });
  }
  void wait(Instant deadline) override;
  std::uint64_t known_version(std::uint32_t shard) const override {
    return connections_[shard].known_version;
  }

 private:
  [[nodiscard]] Header header_of(MessageType type, std::uint32_t shard) const;
  void tell_all(MessageType type);
  void send(std::uint32_t shard, const Header& header, std::span<const float> payload = {});
  void send_what_is_due(Connection& connection);
  void connect(std::uint32_t shard);
  void greet(std::uint32_t shard);
  void lose(std::uint32_t shard, const std::string& why);
  void serve(std::uint32_t shard, short events);
  void look_after(std::uint32_t shard);
  Result<PayloadTarget> expect(std::uint32_t shard, const Header& header);
  Result<void> handle(std::uint32_t shard, const Header& header);
  void handle_welcome(std::uint32_t shard, const Header& header);
  Result<void> handle_answer(std::uint32_t shard, const Header& header);

  ShardClientsOptions options_;
  WorkerFlow& flow_;
  Target target_;
  std::vector<Connection> connections_;
  std::string own_host_;
  ViewId view_{};
  std::uint64_t key_ = 0;
  bool wants_states_ = false;
  bool said_bye_ = false;
};

}  // namespace mayfly::parameter_server
