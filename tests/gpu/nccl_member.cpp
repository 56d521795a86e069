#include "tests/gpu/nccl_member.hpp"

#include <fmt/format.h>
#include <signal.h>
#include <sys/prctl.h>

#include <filesystem>
#include <iostream>
#include <memory>
#include <mutex>
#include <sstream>
#include <thread>
#include <vector>

#include "collectives/group.hpp"
#include "collectives/transport_module.hpp"
#include "tests/gpu/device_memory.hpp"
#include "tests/gpu/group_checks.hpp"
#include "tests/integration/collectives/folder_store.hpp"

namespace mayfly::collectives::gpu_test {
namespace {

std::ptrdiff_t entries_of(const char* folder) {
  const std::filesystem::directory_iterator all(folder);
  return std::distance(begin(all), end(all));
}

class Member {
 public:
  Member(std::unique_ptr<Transport> transport, const std::string& folder)
      : transport_(std::move(transport)), store_(folder) {}
  ~Member() { finish_work(); }

  void obey(const std::string& line) {
    std::istringstream words(line);
    std::string verb;
    words >> verb;
    if (verb == "abort") {
      return abort(words);
    }
    finish_work();
    worker_ = std::thread([this, line] {
      use_device();
      work(line);
    });
  }

 private:
  void finish_work() {
    if (worker_.joinable()) {
      worker_.join();
    }
  }

  void abort(std::istringstream& words) {
    std::uint64_t view = 0;
    words >> view;
    transport_->give_up_on(ViewId{view});
    const std::lock_guard lock(mutex_);
    if (group_ && value(group_->view()) <= view) {
      group_->abort();
    }
  }

  void say(const std::string& text) { std::cout << text << std::endl; }

  void work(const std::string& line) {
    std::istringstream words(line);
    std::string verb;
    words >> verb;
    if (verb == "form") {
      form(words);
    } else if (verb == "check") {
      say(check_operations(group()));
    } else if (verb == "streams") {
      say(check_streams(group()));
    } else if (verb == "sum") {
      sum(words);
    } else if (verb == "reduce") {
      reduce(words);
    } else if (verb == "leave") {
      replace_group(nullptr);
      say("left");
    } else if (verb == "footprint") {
      footprint();
    }
  }

  DeviceGroup& group() { return dynamic_cast<DeviceGroup&>(*group_); }

  void replace_group(std::unique_ptr<Group> group) {
    const std::lock_guard lock(mutex_);
    group_ = std::move(group);
  }

  GroupSpec read_spec(std::istringstream& words) {
    GroupSpec spec;
    std::uint64_t view = 0;
    std::uint32_t rank = 0;
    std::uint64_t id = 0;
    words >> view >> rank;
    while (words >> id) {
      spec.peers.push_back({MemberId{id}, "nccl"});
    }
    spec.view = ViewId{view};
    spec.rank = Rank{rank};
    spec.key = 12345 + view;
    spec.store = &store_;
    return spec;
  }

  void form(std::istringstream& words) {
    replace_group(nullptr);
    const Instant start = monotonic_now();
    Result<std::unique_ptr<Group>> formed = transport_->form(read_spec(words), far());
    if (!formed.ok()) {
      return say(
          fmt::format("failed {} {}", to_string(formed.error().code), formed.error().detail));
    }
    replace_group(std::move(formed).value());
    say(fmt::format("formed {:.2f}", to_ms(monotonic_now() - start)));
  }

  void sum(std::istringstream& words) {
    std::size_t count = 0;
    words >> count;
    const Instant start = monotonic_now();
    const std::string outcome = check_sum(group(), count);
    say(outcome == kRight ? fmt::format("sum {:.2f}", to_ms(monotonic_now() - start)) : outcome);
  }

  void reduce(std::istringstream& words) {
    std::size_t count = 0;
    words >> count;
    DeviceArray<std::int32_t> data{std::vector<std::int32_t>(count)};
    say("reducing");
    while (true) {
      const auto operation =
          group_->all_reduce(data.data(), count, DataType::kInt32, ReduceOp::kSum);
      const Result<void> done = operation->wait(far());
      if (!done.ok()) {
        return say(fmt::format("failed {} {}", to_string(done.error().code), done.error().detail));
      }
    }
  }

  void footprint() {
    say(fmt::format("footprint {} {} {}", device_bytes_in_use(), entries_of("/proc/self/fd"),
                    entries_of("/proc/self/task")));
  }

  std::unique_ptr<Transport> transport_;
  FolderStore store_;
  std::mutex mutex_;
  std::unique_ptr<Group> group_;  // replaced under mutex_
  std::thread worker_;
};

}  // namespace

int run_member(const std::string& folder) {
  ::prctl(PR_SET_PDEATHSIG, SIGKILL);  // a member in a hung operation would not notice otherwise
  const Result<const TransportModule*> module = load_transport_module("nccl");
  if (!module.ok()) {
    std::cerr << module.error().detail << '\n';
    return 3;
  }
  Result<std::unique_ptr<Transport>> transport = module.value()->make({});
  if (!transport.ok()) {
    std::cerr << transport.error().detail << '\n';
    return 3;
  }
  Member member(std::move(transport).value(), folder);
  std::cout << "ready" << std::endl;
  for (std::string line; std::getline(std::cin, line);) {
    member.obey(line);
  }
  return 0;
}

}  // namespace mayfly::collectives::gpu_test
