#include "base/asio/accept_loop.hpp"

#include <gtest/gtest.h>
#include <sys/resource.h>

#include <cerrno>
#include <chrono>
#include <vector>

#include "base/net/sockets.hpp"

namespace mayfly {
namespace {

using namespace std::chrono_literals;

constexpr auto kAgainstHanging = 60s;

/// An accept loop; the test keeps the connections that it accepts.
class AcceptLoopTest : public testing::Test {
 protected:
  AcceptLoopTest() { loop_.start(); }

  void connect(std::size_t count = 1) {
    for (std::size_t i = 0; i < count; ++i) {
      clients_.push_back(connect_tcp(endpoint_, monotonic_now() + seconds(60)).value());
    }
  }

  void run_until_taken(std::size_t count) {
    const auto end = std::chrono::steady_clock::now() + kAgainstHanging;
    while (taken_.size() < count && io_.run_one_until(end) > 0) {
    }
    EXPECT_EQ(taken_.size(), count);
  }

  UniqueFd listener_ = listen_tcp({"127.0.0.1", 0}).value();
  const Endpoint endpoint_ = bound_endpoint(listener_.get());
  boost::asio::io_context io_{1};
  RejectionLog log_{"test"};
  std::vector<UniqueFd> clients_;
  std::vector<UniqueFd> taken_;
  std::vector<int> reasons_;
  AcceptLoop loop_{io_, std::move(listener_), log_,
                   [this](UniqueFd fd) { taken_.push_back(std::move(fd)); },
                   [this](int error) { reasons_.push_back(error); }};
};

TEST_F(AcceptLoopTest, TakesEveryConnection) {
  connect(3);
  run_until_taken(3);
  connect();
  run_until_taken(4);
}

TEST_F(AcceptLoopTest, LeavesAFloodTimeForOtherWork) {
  connect(100);
  EXPECT_EQ(io_.run_one_for(kAgainstHanging), 1u);
  EXPECT_EQ(taken_.size(), 64u);
  run_until_taken(100);
}

TEST_F(AcceptLoopTest, TakesThemOnceThereAreDescriptorsAgain) {
  connect(2);
  rlimit before{};
  ASSERT_EQ(::getrlimit(RLIMIT_NOFILE, &before), 0);
  const rlimit none{0, before.rlim_max};
  ASSERT_EQ(::setrlimit(RLIMIT_NOFILE, &none), 0);
  for (int attempt = 0; attempt < 2; ++attempt) {
    io_.run_one_for(kAgainstHanging);
  }
  EXPECT_EQ(::setrlimit(RLIMIT_NOFILE, &before), 0);
  EXPECT_EQ(reasons_, (std::vector<int>{EMFILE, EMFILE}));
  run_until_taken(2);
}

TEST_F(AcceptLoopTest, TakesNothingAfterItsEnd) {
  connect();
  loop_.stop();
  EXPECT_LE(io_.run_for(kAgainstHanging), 1u) << "there is nothing left to wait for";
  EXPECT_TRUE(io_.stopped());
  EXPECT_TRUE(taken_.empty());
  EXPECT_FALSE(connect_tcp(endpoint_, monotonic_now() + seconds(60)).ok());
}

}  // namespace
}  // namespace mayfly
