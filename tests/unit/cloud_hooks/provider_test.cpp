#include "cloud_hooks/core/provider.hpp"

#include <gtest/gtest.h>

#include <set>
#include <string>

namespace mayfly::cloud_hooks {
namespace {

TEST(ProviderErrorKind, EveryKindHasANameOfItsOwn) {
  std::set<std::string> names;
  for (int kind = 0; kind <= static_cast<int>(ProviderErrorKind::kConfig); ++kind) {
    names.insert(to_string(static_cast<ProviderErrorKind>(kind)));
  }
  EXPECT_EQ(names.size(), 5u);
}

TEST(ProviderNames, AreReadBackAsWhatTheyName) {
  EXPECT_EQ(error_kind_of("rate"), ProviderErrorKind::kRate);
  EXPECT_EQ(market_of("on_demand"), Market::kOnDemand);
  EXPECT_EQ(server_state_of("stopping"), ServerState::kStopping);
  EXPECT_FALSE(error_kind_of("Rate") || market_of("") || server_state_of("deleted"));
}

TEST(StatusIn, WhoIsNotListedIsGone) {
  ServerStatus one;
  one.id = "a";
  one.state = ServerState::kRunning;
  EXPECT_EQ(status_in({ServerStatus{}, one}, "a"), one);
  const ServerStatus other = status_in({one}, "b");
  EXPECT_EQ(other.id, "b");
  EXPECT_EQ(other.state, ServerState::kGone);
}

TEST(Offer, IsReadable) {
  EXPECT_EQ(to_string(Offer{"n1", "here", Market::kSpot}), "n1 in here (spot)");
  EXPECT_EQ(to_string(Offer{"", "", Market::kOnDemand}), "a server (on demand)");
  EXPECT_EQ(to_string(Offer{}), "a server");
}

}  // namespace
}  // namespace mayfly::cloud_hooks
