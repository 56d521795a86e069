// Notices from three clouds' metadata servers and from a file: given in time or far ahead,
// withdrawn, or lost.

#include <gtest/gtest.h>

#include <unistd.h>

#include <algorithm>
#include <condition_variable>
#include <filesystem>
#include <fstream>
#include <mutex>
#include <thread>

#include "cloud_hooks/http/http_client.hpp"
#include "cloud_hooks/notice/notice_watcher.hpp"
#include "tests/integration/cloud_net/fake_cloud.hpp"

namespace mayfly::cloud_hooks {
namespace {

constexpr Duration kHang = seconds(30);  // a wait that takes longer fails the test

std::int64_t now() {
  return static_cast<std::int64_t>(wall_clock_seconds());
}

class NoticeSources : public testing::TestWithParam<const char*> {
 protected:
  void SetUp() override { cloud_.reset(); }

  NoticeSetting setting() {
    return parse_notice_setting(std::string(GetParam()) + ":" + cloud_["metadata"]).value();
  }

  std::unique_ptr<NoticeSource> source() {
    return make_notice_source(setting(), client_, now, [](const std::string&) { return ""; });
  }

  FakeCloud& cloud_ = FakeCloud::get();
  HttpClient client_;
};

/// Records the watcher's callback, for which the test waits.
struct Bell {
  std::mutex mutex;
  std::condition_variable rung_changed;
  std::string reason;

  void ring(const std::string& why) {
    const std::lock_guard lock(mutex);
    reason = why;
    rung_changed.notify_all();
  }
  bool wait() {
    std::unique_lock lock(mutex);
    return rung_changed.wait_for(lock, kHang, [this] { return !reason.empty(); });
  }
};

TEST_P(NoticeSources, TellNoticesAndWithdrawals) {
  const std::unique_ptr<NoticeSource> read = source();
  EXPECT_FALSE(read->look(false).value().has_value());
  cloud_.control("notice", R"({"kind": "preempt", "deadline_s": 100})");
  const Result<Announced> notice = read->look(false);
  ASSERT_TRUE(notice.ok()) << notice.error().detail;
  ASSERT_TRUE(notice.value().has_value());
  EXPECT_LE(notice.value()->time_left, seconds(100));
  EXPECT_GE(notice.value()->time_left, seconds(25));
  cloud_.control("notice", R"({"kind": "withdraw"})");
  EXPECT_FALSE(read->look(false).value().has_value());
}

TEST_P(NoticeSources, RingOnce) {
  Bell bell;
  const NoticeWatcher watcher(setting(), [&](const std::string& why) { bell.ring(why); });
  cloud_.control("notice", R"({"kind": "preempt", "after_s": 0.1})");
  EXPECT_TRUE(bell.wait());
}

TEST_P(NoticeSources, EndAtOnceWhereverTheyWait) {
  cloud_.control("fault", R"({"service": "metadata", "times": 100, "kind": "hang"})");
  Bell bell;
  {
    const NoticeWatcher watcher(setting(), [&](const std::string& why) { bell.ring(why); });
    while (cloud_.requests("metadata", "*") == 0) {
      std::this_thread::yield();
    }
  }
  EXPECT_TRUE(bell.reason.empty());
}

TEST_P(NoticeSources, ServersThatTalkNonsenseSayNothing) {
  for (const char* rule : {R"("kind": "garbage")", R"("kind": "status", "status": 500)",
                           R"("kind": "huge")", R"("kind": "redirect")", R"("kind": "close")"}) {
    cloud_.reset();
    cloud_.control("fault", std::string(R"({"service": "metadata", "times": 100, )") + rule + "}");
    const std::unique_ptr<NoticeSource> read = source();
    const Result<Announced> nonsense = read->look(false);
    EXPECT_FALSE(nonsense.ok()) << rule;
    cloud_.control("clear_faults");
    EXPECT_FALSE(source()->look(false).value().has_value()) << "and it can be read afterwards";
  }
  EXPECT_EQ(cloud_.requests("trap", "*"), 0);
}

INSTANTIATE_TEST_SUITE_P(Clouds, NoticeSources,
                         testing::Values("gce", "ec2", "ec2-rebalance", "azure"),
                         [](const auto& instance) {
                           std::string name = instance.param;
                           std::replace(name.begin(), name.end(), '-', '_');
                           return name;
                         });

class NoticeTest : public testing::Test {
 protected:
  void SetUp() override { cloud_.reset(); }

