#include "base/net/accept.hpp"

#include <gtest/gtest.h>
#include <poll.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <unistd.h>

#include <array>
#include <vector>

#include "base/net/sockets.hpp"
#include "base/net/wake_up.hpp"
#include "base/unique_fd.hpp"

namespace mayfly {
namespace {

TEST(AcceptWaiting, TakesNoMoreThanItsBoundAtOnce) {
  const UniqueFd listener = listen_tcp({"127.0.0.1", 0}).value();
  const Endpoint endpoint = bound_endpoint(listener.get());
  std::vector<UniqueFd> clients;
  for (int i = 0; i < 5; ++i) {
    clients.push_back(connect_tcp(endpoint, monotonic_now() + seconds(60)).value());
  }
  std::vector<UniqueFd> taken;
  const auto take = [&](UniqueFd fd) { taken.push_back(std::move(fd)); };
  EXPECT_EQ(accept_waiting(listener.get(), 3, take), AcceptEnd::kMoreMayWait);
  EXPECT_EQ(taken.size(), 3u);
  EXPECT_EQ(accept_waiting(listener.get(), 3, take), AcceptEnd::kNoneWaits);
  EXPECT_EQ(taken.size(), 5u);
}

TEST(AcceptWaiting, TellsThatNoDescriptorIsLeft) {
  const UniqueFd listener = listen_tcp({"127.0.0.1", 0}).value();
  const Endpoint endpoint = bound_endpoint(listener.get());
  const UniqueFd client = connect_tcp(endpoint, monotonic_now() + seconds(60)).value();
  rlimit before{};
  ASSERT_EQ(::getrlimit(RLIMIT_NOFILE, &before), 0);
  const rlimit none{0, before.rlim_max};
  ASSERT_EQ(::setrlimit(RLIMIT_NOFILE, &none), 0);
  const auto take = [](const UniqueFd&) { FAIL() << "there is no descriptor for it"; };
  const AcceptEnd end = accept_waiting(listener.get(), 3, take);
  EXPECT_EQ(::setrlimit(RLIMIT_NOFILE, &before), 0);
  EXPECT_EQ(end, AcceptEnd::kNoDescriptors);
}

int send_buffer_of(int fd) {
  int bytes = 0;
  socklen_t size = sizeof bytes;
  EXPECT_EQ(::getsockopt(fd, SOL_SOCKET, SO_SNDBUF, &bytes, &size), 0);
  return bytes;
}

TEST(TuneStream, KeepsFewBytesWaitingBetweenTheEndsOfOneHost) {
  const UniqueFd listener = listen_tcp({"127.0.0.1", 0}).value();
  const UniqueFd client =
      connect_tcp(bound_endpoint(listener.get()), monotonic_now() + seconds(60)).value();
  const UniqueFd server = accept_one(listener.get());
  ASSERT_TRUE(server.valid());
  constexpr int kBookkeeping = 2;  // the kernel doubles the requested size
  EXPECT_EQ(send_buffer_of(client.get()), kBookkeeping * 128 * 1024);
  EXPECT_EQ(send_buffer_of(server.get()), kBookkeeping * 128 * 1024);
}

TEST(WakeUp, IsReadableFromNotifyToClear) {
  const WakeUp wake;
  pollfd polled{wake.fd(), POLLIN, 0};
  EXPECT_EQ(::poll(&polled, 1, 0), 0);
  wake.notify();
  wake.notify();
  EXPECT_EQ(::poll(&polled, 1, 0), 1);
  wake.clear();
  EXPECT_EQ(::poll(&polled, 1, 0), 0);
}

TEST(LineBudget, AFloodWritesTenLinesThenOnePerSecondWithTheNumberLeftOut) {
  LineBudget budget;
  const Instant start = Instant{} + seconds(1000);
  int written = 0;
  for (int i = 0; i < 1000; ++i) {
    written += budget.spend(start).has_value() ? 1 : 0;
  }
  EXPECT_EQ(written, 10);
  EXPECT_EQ(budget.spend(start + milliseconds(999)), std::nullopt);
  EXPECT_EQ(budget.spend(start + seconds(1)), std::optional<std::uint64_t>(991));
  EXPECT_EQ(budget.spend(start + seconds(1)), std::nullopt);
}

TEST(LineBudget, AfterARestNothingIsLeftOut) {
  LineBudget budget;
  const Instant start = Instant{} + seconds(1000);
  for (int i = 0; i < 10; ++i) {
    EXPECT_EQ(budget.spend(start), std::optional<std::uint64_t>(0));
  }
  for (int i = 0; i < 10; ++i) {
    EXPECT_EQ(budget.spend(start + seconds(3600)), std::optional<std::uint64_t>(0));
  }
  EXPECT_EQ(budget.spend(start + seconds(3600)), std::nullopt);
}

TEST(PeerName, NamesTheProcessAtTheOtherEndOnThisHost) {
  std::array<int, 2> raw{};
  ASSERT_EQ(::socketpair(AF_UNIX, SOCK_STREAM, 0, raw.data()), 0);
  const UniqueFd one(raw[0]);
  const UniqueFd other(raw[1]);
  EXPECT_EQ(peer_name(one.get()),
            "process " + std::to_string(::getpid()) + " of user " + std::to_string(::getuid()));
}

TEST(PeerName, OfAnUnconnectedSocketIsSomebody) {
  const UniqueFd fd(::socket(AF_INET, SOCK_STREAM, 0));
  EXPECT_EQ(peer_name(fd.get()), "somebody");
}

}  // namespace
}  // namespace mayfly
