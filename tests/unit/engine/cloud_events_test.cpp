#include "engine/cloud/cloud_events.hpp"

#include <gtest/gtest.h>

#include "engine/run/record_json.hpp"

namespace mayfly::engine {
namespace {

std::string told(CloudEvents& events, const std::string& kind, const std::string& detail = {}) {
  cloud_hooks::CloudFact fact;
  fact.kind = kind;
  fact.detail = detail;
  return events.event_of(fact).line;
}

TEST(CloudEvents, HaveTheFieldsThatAreKnown) {
  CloudEvents events;
  cloud_hooks::CloudFact fact;
  fact.kind = "server_ended";
  fact.detail = "it was preempted";
  fact.server = "s-1";
  fact.cost = 0.5;
  const Fact plain = events.event_of(fact);
  EXPECT_EQ(plain.kind, "server_ended");
  EXPECT_EQ(plain.line, "server_ended s-1: it was preempted");
  EXPECT_EQ(json_text(plain.fields),
            R"({"detail": "it was preempted", "server": "s-1", "cost": 0.5})");
  fact.all = cloud_hooks::PolicyStatus{};
  EXPECT_TRUE(events.event_of(fact).fields.contains("per_hour"));
}

TEST(CloudEvents, OfEveryServerAreNotTold) {
  CloudEvents events;
  EXPECT_EQ(told(events, "cost", "3"), "");
  EXPECT_EQ(told(events, "server_joined", "member 3"), "");
  EXPECT_EQ(told(events, "server_released", "done"), "");
}

TEST(CloudEvents, AReleaseThatFailsEverySecondIsToldOnceForEachServer) {
  CloudEvents events;
  const auto failed = [&events](const std::string& server, const std::string& why) {
    cloud_hooks::CloudFact fact;
    fact.kind = "release_failed";
    fact.server = server;
    fact.detail = why;
    return events.event_of(fact).line;
  };
  EXPECT_NE(failed("s-1", "auth: the token has expired"), "");
  EXPECT_NE(failed("s-2", "auth: the token has expired"), "");
  EXPECT_EQ(failed("s-1", "auth: the token has expired"), "");
  EXPECT_EQ(failed("s-2", "auth: the token has expired"), "");
  EXPECT_NE(failed("s-1", "rate: no answer"), "") << "another reason";
}

TEST(CloudEvents, ThatRepeatAreToldOnceUntilAServerComes) {
  CloudEvents events;
  EXPECT_NE(told(events, "server_refused", "no capacity"), "");
  EXPECT_EQ(told(events, "server_refused", "no capacity"), "");
  EXPECT_NE(told(events, "offers_exhausted", "no capacity"), "") << "another kind";
  EXPECT_NE(told(events, "server_refused", "no quota"), "") << "another reason";
  EXPECT_NE(told(events, "server_granted", "s-1"), "");
  EXPECT_NE(told(events, "server_refused", "no quota"), "");
  EXPECT_NE(told(events, "server_lost", "preempted"), "");
  EXPECT_NE(told(events, "server_lost", "preempted"), "") << "each of them is one server";
}

}  // namespace
}  // namespace mayfly::engine
