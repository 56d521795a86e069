#include "elastic/core/member_map.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <map>
#include <string>

#include "base/random.hpp"

namespace mayfly::elastic {
namespace {

TEST(MemberMap, IsAMapWhateverIdsComeAndGo) {
  constexpr std::uint64_t kSeed = 9;
  RandomStream random{CounterRandom(kSeed)};
  for (int round = 0; round < 200; ++round) {
    SCOPED_TRACE("seed " + std::to_string(kSeed) + " round " + std::to_string(round));
    MemberMap<std::string> map;
    std::map<MemberId, std::string> model;
    const std::uint64_t ids = 1 + random.below(60);
    const std::uint64_t base = random.below(2) * 1'000'000'000;  // ids of another incarnation
    for (int action = 0; action < 100; ++action) {
      const MemberId id{1 + random.below(ids) + (random.below(3) == 0 ? base : 0)};
      if (random.below(2) == 0) {
        const std::string text = std::to_string(action);
        EXPECT_EQ(map.try_emplace(id, text).second, model.try_emplace(id, text).second);
      } else {
        map.erase(id);
        model.erase(id);
      }
      const MemberId wanted{random.below(ids + 2) + (random.below(3) == 0 ? base : 0)};
      const auto found = map.find(wanted);
      ASSERT_EQ(found == map.end(), !model.contains(wanted));
      EXPECT_TRUE(found == map.end() || found->second == model.at(wanted));
      const auto place = map.lower_bound(wanted);
      const auto expected = model.lower_bound(wanted);
      ASSERT_EQ(place == map.end(), expected == model.end());
      EXPECT_TRUE(place == map.end() || place->first == expected->first);
    }
    EXPECT_EQ(map.size(), model.size());
    EXPECT_EQ(map.empty(), model.empty());
    EXPECT_TRUE(std::equal(map.begin(), map.end(), model.begin(), model.end()));
  }
}

TEST(MemberMap, AMemberStaysWhereItIsWhileOthersComeAndGo) {
  MemberMap<int> map;
  const int& five = map.try_emplace(MemberId{5}, 5).first->second;
  for (std::uint64_t id = 100; id > 6; --id) {
    map.try_emplace(MemberId{id}, 0);
  }
  map.try_emplace(MemberId{1}, 1);
  map.erase(MemberId{50});
  EXPECT_EQ(&map.find(MemberId{5})->second, &five);
}

}  // namespace
}  // namespace mayfly::elastic
