#include "collectives/tcp/tcp_transport.hpp"

#include <gtest/gtest.h>
#include <poll.h>
#include <sched.h>

#include <thread>
#include <vector>

#include "base/net/sockets.hpp"
#include "collectives/tcp/tcp_address.hpp"
#include "collectives/tcp/tcp_handshake.hpp"
#include "tests/integration/collectives/test_cluster.hpp"

namespace mayfly::collectives {
namespace {

using test::Cluster;
using test::far;
using test::Kind;
using test::member;
using test::on_all;

TEST(TcpTransport, PublishesBothWaysToReachIt) {
  const auto transport = make_tcp_transport({});
  ASSERT_TRUE(transport.ok());
  const Result<TcpAddress> address = parse_tcp_address(transport.value()->address());
  ASSERT_TRUE(address.ok());
  EXPECT_EQ(address.value().host, "127.0.0.1");
  EXPECT_NE(address.value().port, 0);
  EXPECT_FALSE(address.value().unix_name.empty());
  EXPECT_EQ(address.value().host_id, this_host_id());
}

TEST(TcpTransport, AWildcardIsNoAddressForOthers) {
  const auto made = make_tcp_transport({.bind_host = "0.0.0.0"});
  ASSERT_FALSE(made.ok());
  EXPECT_EQ(made.error().code, Errc::kInvalidInput);
}

TEST(TcpTransport, AMemberWithTheWrongKeyIsRefusedAndHarmsNobody) {
  Cluster cluster(Kind::kShared, 3);
  // In a group of two, member 0 connects to 1. Transport 2 claims to be 0, with another key.
  GroupSpec wrong = cluster.spec(ViewId{1}, {0, 1}, 0);
  wrong.key += 1;
  std::thread intruder([&] {
    const auto formed = cluster.transports[2]->form(wrong, far());
    ASSERT_FALSE(formed.ok());
    EXPECT_EQ(formed.error().code, Errc::kRefused);
  });
  // Rank 1 must refuse the intruder's connection, and go on waiting for the true rank 0.
  std::thread true_member([&] {
    intruder.join();
    const auto formed = cluster.transports[0]->form(cluster.spec(ViewId{1}, {0, 1}, 0), far());
    EXPECT_TRUE(formed.ok()) << formed.error().detail;
  });
  const auto formed = cluster.transports[1]->form(cluster.spec(ViewId{1}, {0, 1}, 1), far());
  EXPECT_TRUE(formed.ok()) << formed.error().detail;
  true_member.join();
}

TEST(TcpTransport, AMemberOfAStaleViewIsToldSoAndOneOfANewerViewWaits) {
  Cluster cluster(Kind::kTcp, 2);
  // Member 1 forms view 2 while member 0 still tries view 1, and then forms view 2 as well.
  std::thread behind([&] {
    const auto stale = cluster.transports[0]->form(cluster.spec(ViewId{1}, {0, 1}, 0), far());
    ASSERT_FALSE(stale.ok());
    EXPECT_EQ(stale.error().code, Errc::kAborted);
    const auto formed = cluster.transports[0]->form(cluster.spec(ViewId{2}, {0, 1}, 0), far());
    EXPECT_TRUE(formed.ok()) << formed.error().detail;
  });
  const auto formed = cluster.transports[1]->form(cluster.spec(ViewId{2}, {0, 1}, 1), far());
  EXPECT_TRUE(formed.ok()) << formed.error().detail;
  behind.join();
}

TEST(TcpTransport, APeerWhoseProcessIsGoneIsNamedAtOnce) {
  for (const Kind kind : {Kind::kShared, Kind::kUnix, Kind::kTcp}) {
    Cluster cluster(kind, 2);
    const GroupSpec spec = cluster.spec(ViewId{1}, {0, 1}, 0);
    cluster.transports[1].reset();
    const auto formed = cluster.transports[0]->form(spec, far());
    ASSERT_FALSE(formed.ok());
    EXPECT_EQ(formed.error().code, Errc::kPeerLost);
    EXPECT_EQ(formed.error().culprit, member(1));
  }
}

// Goal: a group forms although the system forbids connections between Unix-domain sockets, as
// SELinux does between containers that use the host's network.
// Method: rank 0, which connects, knows rank 1 by a name with which connect() fails in another way
// than it does for a process that has ended.
TEST(TcpTransport, MembersOfOneHostThatMayNotUseUnixDomainSocketsUseTcp) {
  Cluster cluster(Kind::kShared, 2);
  on_all(2, [&](std::uint32_t rank) {
    GroupSpec spec = cluster.spec(ViewId{1}, {0, 1}, rank);
    TcpAddress other = parse_tcp_address(spec.peers[1].address).value();
    other.unix_name = "/dev/null/none";
    spec.peers[1].address = to_string(other);
    const auto formed = cluster.transports[rank]->form(spec, far());
    ASSERT_TRUE(formed.ok()) << formed.error().detail;
    std::int32_t sum = 1;
    EXPECT_TRUE(
        formed.value()->all_reduce_blocking(&sum, 1, DataType::kInt32, ReduceOp::kSum, far()).ok());
    EXPECT_EQ(sum, 2);
  });
}

TEST(TcpTransport, StrangersWhoSayNothingOrNonsenseAreHarmless) {
  Cluster cluster(Kind::kTcp, 2);
  const TcpAddress address = parse_tcp_address(cluster.transports[0]->address()).value();
  std::vector<UniqueFd> intruders;
  for (int i = 0; i < 100; ++i) {
    auto fd = start_connect_tcp({address.host, address.port});
    ASSERT_TRUE(fd.ok());
    if (i % 2 == 0) {
      const std::string nonsense(100, 'x');
      (void)send_some(fd.value().get(), nonsense.data(), nonsense.size());
    }
    intruders.push_back(std::move(fd).value());
  }
  auto groups = cluster.form(ViewId{1}, 2);
  on_all(2, [&](std::uint32_t rank) { EXPECT_TRUE(groups[rank]->barrier()->wait(far()).ok()); });
}

// Between two views no thread forms a group. The transport must accept and close connections of
// strangers all the same, because the kernel's queue of connections is short.
TEST(TcpTransport, BetweenViewsStrangersAreLetInAndThrownOut) {
  Cluster cluster(Kind::kTcp, 1);
  const TcpAddress address = parse_tcp_address(cluster.transports[0]->address()).value();
  std::vector<UniqueFd> intruders;
  for (std::size_t i = 0; i < 3 * PendingConnections::kPendingMax; ++i) {
    auto fd = start_connect_tcp({address.host, address.port});
    ASSERT_TRUE(fd.ok());
    intruders.push_back(std::move(fd).value());
  }
  pollfd first{.fd = intruders.front().get(), .events = POLLIN, .revents = 0};
  EXPECT_EQ(::poll(&first, 1, 60'000), 1) << "the first of too many is still there";
  EXPECT_TRUE(at_end(intruders.front().get()));
}

TEST(TcpTransport, WhoeverSaysHelloForViewsToComeKeepsNoMemberOut) {
  Cluster cluster(Kind::kTcp, 2);
  const TcpAddress address = parse_tcp_address(cluster.transports[1]->address()).value();
  std::thread ahead([&] {
    const auto formed = cluster.transports[0]->form(cluster.spec(ViewId{1}, {0, 1}, 0), far());
    EXPECT_TRUE(formed.ok()) << formed.error().detail;
  });
  std::vector<UniqueFd> intruders;
  for (std::size_t i = 0; i < 3 * PendingConnections::kPendingMax; ++i) {
    auto fd = start_connect_tcp({address.host, address.port});
    ASSERT_TRUE(fd.ok());
    pollfd connected{.fd = fd.value().get(), .events = POLLOUT, .revents = 0};
    ASSERT_EQ(::poll(&connected, 1, 60'000), 1);
    const Hello hello{kHelloMagic, ~std::uint64_t{0}, i, 0, 1};
    (void)send_some(fd.value().get(), &hello, sizeof hello);
    intruders.push_back(std::move(fd).value());
  }
  const auto formed = cluster.transports[1]->form(cluster.spec(ViewId{1}, {0, 1}, 1), far());
  EXPECT_TRUE(formed.ok()) << formed.error().detail;
  ahead.join();
}

// Goal: all members of a group use the same algorithm for an all-reduce, although their machines
// differ.
// Method: one member may use a single core, so on its own it would consider its host overloaded.
// The sizes are those at which that changes the algorithm; and empty vectors, with and without an
// address.
TEST(TcpTransport, MembersWithUnequalCoresTakeTheSameWay) {
  for (const Kind kind : {Kind::kShared, Kind::kTcp}) {
    Cluster cluster(kind, 2);
    on_all(2, [&](std::uint32_t rank) {
      if (rank == 0) {
        cpu_set_t one;
        CPU_ZERO(&one);
        CPU_SET(static_cast<std::size_t>(::sched_getcpu()), &one);
        ASSERT_EQ(::sched_setaffinity(0, sizeof one, &one), 0);
      }
      const auto group =
          cluster.transports[rank]->form(cluster.spec(ViewId{1}, {0, 1}, rank), far());
      ASSERT_TRUE(group.ok()) << group.error().detail;
      std::int32_t nothing = 0;
      for (const std::size_t count : {1, 9000, 12000, 16000, 20000}) {
        std::vector<std::int32_t> data(count, 1);
        EXPECT_TRUE(group.value()
                        ->all_reduce_blocking(data.data(), count, DataType::kInt32, ReduceOp::kSum,
                                              monotonic_now() + seconds(10))
                        .ok());
        EXPECT_EQ(data, std::vector<std::int32_t>(count, 2));
        EXPECT_TRUE(group.value()
                        ->all_reduce_blocking(rank == 0 ? &nothing : nullptr, 0, DataType::kInt32,
                                              ReduceOp::kSum, monotonic_now() + seconds(10))
                        .ok());
      }
    });
  }
}

TEST(TcpTransport, AnAddressThatIsNoneIsRefused) {
  Cluster cluster(Kind::kTcp, 2);
  GroupSpec spec = cluster.spec(ViewId{1}, {0, 1}, 0);
  spec.peers[1].address = "nowhere";
  const auto formed = cluster.transports[0]->form(spec, far());
  ASSERT_FALSE(formed.ok());
  EXPECT_EQ(formed.error().code, Errc::kInvalidInput);
}

}  // namespace
}  // namespace mayfly::collectives
