#include "engine/faults/injection_plan.hpp"

#include <gtest/gtest.h>

namespace mayfly::engine {
namespace {

std::vector<InjectionRule> rules_of(const std::string& text) {
  Result<std::vector<InjectionRule>> rules = parse_injections(text);
  EXPECT_TRUE(rules.ok()) << text << ": " << (rules.ok() ? "" : rules.error().detail);
  return rules.ok() ? rules.value() : std::vector<InjectionRule>{};
}

std::string complaint_about(const std::string& text) {
  const Result<std::vector<InjectionRule>> rules = parse_injections(text);
  return rules.ok() ? "nothing" : rules.error().detail;
}

TEST(Injections, AreReadWithTheirWorkerAndTheirWindow) {
  const std::vector<InjectionRule> rules = rules_of("delay=30ms,worker=1,from=step100,to=step400");
  ASSERT_EQ(rules.size(), 1U);
  EXPECT_EQ(rules[0].delay, milliseconds(30));
  EXPECT_EQ(rules[0].worker, 1U);
  EXPECT_EQ(rules[0].from, (InjectionMoment{false, 100, 0}));
  EXPECT_EQ(rules[0].to, (InjectionMoment{false, 400, 0}));
}

TEST(Injections, MayBeSeveralAndOfEachKind) {
  const std::vector<InjectionRule> rules =
      rules_of("slow=2.5x, worker=0; stop=50%,from=1.5s,to=20s;delay=250us;");
  ASSERT_EQ(rules.size(), 3U);
  EXPECT_DOUBLE_EQ(rules[0].slow, 2.5);
  EXPECT_DOUBLE_EQ(rules[1].stop, 0.5);
  EXPECT_EQ(rules[1].from, (InjectionMoment{true, 0, 1.5}));
  EXPECT_EQ(rules[2].delay, std::chrono::microseconds(250));
  EXPECT_TRUE(rules_of("").empty());
}

TEST(Injections, OfTheLoaderHaveTimesAndARate) {
  const std::vector<InjectionRule> rules = rules_of("fetch=2ms,worker=1;storage=20MB/s;prep=3ms");
  ASSERT_EQ(rules.size(), 3U);
  EXPECT_EQ(rules[0].fetch, milliseconds(2));
  EXPECT_DOUBLE_EQ(rules[1].storage, 20e6);
  EXPECT_EQ(rules[2].prep, milliseconds(3));
  EXPECT_DOUBLE_EQ(rules_of("storage=1.5GB/s").front().storage, 1.5e9);
  EXPECT_DOUBLE_EQ(rules_of("storage=500kB/s").front().storage, 5e5);
}

TEST(Injections, ReadBackFromTheirText) {
  for (const char* text :
       {"delay=30ms,worker=1,from=step100,to=step400", "slow=2.5x", "stop=50%,worker=3,from=2s",
        "fetch=2ms,to=step9", "storage=20MB/s,worker=2", "prep=0.25ms"}) {
    EXPECT_EQ(to_text(rules_of(text).front()), text);
  }
}

TEST(Injections, SayInOneLineWhatIsWrongAndWhere) {
  for (const auto& [text, word] :
       {std::pair("delay=30", "delay is a time"),
        std::pair("delay=0ms", "delay is a time"),
        std::pair("delay=2000s", "delay is a time"),
        std::pair("slow=0.5x", "slow is a factor"),
        std::pair("slow=2", "slow is a factor"),
        std::pair("stop=100%", "stop is a share"),
        std::pair("stop=0%", "stop is a share"),
        std::pair("slow=nanx", "slow is a factor"),
        std::pair("fetch=2", "fetch is a time"),
        std::pair("prep=0ms", "prep is a time"),
        std::pair("storage=20", "storage is a rate"),
        std::pair("storage=0MB/s", "storage is a rate"),
        std::pair("storage=-1MB/s", "storage is a rate"),
        std::pair("worker=1", "one of delay, slow, stop, fetch, storage and prep"),
        std::pair("slow=2x,stop=50%", "one of delay, slow, stop, fetch, storage and prep"),
        std::pair("slow=2x,worker=-1", "worker is a number"),
        std::pair("slow=2x,from=100", "from is a step or a time"),
        std::pair("slow=2x,to=step", "to is a step or a time"),
        std::pair("slow=2x,from=step9,to=step8", "from is after to"),
        std::pair("slow=2x,from=step9,to=20s", "both steps or both times"),
        std::pair("slow=2x,slow=3x", "slow is given twice"),
        std::pair("fast=2x", "'fast=2x' is not one of"),
        std::pair("slow", "slow is a factor"),
        std::pair("slow=2x,,worker=1", "'' is not one of")}) {
    const std::string said = complaint_about(text);
    EXPECT_NE(said.find(word), std::string::npos) << text << ": " << said;
    EXPECT_NE(said.find("an example: delay=30ms"), std::string::npos) << said;
    EXPECT_EQ(said.find('\n'), std::string::npos);
  }
  EXPECT_NE(complaint_about("slow=2x;slow=-1x").find("'slow=-1x'"), std::string::npos);
}

TEST(Injections, HoldForTheirWorkerOnly) {
  const std::vector<InjectionRule> rules = rules_of("slow=2x,worker=0;slow=3x,worker=1;stop=10%");
  EXPECT_EQ(injections_of_worker(rules, 0).size(), 2U);
  EXPECT_DOUBLE_EQ(effects_at(injections_of_worker(rules, 1), 1, 0).slow, 3);
  EXPECT_DOUBLE_EQ(effects_at(injections_of_worker(rules, 2), 1, 0).slow, 1);
  EXPECT_DOUBLE_EQ(effects_at(injections_of_worker(rules, 2), 1, 0).stop, 0.1);
}

TEST(Injections, HoldFromTheFirstMomentToTheLastOne) {
  const std::vector<InjectionRule> steps = rules_of("delay=5ms,from=step10,to=step20");
  for (const auto& [step, delay] :
       {std::pair(9U, 0), std::pair(10U, 5), std::pair(20U, 5), std::pair(21U, 0)}) {
    EXPECT_EQ(effects_at(steps, step, 100).delay, milliseconds(delay)) << step;
  }
  const std::vector<InjectionRule> times = rules_of("slow=2x,from=1s,to=2s");
  for (const auto& [at, slow] :
       {std::pair(0.99, 1.0), std::pair(1.0, 2.0), std::pair(2.0, 2.0), std::pair(2.1, 1.0)}) {
    EXPECT_DOUBLE_EQ(effects_at(times, 7, at).slow, slow) << at;
  }
}

TEST(Injections, AddUp) {
  const InjectedEffects effects =
      effects_at(rules_of("delay=5ms;delay=7ms;slow=2x;slow=3x;stop=20%;stop=50%;fetch=2ms;"
                          "fetch=1ms;storage=20MB/s;storage=5MB/s;storage=9MB/s;prep=4ms"),
                 1, 0);
  EXPECT_EQ(effects,
            (InjectedEffects{milliseconds(12), 6, 0.5, milliseconds(3), 5e6, milliseconds(4)}));
}

}  // namespace
}  // namespace mayfly::engine
