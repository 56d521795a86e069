// One member as a process, for process_kill_test: it reads commands on standard input and answers
// on standard output. Operations run on a second thread, so that "abort" is read at any time.
//
//   form VIEW RANK MEMBER ADDRESS [MEMBER ADDRESS]...   -> "formed" or "failed CODE"
//   reduce COUNT       all-reduces of COUNT int32 until one fails -> "reducing", then "failed CODE"
//   sum                one all-reduce of a 1               -> "sum N" or "failed CODE"
//   abort VIEW         gives up VIEW and aborts the group; no answer
//
// Usage: group_process unix|tcp|gloo STORE_FOLDER. First prints "address ADDRESS".

#include <iostream>
#include <mutex>
#include <sstream>
#include <string>
#include <thread>
#include <vector>

#include "base/log.hpp"
#include "collectives/gloo/gloo_transport.hpp"
#include "collectives/tcp/tcp_transport.hpp"
#include "tests/integration/collectives/folder_store.hpp"

namespace {

using namespace mayfly;               // NOLINT: a test program
using namespace mayfly::collectives;  // NOLINT

class Member {
 public:
  Member(std::unique_ptr<Transport> transport, const std::string& folder)
      : transport_(std::move(transport)), store_(folder) {
    say("address " + transport_->address());
  }

  void obey(const std::string& line) {
    std::istringstream words(line);
    std::string verb;
    words >> verb;
    if (verb == "abort") {
      std::uint64_t view = 0;
      words >> view;
      transport_->give_up_on(ViewId{view});
      const std::lock_guard lock(mutex_);
      if (group_ && value(group_->view()) <= view) {
        group_->abort();
      }
      return;
    }
    if (worker_.joinable()) {
      worker_.join();
    }
    worker_ = std::thread([this, line] { work(line); });
  }

  ~Member() {
    if (worker_.joinable()) {
      worker_.join();
    }
  }

 private:
  static Instant far() { return monotonic_now() + seconds(60); }

  void say(const std::string& text) {
    const std::lock_guard lock(output_);
    std::cout << text << std::endl;
  }
  void say_failed(const Error& error) { say(std::string("failed ") + to_string(error.code)); }

  void work(const std::string& line) {
    std::istringstream words(line);
    std::string verb;
    words >> verb;
    if (verb == "form") {
      form(words);
    } else if (verb == "reduce") {
      std::size_t count = 0;
      words >> count;
      reduce(count);
    } else if (verb == "sum") {
      std::int32_t one = 1;
      const Result<void> done =
          group_->all_reduce(&one, 1, DataType::kInt32, ReduceOp::kSum)->wait(far());
      done.ok() ? say("sum " + std::to_string(one)) : say_failed(done.error());
    }
  }

  void form(std::istringstream& words) {
    GroupSpec spec;
    std::uint64_t view = 0;
    std::uint32_t rank = 0;
    std::uint64_t id = 0;
    std::string address;
    words >> view >> rank;
    while (words >> id >> address) {
      spec.peers.push_back({MemberId{id}, address});
    }
    spec.view = ViewId{view};
    spec.rank = Rank{rank};
    spec.key = 12345 + view;
    spec.store = &store_;
    {
      const std::lock_guard lock(mutex_);
      group_.reset();
    }
    Result<std::unique_ptr<Group>> formed = transport_->form(spec, far());
    if (!formed.ok()) {
      return say_failed(formed.error());
    }
    {
      const std::lock_guard lock(mutex_);
      group_ = std::move(formed).value();
    }
    say("formed");
  }

  void reduce(std::size_t count) {
    std::vector<std::int32_t> data(count);
    say("reducing");
    while (true) {
      const Result<void> done =
          group_->all_reduce(data.data(), count, DataType::kInt32, ReduceOp::kSum)->wait(far());
      if (!done.ok()) {
        return say_failed(done.error());
      }
    }
  }

  std::unique_ptr<Transport> transport_;
  FolderStore store_;
  std::mutex mutex_;
  std::unique_ptr<Group> group_;  // replaced under mutex_
  std::mutex output_;
  std::thread worker_;
};

Result<std::unique_ptr<Transport>> make(const std::string& kind) {
  if (kind == "gloo") {
    return make_gloo_transport({});
  }
  return make_tcp_transport({.use_unix = kind != "tcp", .share_memory = kind == "shared"});
}

}  // namespace

int main(int argc, char** argv) {
  if (argc != 3) {
    return 2;
  }
  log::open("member", "", log::Level::kWarning);  // standard output is for answers
  Result<std::unique_ptr<Transport>> transport = make(argv[1]);
  if (!transport.ok()) {
    return 3;
  }
  Member member(std::move(transport).value(), argv[2]);
  for (std::string line; std::getline(std::cin, line);) {
    member.obey(line);
  }
  return 0;
}
