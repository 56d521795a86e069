#include "cloud_hooks/core/open_requests.hpp"

#include <gtest/gtest.h>

#include "tests/unit/cloud_hooks/policy_harness.hpp"
#include "tests/unit/cloud_hooks/policy_parts.hpp"

namespace mayfly::cloud_hooks {
namespace {

using test_support::error_of;
using test_support::PolicyParts;
using test_support::two_zones;

TEST(OpenRequests, AreBilledForWhatIsMissingOfThem) {
  PolicyParts parts(two_zones());
  const std::string id = parts.request(1, 3);
  EXPECT_EQ(parts.bill.per_hour(), 6.0);
  EXPECT_EQ(parts.requests.coming_of(1), 3u);
  parts.requests.saw(id, "s1");
  parts.requests.saw(id, "s1");
  EXPECT_EQ(parts.bill.per_hour(), 4.0) << "the server itself is billed elsewhere";
  EXPECT_EQ(parts.requests.coming_for_workers(), 2u);
  parts.requests.granted(parts.now, id);
  EXPECT_EQ(parts.bill.per_hour(), 0.0);
  EXPECT_TRUE(parts.requests.empty());
}

TEST(OpenRequests, AnOfferThatGaveFewerIsNotAskedAgainAtOnce) {
  PolicyParts parts(two_zones());
  parts.requests.granted(parts.now, parts.request(0, 2));
  EXPECT_EQ(parts.catalog.ranking(parts.now), std::vector<std::size_t>{1});
}

TEST(OpenRequests, AreRepeatedUnchangedAfterTimesThatDouble) {
  PolicyParts parts(two_zones());
  const std::string id = parts.request(0, 1);
  const ServerRequest sent = parts.taken<policy_effect::Request>().at(0).request;
  for (const Duration wait : {seconds(1), seconds(2), seconds(4)}) {
    parts.requests.unanswered(parts.now, id, error_of(ProviderErrorKind::kRate), true);
    EXPECT_EQ(parts.requests.next_repeat(), parts.now + wait);
    parts.now = parts.now + wait;
    parts.requests.repeat(parts.now - milliseconds(1), true);
    EXPECT_TRUE(parts.taken<policy_effect::Request>().empty()) << "not yet";
    parts.requests.repeat(parts.now, true);
    const auto again = parts.taken<policy_effect::Request>();
    ASSERT_EQ(again.size(), 1u);
    EXPECT_TRUE(again[0].is_repeat);
    EXPECT_EQ(again[0].request, sent);
  }
  EXPECT_EQ(parts.bill.per_hour(), 1.0);
}

TEST(OpenRequests, ListsSettleWhatStaysUnanswered) {
  PolicyParts parts(two_zones());
  const std::string id = parts.request(0, 1);
  parts.requests.unanswered(parts.now, id, error_of(ProviderErrorKind::kRate), false);
  EXPECT_EQ(parts.requests.coming_for_workers(), 0u) << "nobody counts on it";
  EXPECT_TRUE(parts.requests.may_bring_worker());
  EXPECT_EQ(parts.bill.per_hour(), 1.0) << "but it may have been received";
  const Instant long_after = parts.now + parts.options.absence_grace;
  parts.lists.ask_by(parts.now);
  EXPECT_TRUE(parts.lists.ask(long_after - milliseconds(1)));
  parts.requests.settle();
  EXPECT_FALSE(parts.requests.empty());
  parts.lists.listed(long_after, Duration(0));
  EXPECT_TRUE(parts.lists.ask(long_after));
  parts.requests.settle();
  EXPECT_TRUE(parts.requests.empty());
  EXPECT_EQ(parts.bill.per_hour(), 0.0);
  EXPECT_NEAR(parts.bill.spent(long_after), 60.0 / 3600, 1e-9) << "the least that is billed";
}

TEST(OpenRequests, AreNotRepeatedWhenTheJobEnds) {
  PolicyParts parts(two_zones());
  const std::string id = parts.request(0, 1);
  parts.requests.unanswered(parts.now, id, error_of(ProviderErrorKind::kRate), true);
  parts.requests.repeat(parts.now, false);
  EXPECT_FALSE(parts.requests.next_repeat());
  EXPECT_EQ(parts.requests.find(id)->unsettled, parts.now);
}

TEST(OpenRequests, OnlySoManyWaitForTheirAnswers) {
  ReplacementOptions options = two_zones();
  options.requests_at_once = 2;
  PolicyParts parts(options);
  const std::string first = parts.request(0, 1);
  EXPECT_TRUE(parts.requests.may_send());
  parts.request(0, 1);
  EXPECT_FALSE(parts.requests.may_send());
  parts.requests.unanswered(parts.now, first, error_of(ProviderErrorKind::kRate), true);
  EXPECT_TRUE(parts.requests.may_send()) << "one waits to be repeated";
}

TEST(OpenRequests, ARefusalConcernsTheOffer) {
  PolicyParts parts(two_zones());
  parts.requests.refused(parts.now, parts.request(0, 1), error_of(ProviderErrorKind::kAuth), false);
  EXPECT_EQ(parts.told(), (std::vector<std::string>{"server_refused", "offer_stopped"}));
  EXPECT_FALSE(parts.catalog.next_change(parts.now)) << "until an operator acts";
  parts.requests.refused(parts.now, parts.request(1, 1), error_of(ProviderErrorKind::kCapacity),
                         false);
  EXPECT_TRUE(parts.catalog.next_change(parts.now));
  EXPECT_EQ(parts.bill.per_hour(), 0.0);
}

TEST(OpenRequests, AQuotaIsOursOrUsedUpByOthers) {
  PolicyParts parts(two_zones());
  const ProviderError quota = error_of(ProviderErrorKind::kQuota);
  parts.requests.refused(parts.now, parts.request(0, 4), quota, true);
  EXPECT_EQ(parts.catalog.most_at_once(0), 2u) << "perhaps not for all at once";
  parts.requests.refused(parts.now, parts.request(0, 1), quota, false);
  EXPECT_FALSE(parts.catalog.all_stopped()) << "others do not say when they end";
  parts.requests.refused(parts.now, parts.request(0, 1), quota, true);
  EXPECT_TRUE(parts.catalog.all_stopped()) << "both zones share it";
}

TEST(OpenRequests, IdsEndWithTheMarkOfTheJob) {
  ReplacementOptions options = two_zones();
  options.job_mark = "0123abcd";
  PolicyParts parts(options);
  const std::string first = parts.request(0, 1);
  const std::string second = parts.request(0, 1);
  EXPECT_NE(first, second);
  EXPECT_EQ(first.size(), 36u);
  EXPECT_TRUE(first.ends_with("0123abcd") && second.ends_with("0123abcd"));
}

}  // namespace
}  // namespace mayfly::cloud_hooks
