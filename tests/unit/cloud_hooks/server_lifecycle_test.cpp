// adopted_servers_test.cpp and replacement_policy_test.cpp test more of these rules, through the
// whole policy.

#include "cloud_hooks/core/server_lifecycle.hpp"

#include <gtest/gtest.h>

#include "tests/unit/cloud_hooks/policy_harness.hpp"
#include "tests/unit/cloud_hooks/policy_parts.hpp"

namespace mayfly::cloud_hooks {
namespace {

using test_support::error_of;
using test_support::offer;
using test_support::PolicyParts;
using test_support::two_zones;

/// A starting server of this request, in zone a.
ServerStatus starting_server(const std::string& id, const std::string& request_id) {
  ServerStatus status;
  status.id = id;
  status.state = ServerState::kStarting;
  status.request_id = request_id;
  status.offer = offer("a");
  return status;
}

void list(PolicyParts& parts, const std::vector<ServerStatus>& servers) {
  parts.lists.ask_by(parts.now);
  EXPECT_TRUE(parts.lists.ask(parts.now));
  parts.lifecycle.reconcile(parts.now, servers);
  parts.lists.listed(parts.now, Duration(0));
}

TEST(ServerLifecycle, AServerIsBilledFromItsRequestUntilItIsGone) {
  PolicyParts parts(two_zones());
  const std::string id = parts.request(0, 2);
  parts.now = parts.now + seconds(1800);
  parts.lifecycle.answered(parts.now, id, {{starting_server("s1", id)}, {}});
  EXPECT_EQ(parts.bill.per_hour(), 2.0) << "the other one may exist";
  EXPECT_NEAR(parts.bill.cost("s1", parts.now), 0.5, 1e-9);
  ServerStatus gone = starting_server("s1", id);
  gone.state = ServerState::kGone;
  list(parts, {gone});
  EXPECT_EQ(parts.bill.per_hour(), 1.0);
  EXPECT_TRUE(parts.fleet.servers().empty());
  EXPECT_TRUE(parts.shortage.first_loss());
}

TEST(ServerLifecycle, TheFirstStatedPriceCountsFromTheBeginningAndIsThatOfItsOffer) {
  PolicyParts parts(two_zones());
  const std::string id = parts.request(0, 1);
  parts.lifecycle.answered(parts.now, id, {{starting_server("s1", id)}, {}});
  parts.now = parts.now + seconds(3600);
  ServerStatus dearer = starting_server("s1", id);
  dearer.price_per_hour = 4.0;
  list(parts, {dearer});
  EXPECT_NEAR(parts.bill.cost("s1", parts.now), 4.0, 1e-9);
  EXPECT_EQ(parts.catalog.terms(0).price_per_hour, 4.0);
  dearer.price_per_hour = 8.0;
  list(parts, {dearer});
  EXPECT_NEAR(parts.bill.cost("s1", parts.now), 4.0, 1e-9) << "a later one from now on";
}

TEST(ServerLifecycle, OnlyAListThatIsLateEnoughProvesThatAServerIsGone) {
  PolicyParts parts(two_zones());
  const std::string id = parts.request(0, 1);
  parts.lifecycle.answered(parts.now, id, {{starting_server("s1", id)}, {}});
  parts.now = parts.now + parts.options.absence_grace - milliseconds(1);
  list(parts, {});
  EXPECT_NE(parts.fleet.find("s1"), nullptr);
  parts.now = parts.now + milliseconds(1);
  list(parts, {});
  EXPECT_EQ(parts.fleet.find("s1"), nullptr);
}

TEST(ServerLifecycle, AServerThatAListHadForgottenIsBilledWithoutAGap) {
  PolicyParts parts(two_zones());
  const std::string id = parts.request(0, 1);
  parts.lifecycle.answered(parts.now, id, {{starting_server("s1", id)}, {}});
  parts.requests.granted(parts.now, id);
  const Instant forgotten = parts.now + seconds(1800);
  parts.now = forgotten;
  list(parts, {});
  parts.now = parts.now + seconds(1800);
  list(parts, {starting_server("s1", id)});
  EXPECT_NEAR(parts.bill.spent(parts.now), 1.0, 1e-9);
}

TEST(ServerLifecycle, AServerThatAListTookForGoneAtOnceIsBilledOnce) {
  PolicyParts parts(two_zones());
  const std::string id = parts.request(0, 1);
  parts.now = parts.now + seconds(1800);
  ServerStatus gone = starting_server("s1", id);
  gone.state = ServerState::kGone;
  list(parts, {gone});
  EXPECT_NEAR(parts.bill.spent(parts.now), 0.5, 1e-9);
  parts.now = parts.now + seconds(1800);
  list(parts, {starting_server("s1", id)});
  EXPECT_NEAR(parts.bill.spent(parts.now), 1.0, 1e-9);
}

TEST(ServerLifecycle, ServersThatWereNotMadeAfterAllCostNothing) {
  PolicyParts parts(two_zones());
  const std::string id = parts.request(0, 1);
  list(parts, {starting_server("s1", id)});
  EXPECT_NE(parts.fleet.find("s1"), nullptr);
  parts.lifecycle.answered(parts.now, id, error_of(ProviderErrorKind::kCapacity));
  EXPECT_EQ(parts.fleet.find("s1"), nullptr);
  EXPECT_EQ(parts.bill.spent(parts.now), 0.0);
}

TEST(ServerLifecycle, ThreeServersThatStartInVainStopTheirOffer) {
  PolicyParts parts(two_zones());
  for (int i = 1; i <= 3; ++i) {
    const std::string id = parts.request(0, 1);
    ServerStatus server = starting_server("s" + std::to_string(i), id);
    server.state = ServerState::kRunning;
    parts.lifecycle.answered(parts.now, id, {{server}, {}});
    parts.requests.granted(parts.now, id);
    parts.now = parts.now + parts.options.join_timeout;
    (void)parts.effects.take();
    parts.lifecycle.watch(parts.now);
  }
  EXPECT_EQ(parts.told(), (std::vector<std::string>{"server_given_up", "offer_stopped"}));
  EXPECT_EQ(parts.catalog.ranking(parts.now + seconds(9999)), std::vector<std::size_t>{1});
}

TEST(ServerLifecycle, AServerAtTheEndOfItsLifetimeIsReplacedInTime) {
  PolicyParts parts(two_zones());
  const Instant sent = parts.now;
  const std::string id = parts.requests.send(sent, 0, 1, seconds(1000), {});
  ServerStatus server = starting_server("s1", id);
  server.state = ServerState::kRunning;
  parts.lifecycle.answered(parts.now, id, {{server}, {}});
  parts.fleet.joined(parts.now, MemberId{1}, "s1");
  parts.now = sent + seconds(1000) - parts.options.leave_timeout;
  EXPECT_EQ(parts.fleet.next_deadline(), parts.now);
  parts.lifecycle.watch(parts.now);
  EXPECT_EQ(parts.taken<policy_effect::Drain>().size(), 1u);
  EXPECT_EQ(parts.shortage.first_loss(), parts.now);
}

}  // namespace
}  // namespace mayfly::cloud_hooks
