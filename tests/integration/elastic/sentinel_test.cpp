// A worker process, its sentinel, and a real coordinator, to which the sentinel must report the
// worker's end.

#include "elastic/net/sentinel.hpp"

#include <gtest/gtest.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <csignal>
#include <filesystem>
#include <fstream>
#include <sstream>
#include <thread>

#include "base/net/sockets.hpp"
#include "cloud_hooks/local_provider.hpp"
#include "elastic/net/frame.hpp"
#include "elastic/net/job_token.hpp"
#include "tests/integration/elastic/test_job.hpp"

namespace mayfly::elastic {
namespace {

namespace fs = std::filesystem;

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
constexpr bool kSanitized = true;
#else
constexpr bool kSanitized = false;
#endif

/// Waits until `condition` holds; false, with a test failure, after kHangBound.
template <typename Condition>
bool wait_until(Condition condition, const char* what) {
  const Instant deadline = monotonic_now() + kHangBound;
  while (!condition()) {
    if (monotonic_now() > deadline) {
      ADD_FAILURE() << "never seen: " << what;
      return false;
    }
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
  return true;
}

std::string first_line(const fs::path& path) {
  std::ifstream file(path);
  std::string line;
  std::getline(file, line);
  return file.good() ? line : "";  // only a complete line
}

/// The targets of the process's descriptors, without standard input, output and error.
std::vector<std::string> descriptors_of(int pid) {
  std::vector<std::string> targets;
  std::error_code error;
  for (const auto& entry : fs::directory_iterator("/proc/" + std::to_string(pid) + "/fd", error)) {
    if (std::stoi(entry.path().filename()) > 2) {
      targets.push_back(fs::read_symlink(entry, error));
    }
  }
  return targets;
}

/// Whether the process has ended; it may be a zombie.
bool has_ended(int pid) {
  std::ifstream file("/proc/" + std::to_string(pid) + "/stat");
  const std::string text{std::istreambuf_iterator<char>(file), {}};
  const std::size_t name_end = text.rfind(')');
  return name_end == std::string::npos || text.substr(name_end, 3) == ") Z";
}

/// The sum of one kind of memory of the process, in KiB.
long memory_kib(int pid, const std::string& kind) {
  std::ifstream file("/proc/" + std::to_string(pid) + "/smaps_rollup");
  for (std::string line; std::getline(file, line);) {
    if (line.rfind(kind, 0) == 0) {
      return std::stol(line.substr(kind.size()));
    }
  }
  return -1;
}

/// A coordinator of a job without members: it refuses all clients, and counts them.
class RefusingCoordinator {
 public:
  RefusingCoordinator() : thread_([this] { serve(); }) {}
  ~RefusingCoordinator() {
    over_ = true;
    thread_.join();
  }
  [[nodiscard]] std::string endpoint() const {
    return to_string(Endpoint{"127.0.0.1", bound_endpoint(listener_.get()).port});
  }
  [[nodiscard]] int refused() const { return refused_; }

 private:
  void serve() {
    while (!over_) {
      const UniqueFd fd = accept_one(listener_.get());
      const Instant deadline = monotonic_now() + kHangBound;
      if (fd.valid() && send_message(fd.get(), Challenge{make_nonce()}, deadline).ok() &&
          receive_message(fd.get(), deadline).ok()) {
        ++refused_;
        (void)send_message(fd.get(), Refused{"no member 13"}, deadline);
      }
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
    }
  }

  const UniqueFd listener_ = listen_tcp({"127.0.0.1", 0}).value();
  std::atomic<int> refused_ = 0;
  std::atomic<bool> over_ = false;
  std::thread thread_;
};

struct ToyProcess {
  std::string server_id;
  int pid = 0;
  int sentinel_pid = 0;
  MemberId member{};
};

class SentinelTest : public testing::Test {
 protected:
  SentinelTest()
      : scratch_(fs::temp_directory_path() / ("mayfly_sentinel_" + std::to_string(::getpid()))) {
    fs::create_directories(scratch_);
    EXPECT_TRUE(write_token_file(scratch_ / "token", job_->token()).ok());
  }
  ~SentinelTest() override { fs::remove_all(scratch_); }

  /// Starts a worker and waits until it and its sentinel, if it has one, are connected.
  ToyProcess start_worker(const std::string& mode, int resident_mib = 4) {
    return start_worker(mode, resident_mib, job_->endpoint());
  }
  ToyProcess start_worker(const std::string& mode, int resident_mib, const std::string& endpoint) {
    const std::string log = scratch_ / ("worker-" + std::to_string(++workers_));
    ToyProcess toy;
    toy.server_id =
        provider_
            .start({TOY_WORKER, endpoint, scratch_ / "token", std::to_string(resident_mib), mode},
                   log)
            .value();
    toy.pid = provider_.pid_of(toy.server_id);
    wait_until([&] { return !first_line(log).empty(); }, "the worker's first line");
    std::uint64_t member = 0;
    std::istringstream(first_line(log)) >> toy.sentinel_pid >> member;
    toy.member = MemberId{member};
    if (mode == "serve") {
      wait_until([&] { return has_connection(toy.sentinel_pid); }, "the sentinel's connection");
    }
    return toy;
  }
  static bool has_connection(int pid) {
    const std::vector<std::string> targets = descriptors_of(pid);
    return std::any_of(targets.begin(), targets.end(),
                       [](const std::string& each) { return each.rfind("socket:", 0) == 0; });
  }

  /// The median time from a SIGKILL until the coordinator knows. `detail`: its last source.
  double kill_to_lost_ms(const std::string& mode, int resident_mib, std::string* detail) {
    std::vector<double> times;
    for (int i = 0; i < 3; ++i) {
      const ToyProcess toy = start_worker(mode, resident_mib);
      const Instant killed = monotonic_now();
      EXPECT_TRUE(provider_.signal(toy.server_id, SIGKILL).ok());
      const auto lost = job_->observer().wait_for_note("lost", toy.member);
      times.push_back(to_ms(lost.when - killed));
      *detail = lost.note.detail;
    }
    std::sort(times.begin(), times.end());
    return times[times.size() / 2];
  }

  std::unique_ptr<TestJob> job_ = std::make_unique<TestJob>(1, patient());
  cloud_hooks::LocalProvider provider_;
  fs::path scratch_;
  int workers_ = 0;

 private:
  static CoordinatorOptions patient() {
    CoordinatorOptions core;
    core.silence_max = kSanitized ? seconds(2) : milliseconds(300);
    return core;
  }
};

TEST_F(SentinelTest, AKilledWorkerIsReportedBeforeItsMemoryIsFreed) {
  std::string detail;
  // With a sanitizer a process also writes shadow memory, which takes minutes for a large one.
  const int large_mib = kSanitized ? 128 : 512;
  const double small_ms = kill_to_lost_ms("serve", 4, &detail);
  const double large_ms = kill_to_lost_ms("serve", large_mib, &detail);
  EXPECT_EQ(detail, "the worker's process died");  // and not an end of file
  std::string eof_detail;
  const double small_eof_ms = kill_to_lost_ms("alone", 4, &eof_detail);
  const double large_eof_ms = kill_to_lost_ms("alone", large_mib, &eof_detail);
  EXPECT_NE(eof_detail, detail);
  std::cout << "SIGKILL -> known, median ms: sentinel " << small_ms << " (4 MiB), " << large_ms
            << " (" << large_mib << " MiB); socket " << small_eof_ms << " (4 MiB), " << large_eof_ms
            << " (" << large_mib << " MiB)\n";
}

TEST_F(SentinelTest, ANormalEndIsNotReportedAsADeath) {
  const ToyProcess toy = start_worker("exit");
  const auto lost = job_->observer().wait_for_note("lost", toy.member);
  EXPECT_NE(lost.note.detail, "the worker's process died");
  wait_until([&] { return has_ended(toy.sentinel_pid); }, "the sentinel's end");
}

TEST_F(SentinelTest, AStoppedWorkerIsSilentThoughItsSentinelLives) {
  const auto other = job_->add_worker();  // the last member would be given up only after 10 s
  job_->observer().wait_for_view({other->id()});
  const ToyProcess toy = start_worker("serve");
  ASSERT_TRUE(provider_.signal(toy.server_id, SIGSTOP).ok());
  const auto lost = job_->observer().wait_for_note("lost", toy.member);
  EXPECT_NE(lost.note.detail.find("its process is stopped"), std::string::npos);
}

TEST_F(SentinelTest, TheCoordinatorHearsWhereTheTrainerStands) {
  start_worker("hang");
  wait_until(
      [&] {
        const std::vector<MemberStatus> members = job_->server().status().members;
        return members.size() == 1 && members.front().activity == "commit";
      },
      "what the worker does");
}

TEST_F(SentinelTest, EndsWithItsWorkerEvenWithoutACoordinator) {
  const ToyProcess toy = start_worker("serve");
  job_.reset();
  ASSERT_TRUE(provider_.signal(toy.server_id, SIGKILL).ok());
  wait_until([&] { return has_ended(toy.sentinel_pid); }, "the sentinel's end");
}

// Goal: if the coordinator refuses the sentinel of a worker that has left its job, the sentinel
// does not try again and again to report the worker's death.
TEST_F(SentinelTest, ReportsNoDeathToACoordinatorThatRefusesIt) {
  const RefusingCoordinator coordinator;
  const ToyProcess toy = start_worker("stray", 4, coordinator.endpoint());
  wait_until([&] { return coordinator.refused() > 0; }, "the sentinel's first heartbeat");
  const int before = coordinator.refused();
  ASSERT_TRUE(provider_.signal(toy.server_id, SIGKILL).ok());
  wait_until([&] { return has_ended(toy.sentinel_pid); }, "the sentinel's end");
  // The heartbeats until the worker's death, one per second, and one report of it.
  std::cout << coordinator.refused() - before << " times refused since the worker was killed\n";
  EXPECT_LE(coordinator.refused() - before, 10);
}

// A worker that was stopped for long is no member any more when it continues. It must get the time
// to join again, and is killed only if it then hangs.
TEST_F(SentinelTest, DoesNotTakeTheTimeInWhichItsWorkerWasStoppedForAHang) {
  const RefusingCoordinator coordinator;
  const ToyProcess toy = start_worker("stuck", 4, coordinator.endpoint());
  wait_until([&] { return coordinator.refused() > 0; }, "the sentinel's first heartbeat");
  ASSERT_TRUE(provider_.signal(toy.server_id, SIGSTOP).ok());
  std::this_thread::sleep_for(std::chrono::seconds(11));
  ASSERT_TRUE(provider_.signal(toy.server_id, SIGCONT).ok());
  const Instant continued = monotonic_now();
  wait_until([&] { return has_ended(toy.pid); }, "the end of the worker, which hangs");
  EXPECT_GT(monotonic_now() - continued, seconds(8));
}

// A worker of an earlier job dies while it looks for its coordinator at the same address, where the
// same token is used again.
TEST_F(SentinelTest, OfAnotherJobReportsNoDeathOfTheMemberWithTheSameId) {
  const auto member = job_->add_worker();
  ASSERT_EQ(member->id(), MemberId{1});
  job_->observer().wait_for_view({member->id()});
  const ToyProcess toy = start_worker("foreign");
  ASSERT_TRUE(provider_.signal(toy.server_id, SIGKILL).ok());
  wait_until([&] { return has_ended(toy.sentinel_pid); }, "the sentinel's end");
  for (const auto& timed : job_->observer().seen().notes) {
    EXPECT_NE(timed.note.kind, "lost") << timed.note.detail;
  }
}

TEST_F(SentinelTest, IsSmallAndHoldsNoDescriptorOfItsWorker) {
  const ToyProcess toy = start_worker("serve", 64);
  for (const std::string& each : descriptors_of(toy.sentinel_pid)) {
    const bool own = each.rfind("socket:", 0) == 0 || each.rfind("/proc/", 0) == 0;
    EXPECT_TRUE(own) << each;
  }
  EXPECT_EQ(fs::read_symlink("/proc/" + std::to_string(toy.sentinel_pid) + "/fd/1"), "/dev/null");
  if (!kSanitized) {
    const long own_kib = memory_kib(toy.sentinel_pid, "Private_Dirty:");
    EXPECT_GE(own_kib, 0);
    EXPECT_LT(own_kib, 2048);
    std::cout << "sentinel: " << own_kib << " KiB of its own, "
              << memory_kib(toy.sentinel_pid, "Rss:") << " KiB resident with shared pages\n";
  }
}

}  // namespace
}  // namespace mayfly::elastic
