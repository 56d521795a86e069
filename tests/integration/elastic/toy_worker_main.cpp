// A worker process with a sentinel, for sentinel_test.
// Arguments: ENDPOINT TOKEN_FILE RESIDENT_MIB MODE
//   MODE serve: prints a line when its sentinel is armed, then waits until it is killed
//        exit: ends normally at once
//        hang: its trainer makes no progress in an update
//        alone: like serve, without a sentinel
//        stray: like serve, but the worker is no member of the job. Its sentinel assumes it is one
//        stuck: the same, and its trainer makes no progress in an update
//        foreign: like stray, but the worker has the id of the first member, in another job

#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <string>
#include <vector>

#include "elastic/net/job_token.hpp"
#include "elastic/net/member_client.hpp"
#include "elastic/net/sentinel.hpp"

namespace mayfly::elastic {
namespace {

class Idle final : public MemberHandler {
 public:
  void run_view(const View&) override {}
  void abort_group(ViewId) override {}
  void ask_for_boundary(const member_effect::AskForBoundary&) override {}
  void leave(const member_effect::Leave&) override {}
};

void say_who_is_here(const Sentinel* sentinel, MemberId member) {
  std::printf("%d %llu\n", sentinel != nullptr ? sentinel->pid() : 0,
              static_cast<unsigned long long>(value(member)));
  std::fflush(stdout);
}

int run(char** arguments) {
  const std::string mode = arguments[4];
  std::unique_ptr<Sentinel> sentinel;
  if (mode != "alone") {
    sentinel = fork_sentinel().value();
  }
  if (mode == "stray" || mode == "stuck" || mode == "foreign") {
    constexpr std::uint64_t kJob = 4711;
    const MemberId former{mode == "foreign" ? 1U : 13U};
    sentinel->board().enter(mode == "stuck" ? Activity::kCommit : Activity::kIdle, Step{7});
    sentinel->arm({arguments[1]}, 0, read_token_file(arguments[2]).value(), former, kJob);
    say_who_is_here(sentinel.get(), former);
    while (true) {
      ::pause();
    }
  }
  const std::size_t resident = std::strtoul(arguments[3], nullptr, 10) << 20;
  std::vector<char> memory(resident, 1);  // written, so it is resident
  MemberClientOptions options;
  options.endpoints = {arguments[1]};
  options.sentinel = sentinel.get();
  options.token = read_token_file(arguments[2]).value();
  auto client = connect_member(options, monotonic_now() + seconds(60)).value();
  Idle idle;
  client->start(idle);
  if (sentinel != nullptr) {
    sentinel->board().enter(mode == "hang" ? Activity::kCommit : Activity::kIdle, Step{7});
  }
  say_who_is_here(sentinel.get(), client->id());
  while (mode != "exit") {
    ::pause();
  }
  return memory[resident / 2] - 1;
}

}  // namespace
}  // namespace mayfly::elastic

int main(int count, char** arguments) {
  return count == 5 ? mayfly::elastic::run(arguments) : 2;
}
