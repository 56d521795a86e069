// Traces of servers in market files.

#include "cli/plan_market.hpp"

#include <gmock/gmock.h>

#include <fstream>

#include "tests/unit/engine/temporary_folder.hpp"

namespace mayfly::cli {
namespace {

using testing::HasSubstr;

TEST(MarketTrace, HasTheShocksOfItsZone) {
  const test_support::TemporaryFolder folder;
  std::ofstream(folder / "t.csv") << "0,add,n1\n0,add,n2\n4000000,remove,n1\n8000000,add,n1\n";
  const Result<MarketFile> read =
      parse_market("[[zone]]\nname = \"z\"\ntrace = \"t.csv\"\n[[offer]]\nzone = \"z\"\n", "m.toml",
                   folder.path());
  ASSERT_TRUE(read.ok()) << read.error().detail;
  ASSERT_EQ(read.value().zones.size(), 1U);
  ASSERT_EQ(read.value().zones[0].shocks.blocks.size(), 2U);
  EXPECT_EQ(read.value().zones[0].shocks.blocks[1].at(0).share, 0.5);
}

TEST(MarketTrace, MayHaveCommentsAndCountFromAnyTime) {
  const test_support::TemporaryFolder folder;
  const auto zones_of = [&](const std::string& trace) {
    std::ofstream(folder / "t.csv") << trace;
    return parse_market("[[zone]]\nname = \"z\"\ntrace = \"t.csv\"\n[[offer]]\nzone = \"z\"\n",
                        "m.toml", folder.path());
  };
  const Result<MarketFile> read = zones_of(
      "# of zone z, times since 1970\n1700000000000,add,n1\n1700000000000,add,n2\n"
      "1700004000000,remove,n1\n1700008000000,add,n1\n");
  ASSERT_TRUE(read.ok()) << read.error().detail;
  const auto& blocks = read.value().zones.at(0).shocks.blocks;
  ASSERT_EQ(blocks.size(), 2U) << "from its first line on, not from 1970";
  ASSERT_EQ(blocks[1].size(), 1U);
  EXPECT_EQ(blocks[1][0].at_s, 400);
  EXPECT_THAT(zones_of("0,add,a\n1e15,remove,a\n").error().detail,
              HasSubstr("the trace t.csv has more than 1000000 blocks of 1 h"));
}

TEST(MarketZones, OfNoOfferAreRefused) {
  const Result<MarketFile> read = parse_market(
      "[[zone]]\nname = \"us-west1-b\"\nshare = 0.4\n[[offer]]\nzone = \"us-west1-a\"\n", "m.toml",
      "");
  EXPECT_THAT(read.error().detail, HasSubstr("no [[offer]] is in the zone 'us-west1-b'"));
}

}  // namespace
}  // namespace mayfly::cli
