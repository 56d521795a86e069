// Runs every world over many seeds. scripts/test derives the first seed from the commit. So
// different commits are tested with different seeds, and the same commit with the same ones.
//
// MAYFLY_SIM_FIRST_SEED=S starts at S instead of 1, MAYFLY_SIM_SEEDS=N runs N seeds of each world,
// MAYFLY_SIM_LINES=L shows the last L events of a failing seed instead of 40.

#include <gtest/gtest.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <iostream>

#include "tests/sim/sweep.hpp"

namespace mayfly::sim {
namespace {

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
constexpr std::uint64_t kSanitizedShare = 10;  // sanitizers make a seed slower by this factor
#else
constexpr std::uint64_t kSanitizedShare = 1;
#endif

std::uint64_t from_environment(const char* name, std::uint64_t otherwise) {
  const char* text = std::getenv(name);
  return text == nullptr ? otherwise : std::strtoull(text, nullptr, 10);
}

/// The failover world gets more seeds, because its runs are short and defects between coordinators
/// are rare: one in 2,000 to 20,000 seeds found each past defect.
std::uint64_t seeds_of(const World& world) {
  return (&world == &failover_world() ? 10'000 : 2'000) / kSanitizedShare;
}

/// Prints the seed in progress if a broken invariant aborts the process.
class NamedSeeds final : public World {
 public:
  explicit NamedSeeds(const World& world) : world_(world) {
    (void)std::signal(
        SIGABRT, +[](int) { say_last(); });
  }
  ~NamedSeeds() override { (void)std::signal(SIGABRT, SIG_DFL); }
  NamedSeeds(const NamedSeeds&) = delete;
  NamedSeeds& operator=(const NamedSeeds&) = delete;

  [[nodiscard]] std::string name() const override { return world_.name(); }
  [[nodiscard]] std::vector<std::string> sabotages() const override { return world_.sabotages(); }
  [[nodiscard]] Outcome play(std::uint64_t seed, const std::string& sabotage) const override {
    const int length = std::snprintf(last.data(), last.size(),
                                     "  replay: mayfly simulate --world %s --replay %llu\n",
                                     name().c_str(), static_cast<unsigned long long>(seed));
    last_length = std::clamp<std::size_t>(static_cast<std::size_t>(length), 0, last.size() - 1);
    return world_.play(seed, sabotage);
  }

 private:
  static void say_last() { (void)!write(STDERR_FILENO, last.data(), last_length); }

  static inline std::array<char, 128> last{};
  static inline std::size_t last_length = 0;
  const World& world_;
};

std::vector<std::string> names() {
  std::vector<std::string> all;
  for (const World* world : all_worlds()) {
    all.push_back(world->name());
  }
  return all;
}

/// The worlds by name, because ctest's names of tests must be the same in every process.
class EveryWorld : public testing::TestWithParam<std::string> {};

TEST_P(EveryWorld, KeepsItsPromisesWhateverTheSeed) {
  const auto wanted = std::find_if(all_worlds().begin(), all_worlds().end(),
                                   [](const World* each) { return each->name() == GetParam(); });
  const NamedSeeds world(**wanted);
  SweepOptions options;
  options.world = &world;
  options.seeds = from_environment("MAYFLY_SIM_SEEDS", seeds_of(**wanted));
  options.first_seed = from_environment("MAYFLY_SIM_FIRST_SEED", 1);
  std::cout << "world " << world.name() << ": " << options.seeds << " seeds from "
            << options.first_seed << std::endl;
  const SweepResult result = sweep(options);
  for (const Outcome& failure : result.first) {
    ADD_FAILURE() << story_of(failure, from_environment("MAYFLY_SIM_LINES", 40));
  }
  EXPECT_EQ(result.failing, 0u);
  std::cout << summary_line(options, result) << '\n';
}

INSTANTIATE_TEST_SUITE_P(Simulator, EveryWorld, testing::ValuesIn(names()), [](const auto& each) {
  std::string name = each.param;
  std::replace(name.begin(), name.end(), '-', '_');
  return name;
});

}  // namespace
}  // namespace mayfly::sim
