#include "engine/transfers/connection_queue.hpp"

#include <gtest/gtest.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <unistd.h>

#include <array>
#include <atomic>
#include <chrono>
#include <thread>

namespace mayfly::engine {
namespace {

/// Otherwise the end of the process would wait until the client of the connection gives up.
TEST(ConnectionQueue, ServesNoConnectionThatItCouldNotShutDown) {
  std::array<int, 2> ends{};
  ASSERT_EQ(::socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends.data()), 0);
  const UniqueFd client(ends[0]);
  std::atomic<bool> is_served = false;
  ConnectionQueue queue("test");
  rlimit before{};
  ASSERT_EQ(::getrlimit(RLIMIT_NOFILE, &before), 0);
  const rlimit standard_ones{3, before.rlim_max};
  ASSERT_EQ(::setrlimit(RLIMIT_NOFILE, &standard_ones), 0);
  queue.add({UniqueFd(ends[1]), "a client"}, [&](ConnectionQueue::Connection&) {
    is_served = true;
    return Result<void>();
  });
  while (queue.is_busy()) {
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
  EXPECT_EQ(::setrlimit(RLIMIT_NOFILE, &before), 0);
  EXPECT_FALSE(is_served);
  char byte = 0;
  EXPECT_EQ(::read(client.get(), &byte, 1), 0) << "the client can try again at once";
}

}  // namespace
}  // namespace mayfly::engine
