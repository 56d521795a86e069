// A member without a coordinator: which coordinators it tries, and which reports it keeps.

#include <gmock/gmock.h>
#include <poll.h>

#include <algorithm>
#include <set>
#include <stop_token>
#include <string>
#include <thread>
#include <vector>

#include "base/net/sockets.hpp"
#include "elastic/net/frame.hpp"
#include "elastic/net/handshake.hpp"
#include "elastic/net/job_token.hpp"
#include "elastic/net/reconnect.hpp"
#include "elastic/net/tls_link.hpp"

namespace mayfly::elastic {
namespace {

constexpr Instant kStart{1'000'000'000'000};

ReconnectOptions options_of(std::size_t endpoints) {
  ReconnectOptions options;
  options.endpoints = endpoints;
  return options;
}

/// The attempts in a search of this duration if each attempt fails at once.
std::vector<ReconnectPlan::Attempt> attempts(ReconnectPlan plan, Duration how_long) {
  std::vector<ReconnectPlan::Attempt> made;
  for (Instant now = kStart; now < kStart + how_long;) {
    made.push_back(plan.next(now));
    now = now + made.back().delay;
  }
  return made;
}

TEST(ReconnectPlan, TriesTheLostCoordinatorAtOnceAndOftenAtFirst) {
  const auto made = attempts(ReconnectPlan(options_of(1), 0, 7, kStart), seconds(1));
  EXPECT_EQ(made[0].delay, Duration::zero());
  EXPECT_LE(made[1].delay, milliseconds(63));
  EXPECT_GE(made[1].delay, milliseconds(37));
  EXPECT_GE(made.size(), 5u);
}

TEST(ReconnectPlan, SlowsDownToTwoAttemptsASecond) {
  const auto made = attempts(ReconnectPlan(options_of(1), 0, 7, kStart), seconds(600));
  EXPECT_LT(made.size(), 2000u);
  EXPECT_GT(made.size(), 900u);
  for (const auto& each : made) {
    EXPECT_LE(each.delay, milliseconds(625));
  }
}

TEST(ReconnectPlan, IsLoyalForHalfASecondThenGoesRoundTheList) {
  ReconnectPlan plan(options_of(3), 1, 7, kStart);
  Instant now = kStart;
  std::vector<std::size_t> order;
  for (int i = 0; i < 40; ++i) {
    const auto attempt = plan.next(now);
    if (now < kStart + milliseconds(500)) {
      EXPECT_EQ(attempt.endpoint, 1u);
    } else {
      order.push_back(attempt.endpoint);
    }
    now = now + attempt.delay;
  }
  ASSERT_GE(order.size(), 6u);
  EXPECT_EQ(std::vector(order.begin(), order.begin() + 6),
            (std::vector<std::size_t>{2, 0, 1, 2, 0, 1}));
}

TEST(ReconnectPlan, ACoordinatorThatSendsItAwayIsNotTriedFirst) {
  ReconnectPlan plan(options_of(2), 0, 7, kStart);
  plan.try_elsewhere(0);
  EXPECT_EQ(plan.next(kStart).endpoint, 1u);
}

TEST(ReconnectPlan, ACoordinatorThatSendsItAwaySaysToWhichOfTheOthers) {
  for (const std::size_t endpoints : {1, 2, 3, 5}) {
    std::set<std::size_t> seen;
    for (std::uint32_t skip = 0; skip < 20; ++skip) {
      ReconnectPlan plan(options_of(endpoints), 0, 7, kStart);
      plan.try_elsewhere(skip);
      seen.insert(plan.next(kStart).endpoint);
    }
    EXPECT_EQ(seen.size(), std::max<std::size_t>(1, endpoints - 1));
    EXPECT_EQ(seen.count(0), endpoints == 1 ? 1u : 0u) << "not to the same one again";
  }
}

TEST(ReconnectPlan, MembersDoNotAllComeAtTheSameMoment) {
  std::set<std::int64_t> delays;
  for (std::uint64_t member = 0; member < 50; ++member) {
    ReconnectPlan plan(options_of(1), 0, member, kStart);
    (void)plan.next(kStart);
    delays.insert(plan.next(kStart).delay.count());
  }
  EXPECT_GT(delays.size(), 20u);
}

Bytes report(int number, std::size_t size = 10) {
  return Bytes(size, static_cast<std::byte>(number));
}
std::vector<int> held(const ReportQueue& queue) {
  std::vector<int> numbers;
  for (const ReportQueue::Held& each : queue.all()) {
    numbers.push_back(static_cast<int>(each.payload[0]));
  }
  return numbers;
}

TEST(ReportQueue, KeepsWhatTheCoordinatorHasNotTaken) {
  ReportQueue queue(1000);
  for (int i = 0; i < 5; ++i) {
    queue.add(report(i), kStart);
  }
  queue.taken(2);
  EXPECT_EQ(held(queue), (std::vector<int>{2, 3, 4}));
  queue.taken(2);  // the count begins with the connection
  EXPECT_EQ(held(queue), (std::vector<int>{2, 3, 4}));
}

TEST(ReportQueue, ANewConnectionCountsFromItsOwnBeginning) {
  ReportQueue queue(1000);
  for (int i = 0; i < 5; ++i) {
    queue.add(report(i), kStart);
  }
  queue.taken(3);
  queue.begin_connection();
  queue.add(report(5), kStart);
  queue.taken(1);
  EXPECT_EQ(held(queue), (std::vector<int>{4, 5}));
}

TEST(ReportQueue, WhatIsOfAnotherJobIsDropped) {
  ReportQueue queue(1000);
  queue.begin_job(5);
  queue.add(report(1), kStart);
  queue.begin_job(0);  // a standby does not know the job
  queue.begin_job(5);
  EXPECT_EQ(held(queue), (std::vector<int>{1}));
  queue.begin_job(6);
  EXPECT_EQ(held(queue), (std::vector<int>{}));
}

TEST(ReportQueue, DropsTheOldestBeyondItsBoundAndSaysHowMany) {
  ReportQueue queue(30);
  for (int i = 0; i < 5; ++i) {
    queue.add(report(i), kStart);
  }
  EXPECT_EQ(held(queue), (std::vector<int>{2, 3, 4}));
  EXPECT_EQ(queue.take_dropped(), 2u);
  EXPECT_EQ(queue.take_dropped(), 0u);
  queue.taken(3);  // the count includes dropped reports, which had been sent
  EXPECT_EQ(held(queue), (std::vector<int>{3, 4}));
}

TEST(ReportQueue, KeepsTheNewestHoweverLarge) {
  ReportQueue queue(30);
  queue.add(report(1, 100), kStart);
  EXPECT_EQ(held(queue), (std::vector<int>{1}));
}

TEST(ReportQueue, MoreTakenThanSentIsHarmless) {
  ReportQueue queue(30);
  queue.add(report(1), kStart);
  queue.taken(1'000'000);
  EXPECT_TRUE(queue.all().empty());
  queue.add(report(2), kStart);
  EXPECT_EQ(held(queue), (std::vector<int>{2}));
}

TEST(FirstSession, SaysWhatItTriesWhileItWaits) {
  const std::uint16_t port = bound_endpoint(listen_tcp({"127.0.0.1", 0}).value().get()).port;
  ::testing::internal::CaptureStderr();
  const auto session = open_first_session({"127.0.0.1:" + std::to_string(port)}, Bytes(32), Hello{},
                                          monotonic_now() + milliseconds(2600));
  const std::string said = ::testing::internal::GetCapturedStderr();
  EXPECT_FALSE(session.ok());
  EXPECT_THAT(said, ::testing::HasSubstr("Connection refused; retrying for 1 s"));
}

/// The coordinator refuses after kSilenceMax, which is longer than the limit of a first attempt if
/// the list has several coordinators.
TEST(FirstSession, IsRefusedByOneOfSeveralThatSpeaksOnlyTls) {
  const UniqueFd listener = listen_tcp({"127.0.0.1", 0}).value();
  std::vector<SecureSocket> served;
  const std::jthread server([&](const std::stop_token& stop) {
    while (!stop.stop_requested()) {
      pollfd waiting{listener.get(), POLLIN, 0};
      if (::poll(&waiting, 1, 20) > 0) {
        served.push_back(secure_server(accept_one(listener.get()), make_token(true),
                                       to_frame(Refused{"wrong token"})));
      }
    }
  });
  const std::string endpoint = "127.0.0.1:" + std::to_string(bound_endpoint(listener.get()).port);
  const auto found = open_first_session({endpoint, "127.0.0.1:1"}, make_token(), Hello{},
                                        monotonic_now() + seconds(30));
  ASSERT_FALSE(found.ok());
  EXPECT_EQ(found.error().code, Errc::kRefused) << found.error().detail;
}

TEST(FirstSession, IsLookedForNoLongerByAWorkerThatIsToGo) {
  int asked = 0;
  const auto found = open_first_session({"127.0.0.1:1"}, {}, {}, monotonic_now() + seconds(60),
                                        [&asked] { return ++asked == 2; });
  ASSERT_FALSE(found.ok());
  EXPECT_EQ(found.error().code, Errc::kAborted);
}

}  // namespace
}  // namespace mayfly::elastic
