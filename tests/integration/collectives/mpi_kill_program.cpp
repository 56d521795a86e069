// Ranks of `mpirun --enable-recovery` that are killed one or two at a time, at random moments,
// until one is left (tests/integration/collectives/mpi_contract_test.py). After each kill a second
// thread of each survivor aborts its group, as the coordinator would request. The survivors form
// the next view and check a sum in it.
//
// Usage: mpi_kill PAGE_FILE SEED. The last survivor prints "rank R: passed" or "rank R: failed".

#include <signal.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <random>
#include <thread>
#include <vector>

#include "tests/integration/collectives/mpi_rank.hpp"
#include "tests/integration/collectives/test_cluster.hpp"

namespace {

using namespace mayfly;               // NOLINT: a test program
using namespace mayfly::collectives;  // NOLINT

using Members = std::vector<std::uint32_t>;

/// One round: the ranks that die, when, and whether while the view forms or later. Equal on all
/// ranks.
struct Plan {
  Members victims;
  std::chrono::microseconds delay;
  std::size_t count;
};

Plan draw_plan(std::mt19937& random, Members alive) {
  Plan plan;
  const std::size_t deaths = alive.size() > 3 && random() % 3 == 0 ? 2 : 1;
  while (plan.victims.size() < deaths) {
    const auto victim = alive.begin() + static_cast<std::ptrdiff_t>(random() % alive.size());
    plan.victims.push_back(*victim);
    alive.erase(victim);
  }
  plan.delay = std::chrono::microseconds(random() % (random() % 2 == 0 ? 500 : 20000));
  plan.count = random() % 2 == 0 ? 100 : 500000;
  return plan;
}

bool holds(const Members& members, std::uint32_t rank) {
  return std::find(members.begin(), members.end(), rank) != members.end();
}

/// Acts as the coordinator: aborts this rank's group of the view when all victims die.
class Teller {
 public:
  Teller(test::MpiRank& self, const Plan& plan, ViewId view)
      : thread_([this, &self, &plan, view] {
          const auto gone = [&](std::uint32_t rank) { return self.page().dying[rank].load(); };
          while (!std::all_of(plan.victims.begin(), plan.victims.end(), gone)) {
            std::this_thread::sleep_for(std::chrono::microseconds(100));
          }
          std::this_thread::sleep_for(std::chrono::milliseconds(2));
          self.transport().give_up_on(view);
          Group* group = nullptr;
          while ((group = group_.load()) == nullptr && !over_.load()) {
            std::this_thread::sleep_for(std::chrono::microseconds(100));
          }
          if (group != nullptr) {
            group->abort();
          }
        }) {}
  ~Teller() {
    over_ = true;
    thread_.join();
  }
  void attach(Group& group) { group_ = &group; }

 private:
  std::atomic<Group*> group_{nullptr};
  std::atomic<bool> over_{false};
  std::thread thread_;  // last: uses the other members
};

/// Runs one view in which another rank dies. False after an error.
bool live_through(test::MpiRank& self, const Plan& plan, const GroupSpec& spec) {
  std::thread death;
  if (holds(plan.victims, self.rank())) {
    death = std::thread([&] {
      std::this_thread::sleep_for(plan.delay);
      self.page().dying[self.rank()] = true;
      ::raise(SIGKILL);
    });
  }
  std::unique_ptr<Group> group;
  Teller teller(self, plan, spec.view);
  Result<std::unique_ptr<Group>> formed = self.transport().form(spec, test::far());
  if (!formed.ok()) {
    if (death.joinable()) {
      death.join();
    }
    return formed.error().code == Errc::kAborted || formed.error().code == Errc::kPeerLost;
  }
  group = std::move(formed).value();
  teller.attach(*group);
  Result<void> result;
  while (result.ok()) {
    std::vector<std::int32_t> data(plan.count, 1);
    result = group->all_reduce(data.data(), data.size(), DataType::kInt32, ReduceOp::kSum)
                 ->wait(test::far());
    const auto expected = static_cast<std::int32_t>(spec.peers.size());
    if (result.ok() && std::count(data.begin(), data.end(), expected) !=
                           static_cast<std::ptrdiff_t>(data.size())) {
      std::printf("rank %u: a wrong sum in view %lu\n", self.rank(), value(spec.view));
      return false;
    }
  }
  if (death.joinable()) {
    death.join();
  }
  return result.error().code == Errc::kAborted || result.error().code == Errc::kPeerLost;
}

bool check_sum(test::MpiRank& self, const Members& alive) {
  const auto group = self.form(alive);
  std::int32_t sum = 1;
  const Result<void> done =
      group->all_reduce(&sum, 1, DataType::kInt32, ReduceOp::kSum)->wait(test::far());
  if (!done.ok() || sum != static_cast<std::int32_t>(alive.size())) {
    std::printf("rank %u: the survivors' sum is %d: %s\n", self.rank(), sum,
                done.ok() ? "" : done.error().detail.c_str());
    return false;
  }
  // No rank may enter the next view, and die in it, while another one still needs this one.
  return group->barrier()->wait(test::far()).ok();
}

}  // namespace

int main(int argc, char** argv) {
  if (argc != 3) {
    return 2;
  }
  auto& self = test::MpiRank::start(argv[1]);
  std::mt19937 random(static_cast<unsigned>(std::strtoul(argv[2], nullptr, 10)));
  Members alive = self.everybody();
  bool passed = true;
  while (passed && alive.size() > 1) {
    const Plan plan = draw_plan(random, alive);
    passed = live_through(self, plan, self.next_spec(alive));
    std::erase_if(alive, [&](std::uint32_t rank) { return holds(plan.victims, rank); });
    passed = passed && check_sum(self, alive);
    self.meet(alive);
  }
  std::printf("rank %u: %s\n", self.rank(), passed ? "passed" : "failed");
  std::fflush(stdout);
  self.finish();
  return passed ? 0 : 1;
}