  FakeCloud& cloud_ = FakeCloud::get();
  HttpClient client_;
};

TEST_F(NoticeTest, GceHearsOfAChangeInARequestThatHangs) {
  const auto read = make_notice_source(parse_notice_setting("gce:" + cloud_["metadata"]).value(),
                                       client_, now, [](const std::string&) { return ""; });
  EXPECT_FALSE(read->look(true).value().has_value()) << "the first one does not wait";
  cloud_.control("notice", R"({"kind": "preempt", "after_s": 0.2})");
  EXPECT_TRUE(read->look(true).value().has_value());
  EXPECT_EQ(cloud_.requests("metadata", "preempted"), 2) << "nobody asked again and again";
}

TEST_F(NoticeTest, Ec2RenewsItsTokenAndTellsRecommendationsOnlyIfAsked) {
  const auto with =
      make_notice_source(parse_notice_setting("ec2-rebalance:" + cloud_["metadata"]).value(),
                         client_, now, [](const std::string&) { return ""; });
  const auto without = make_notice_source(parse_notice_setting("ec2:" + cloud_["metadata"]).value(),
                                          client_, now, [](const std::string&) { return ""; });
  cloud_.control("notice", R"({"kind": "rebalance"})");
  EXPECT_TRUE(with->look(false).value().has_value());
  EXPECT_FALSE(without->look(false).value().has_value());
  EXPECT_EQ(cloud_.requests("metadata", "api/token"), 2);
  cloud_.control("forget_imds_tokens");
  EXPECT_FALSE(without->look(false).value().has_value());
  EXPECT_EQ(cloud_.requests("metadata", "api/token"), 3);
}

TEST_F(NoticeTest, AzureTellsEachMachineItsOwnEventsOnly) {
  const auto read = make_notice_source(parse_notice_setting("azure:" + cloud_["metadata"]).value(),
                                       client_, now, [](const std::string&) { return ""; });
  cloud_.control("notice", R"({"kind": "preempt", "resources": ["somebody"]})");
  EXPECT_FALSE(read->look(false).value().has_value());
}

TEST_F(NoticeTest, AzureIsToldWhenTheWorkerHasLeftAndNotBefore) {
  Bell bell;
  NoticeWatcher watcher(parse_notice_setting("azure:" + cloud_["metadata"]).value(),
                        [&](const std::string& why) { bell.ring(why); });
  watcher.has_left();
  cloud_.control("notice", R"({"kind": "preempt", "deadline_s": 100})");
  ASSERT_TRUE(bell.wait());
  EXPECT_EQ(cloud_.requests("metadata", "start_event"), 0);
  watcher.has_left();
  watcher.has_left();
  EXPECT_EQ(cloud_.requests("metadata", "start_event"), 1);
  const auto read = make_notice_source(parse_notice_setting("azure:" + cloud_["metadata"]).value(),
                                       client_, now, [](const std::string&) { return ""; });
  EXPECT_EQ(read->look(false).value()->time_left, seconds(0)) << "the event has started";
}

TEST_F(NoticeTest, AnEventThatConcernsOthersTooIsLeftToItsTime) {
  Bell bell;
  NoticeWatcher watcher(parse_notice_setting("azure:" + cloud_["metadata"]).value(),
                        [&](const std::string& why) { bell.ring(why); });
  cloud_.control("notice", R"({"kind": "preempt", "resources": ["self", "another"]})");
  ASSERT_TRUE(bell.wait());
  watcher.has_left();
  EXPECT_EQ(cloud_.requests("metadata", "start_event"), 0);
}

TEST_F(NoticeTest, AServerThatRefusesToHearOfTheLeaveHoldsNobodyUp) {
  const auto read = make_notice_source(parse_notice_setting("azure:" + cloud_["metadata"]).value(),
                                       client_, now, [](const std::string&) { return ""; });
  EXPECT_FALSE(read->acknowledge({{}, "", "unknown"}).ok());
  cloud_.control("fault", R"({"service": "metadata", "kind": "close"})");
  EXPECT_FALSE(read->acknowledge({{}, "", "E0"}).ok());
  EXPECT_TRUE(read->acknowledge({{}, "", ""}).ok()) << "nothing to say";
}

TEST_F(NoticeTest, Ec2IsAskedOftenUntilItRefuses) {
  const auto read = make_notice_source(parse_notice_setting("ec2:" + cloud_["metadata"]).value(),
                                       client_, now, [](const std::string&) { return ""; });
  EXPECT_TRUE(read->look(false).ok());
  EXPECT_LE(read->pause(), milliseconds(100));
  cloud_.control("fault", R"({"service": "metadata", "kind": "status", "status": 429})");
  EXPECT_FALSE(read->look(false).ok());
  for (int looks = 0; looks < 3; ++looks) {
    EXPECT_EQ(read->pause(), seconds(1)) << "the server has had enough";
    EXPECT_TRUE(read->look(false).ok());
  }
}

TEST_F(NoticeTest, ARecommendationIsReadOnceASecondAndRememberedBetween) {
  std::int64_t clock = 1000;
  const auto read = make_notice_source(
      parse_notice_setting("ec2-rebalance:" + cloud_["metadata"]).value(), client_,
      [&] { return clock; }, [](const std::string&) { return ""; });
  cloud_.control("notice", R"({"kind": "rebalance"})");
  for (int looks = 0; looks < 3; ++looks) {
    EXPECT_TRUE(read->look(false).value().has_value());
  }
  EXPECT_EQ(cloud_.requests("metadata", "rebalance"), 1);
  cloud_.control("notice", R"({"kind": "withdraw"})");
  clock += 1;
  EXPECT_FALSE(read->look(false).value().has_value());
}

TEST_F(NoticeTest, AFileMayComeAndGoAndComeAgain) {
  const std::string path = testing::TempDir() + "/mayfly-notice-" + std::to_string(getpid());
  const auto read = make_notice_source(parse_notice_setting("file:" + path).value(), client_, now,
                                       [](const std::string&) { return ""; });
  EXPECT_FALSE(read->look(false).value().has_value());
  std::ofstream(path) << "600 maintenance\n";
  EXPECT_GE(read->look(false).value()->time_left, seconds(590));
  std::filesystem::remove(path);
  EXPECT_FALSE(read->look(false).value().has_value());
  Bell bell;
  const NoticeWatcher watcher(parse_notice_setting("file:" + path).value(),
                              [&](const std::string& why) { bell.ring(why); });
  std::ofstream(path) << "10 really\n";
  EXPECT_TRUE(bell.wait());
  std::filesystem::remove(path);
}

}  // namespace
}  // namespace mayfly::cloud_hooks
