// The end of a shard's thread while other threads still call the shard; meant mainly for the thread
// sanitizer.

#include "collectives/parameter_server/shard.hpp"

#include <gtest/gtest.h>
#include <netdb.h>
#include <poll.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <ctime>
#include <latch>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "base/net/sockets.hpp"
#include "collectives/parameter_server/shard_clients.hpp"
#include "collectives/tcp/tcp_address.hpp"

namespace mayfly::parameter_server {
namespace {

class NoState final : public ShardState {
 public:
  void apply(std::span<const SliceGradient> /*slices*/, const Update& /*update*/) override {}
  [[nodiscard]] std::span<const float> values() const override { return values_; }
  [[nodiscard]] std::span<const float> momentum() const override { return values_; }

 private:
  std::vector<float> values_ = std::vector<float>(16);
};

SyncPlan plan() {
  JobLength length;
  length.last_step = 6;
  length.slices_per_step = 2;
  return parse_phases("bsp", length).value();
}

/// The shards of one process. If the thread of one cannot reach its follower, it calls hold() of
/// the first one.
class Shards {
 public:
  Shards() {
    for (std::uint32_t number = 0; number < 2; ++number) {
      ShardOptions options;
      options.number = number;
      options.shards = 2;
      all.push_back(Shard::start(options, plan_, state_, listener_).value());
    }
  }

 private:
  const SyncPlan plan_ = plan();
  NoState state_;
  ShardListener listener_;

 public:
  std::vector<std::unique_ptr<Shard>> all;
};

ShardView view(std::uint64_t id) {
  return {ViewId{id}, 7, {MemberId{1}}, ShardRole::kLeads, "", {}};
}

TEST(Shard, MayBeCalledByAnyThreadWhileItStopsAndAfterwards) {
  Shards shards;
  std::latch begun(1);
  std::atomic<bool> is_over = false;
  std::thread other([&] {
    begun.count_down();
    for (std::uint64_t id = 1; !is_over; ++id) {
      for (const auto& shard : shards.all) {
        shard->set_view(view(id));
        shard->hold();
        (void)shard->facts();
        (void)shard->has_connections();
      }
      std::this_thread::yield();
    }
  });
  begun.wait();
  for (const auto& shard : shards.all) {
    shard->stop();
  }
  is_over = true;
  other.join();
  for (const auto& shard : shards.all) {
    shard->stop();
    shard->hold();
    EXPECT_FALSE(shard->has_connections());
    EXPECT_TRUE(shard->facts().leads);
  }
}

/// The number of leases that worker 1 has received from the shard with this address, as soon as
/// there is one.
std::uint64_t leases_from(const std::string& address) {
  WorkerFlow flow(1);
  ShardClientsOptions options;
  options.self = MemberId{1};
  options.addresses = {address};
  options.elements = {16};
  const auto clients = ShardClients::make(options, flow, [](std::uint32_t, bool) {
                         return PayloadTarget{};
                       }).value();
  clients->set_view(ViewId{1}, 7);
  const Instant deadline = monotonic_now() + seconds(60);
  while (flow.received() == 0 && monotonic_now() < deadline) {
    clients->wait(monotonic_now() + milliseconds(1));
  }
  return flow.received();
}

TEST(Shard, LetsAWorkerInAmongManyThatSayNothing) {
  Shards shards;
  shards.all[0]->set_view(view(1));
  const auto address = collectives::parse_tcp_address(shards.all[0]->address()).value();
  std::vector<UniqueFd> silent;
  for (int i = 0; i < 100; ++i) {
    silent.push_back(start_connect_tcp({address.host, address.port}).value());
  }
  EXPECT_EQ(leases_from(shards.all[0]->address()), 1U);
}

// A server would wait for such connections at the end of the job.
TEST(Shard, ClosesAConnectionThatSaysNothing) {
  Shards shards;
  const auto address = collectives::parse_tcp_address(shards.all[0]->address()).value();
  const UniqueFd silent = start_connect_tcp({address.host, address.port}).value();
  pollfd closed{.fd = silent.get(), .events = POLLIN, .revents = 0};
  EXPECT_EQ(::poll(&closed, 1, 60'000), 1);
  EXPECT_TRUE(at_end(silent.get()));
}

// As if SELinux forbade the connection: with this name, connect() fails in another way than it does
// for a process that has ended.
TEST(Shard, IsReachedOverTcpByAWorkerOfItsHostThatMayNotUseUnixDomainSockets) {
  Shards shards;
  shards.all[0]->set_view(view(1));
  auto address = collectives::parse_tcp_address(shards.all[0]->address()).value();
  address.unix_name = "/dev/null/none";
  address.host_id = collectives::this_host_id();
  EXPECT_EQ(leases_from(collectives::to_string(address)), 1U);
}

Duration cpu_time_of_process() {
  timespec used{};
  EXPECT_EQ(::clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &used), 0);
  return seconds(used.tv_sec) + std::chrono::nanoseconds(used.tv_nsec);
}

/// While this object exists, all descriptors that the process may have are open. A limit below the
/// descriptors that are open would make poll() fail instead.
class NoDescriptors {
 public:
  NoDescriptors() {
    EXPECT_EQ(::getrlimit(RLIMIT_NOFILE, &before_), 0);
    const rlimit few{256, before_.rlim_max};
    EXPECT_EQ(::setrlimit(RLIMIT_NOFILE, &few), 0);
    for (UniqueFd fd(::dup(STDERR_FILENO)); fd.valid(); fd = UniqueFd(::dup(STDERR_FILENO))) {
      taken_.push_back(std::move(fd));
    }
  }
  ~NoDescriptors() { EXPECT_EQ(::setrlimit(RLIMIT_NOFILE, &before_), 0); }
  NoDescriptors(const NoDescriptors&) = delete;
  NoDescriptors& operator=(const NoDescriptors&) = delete;

 private:
  rlimit before_{};
  std::vector<UniqueFd> taken_;
};

TEST(Shard, SleepsWhileItHasNoDescriptorForWhoConnects) {
  Shards shards;
  const auto address = collectives::parse_tcp_address(shards.all[0]->address()).value();
  const AddressList to = resolve({address.host, address.port}, AI_NUMERICHOST).value();
  const UniqueFd client(::socket(to->ai_family, SOCK_STREAM | SOCK_CLOEXEC, 0));
  {
    const NoDescriptors none;
    ASSERT_EQ(::connect(client.get(), to->ai_addr, to->ai_addrlen), 0);
    const Duration before = cpu_time_of_process();
    std::this_thread::sleep_for(milliseconds(300));
    EXPECT_LT(cpu_time_of_process() - before, milliseconds(150));
    EXPECT_FALSE(shards.all[0]->has_connections());
  }
  const Instant deadline = monotonic_now() + seconds(60);
  while (!shards.all[0]->has_connections() && monotonic_now() < deadline) {
    std::this_thread::sleep_for(milliseconds(1));
  }
  EXPECT_TRUE(shards.all[0]->has_connections());
}

TEST(Shard, ListensNoMoreWhenItHasStopped) {
  Shards shards;
  const auto address = collectives::parse_tcp_address(shards.all[0]->address());
  ASSERT_TRUE(address.ok());
  const std::string& name = address.value().unix_name;
  if (name.empty()) {
    GTEST_SKIP() << "no Unix-domain sockets here";
  }
  EXPECT_TRUE(start_connect_unix(name).ok());
  shards.all[0]->stop();
  EXPECT_FALSE(start_connect_unix(name).ok());
}

}  // namespace
}  // namespace mayfly::parameter_server
