// The leader's connection to its follower; the test acts as the follower.

#include "collectives/parameter_server/replica_link.hpp"

#include <gtest/gtest.h>
#include <poll.h>

#include <functional>
#include <memory>
#include <span>
#include <vector>

#include "base/net/sockets.hpp"
#include "collectives/parameter_server/message_stream.hpp"
#include "collectives/tcp/tcp_address.hpp"

namespace mayfly::parameter_server {
namespace {

class ReplicaLinkTest : public testing::Test {
 protected:
  ReplicaLinkTest() : listener(listen_tcp({"127.0.0.1", 0}).value()) {
    collectives::TcpAddress address;
    address.host = "127.0.0.1";
    address.port = bound_endpoint(listener.get()).port;
    EXPECT_TRUE(link.set_view(ViewId{3}, 77, collectives::to_string(address)).ok());
  }

  void send(std::uint64_t number, float gradient) {
    gradients.push_back(std::make_unique<float>(gradient));
    ReplicaEntry entry;
    entry.header.type = MessageType::kPush;
    entry.header.entry = number;
    entry.gradient = std::as_bytes(std::span(gradients.back().get(), 1));
    link.send(std::move(entry));
  }
  void answer(MessageType type, std::uint64_t entry) {
    Header header;
    header.type = type;
    header.entry = entry;
    follower->send(header);
    (void)follower->flush();
  }
  /// Transfers bytes until the follower has received so many messages over this connection.
  void exchange(std::size_t messages) {
    turn_until([&] { return received.size() >= messages; });
    ASSERT_EQ(received.size(), messages);
  }
  void turn_until(const std::function<bool()>& is_done) {
    const Instant deadline = monotonic_now() + seconds(60);
    while (!is_done() && monotonic_now() < deadline) {
      pollfd polled{link.fd(), link.events(), 0};
      (void)::poll(&polled, 1, 1);
      link.serve(polled.revents);
      if (follower == nullptr) {
        if (UniqueFd fd = accept_one(listener.get()); fd.valid()) {
          follower = std::make_unique<MessageStream>(std::move(fd), 64);
        }
        continue;
      }
      EXPECT_TRUE(follower
                      ->receive(
                          [this](const Header& header) -> Result<PayloadTarget> {
                            return header.payload_bytes == 0 ? PayloadTarget{}
                                                             : PayloadTarget{std::as_writable_bytes(
                                                                   std::span(&space, 1))};
                          },
                          [this](const Header& header) {
                            received.push_back(header);
                            values.push_back(space);
                            return Result<void>();
                          })
                      .ok());
    }
    EXPECT_TRUE(is_done());
  }
  void break_connection() {
    follower.reset();
    received.clear();
    values.clear();
  }

  UniqueFd listener;
  std::vector<std::uint64_t> taken;
  ReplicaLink link{1,
                   true,
                   {.on_taken =
                        [this](std::uint64_t entry) {
                          taken.push_back(entry);
                          return Result<void>();
                        },
                    .on_unreachable = [] {}}};
  std::vector<std::unique_ptr<float>> gradients;
  std::unique_ptr<MessageStream> follower;
  float space = 0;
  std::vector<Header> received;
  std::vector<float> values;
};

TEST_F(ReplicaLinkTest, SendsNothingBeforeTheFollowerHasLetItIn) {
  send(1, 10);
  exchange(1);
  EXPECT_EQ(received[0].type, MessageType::kFollow);
  EXPECT_EQ(received[0].view, 3U);
  EXPECT_EQ(received[0].key, 77U);
  EXPECT_EQ(received[0].shard, 1U);
  answer(MessageType::kFollowing, 0);
  exchange(2);
  EXPECT_EQ(received[1].entry, 1U);
  EXPECT_EQ(values[1], 10);
}

TEST_F(ReplicaLinkTest, SendsAgainOverANewConnectionWhatWasNotAcknowledged) {
  for (std::uint64_t entry = 1; entry <= 3; ++entry) {
    send(entry, static_cast<float>(entry));
  }
  exchange(1);
  answer(MessageType::kFollowing, 0);
  exchange(4);
  answer(MessageType::kTaken, 1);
  turn_until([&] { return taken.size() == 2; });
  break_connection();
  exchange(1);
  answer(MessageType::kFollowing, 2);
  exchange(2);
  EXPECT_EQ(received[1].entry, 3U) << "the follower has the second one, too, it says now";
  EXPECT_EQ(values[1], 3);
  EXPECT_EQ(taken, (std::vector<std::uint64_t>{0, 1, 2}));
  answer(MessageType::kTaken, 3);
  turn_until([&] { return taken.size() == 4; });
  send(4, 4);
  exchange(3);
  EXPECT_EQ(received[2].entry, 4U);
}

}  // namespace
}  // namespace mayfly::parameter_server
