#include "cloud_hooks/notice/notice.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <string>

#include "cloud_hooks/http/http_sender.hpp"
#include "cloud_hooks/notice/notice_watcher.hpp"

namespace mayfly::cloud_hooks {
namespace {

constexpr std::int64_t kNow = 1440938160;  // 2015-08-30T12:36:00Z

TEST(GceNotice, IsTrueOrFalse) {
  EXPECT_FALSE(parse_gce_preempted("FALSE\n").value().has_value());
  EXPECT_EQ(parse_gce_preempted("TRUE").value()->time_left, seconds(30));
  for (const char* text : {"", "true", "<html>", "TRUEFALSE"}) {
    EXPECT_FALSE(parse_gce_preempted(text).ok()) << text;
  }
}

TEST(Ec2Notice, HasAnActionAndATime) {
  const Announced notice =
      parse_ec2_action(R"({"action": "terminate", "time": "2015-08-30T12:38:00Z"})", kNow).value();
  ASSERT_TRUE(notice.has_value());
  EXPECT_EQ(notice->time_left, seconds(120));
  EXPECT_NE(notice->detail.find("terminate"), std::string::npos);
  const Announced late =
      parse_ec2_action(R"({"action": "stop", "time": "2015-08-30T12:00:00Z"})", kNow).value();
  EXPECT_EQ(late->time_left, seconds(0)) << "a time that has passed is now";
  for (const char* text : {"", "[]", "{}", R"({"action": "terminate"})",
                           R"({"action": "dance", "time": ")"
                           R"(2015-08-30T12:38:00Z"})",
                           R"({"action": "stop", "time": "soon"})"}) {
    EXPECT_FALSE(parse_ec2_action(text, kNow).ok()) << text;
  }
}

TEST(Ec2Notice, ARecommendationIsOneToo) {
  EXPECT_TRUE(parse_ec2_rebalance(R"({"noticeTime": "2015-08-30T12:38:00Z"})").value());
  EXPECT_FALSE(parse_ec2_rebalance("{}").ok());
}

std::string azure(const std::string& events) {
  return R"({"DocumentIncarnation": 2, "Events": [)" + events + "]}";
}

std::string azure_event(const std::string& type, const std::string& resource,
                        const std::string& not_before, const std::string& status = "Scheduled") {
  return R"({"EventId": "1", "EventType": ")" + type + R"(", "Resources": ["other", ")" + resource +
         R"("], "EventStatus": ")" + status + R"(", "NotBefore": ")" + not_before + "\"}";
}

TEST(AzureNotice, IsTheFirstEventThatEndsThisMachinesWork) {
  const std::string in_a_minute = "Sun, 30 Aug 2015 12:37:00 GMT";
  const std::string in_ten = "Sun, 30 Aug 2015 12:46:00 GMT";
  EXPECT_FALSE(parse_azure_events(azure(""), "vm", kNow).value());
  EXPECT_FALSE(
      parse_azure_events(azure(azure_event("Preempt", "their", in_ten)), "vm", kNow).value())
      << "the whole set hears of it";
  EXPECT_FALSE(parse_azure_events(azure(azure_event("Freeze", "vm", in_ten)), "vm", kNow).value())
      << "a pause of seconds";
  EXPECT_FALSE(
      parse_azure_events(azure(azure_event("Preempt", "vm", in_ten, "Canceled")), "vm", kNow)
          .value());
  const Announced notice = parse_azure_events(azure(azure_event("Terminate", "vm", in_ten) + "," +
                                                    azure_event("Preempt", "vm", in_a_minute)),
                                              "vm", kNow)
                               .value();
  ASSERT_TRUE(notice.has_value());
  EXPECT_EQ(notice->time_left, seconds(60));
  EXPECT_NE(notice->detail.find("Preempt"), std::string::npos);
  EXPECT_EQ(
      parse_azure_events(azure(azure_event("Reboot", "vm", "")), "vm", kNow).value()->time_left,
      seconds(0))
      << "it has begun";
  for (const std::string& text : {std::string(), std::string("{}"), azure("7"),
                                  azure(azure_event("Preempt", "vm", "tomorrow"))}) {
    EXPECT_FALSE(parse_azure_events(text, "vm", kNow).ok()) << text;
  }
}

TEST(AzureNotice, NamesTheEventIfItIsThisMachinesAlone) {
  const std::string alone = R"({"EventId": "A-1", "EventType": "Preempt", "Resources": ["vm"],)"
                            R"( "EventStatus": "Scheduled", "NotBefore": ""})";
  EXPECT_EQ(parse_azure_events(azure(alone), "vm", kNow).value()->event_id, "A-1");
  EXPECT_EQ(
      parse_azure_events(azure(azure_event("Preempt", "vm", "")), "vm", kNow).value()->event_id, "")
      << "whoever says that it may start says so for all";
}

TEST(FileNotice, MayNameSecondsAndAReason) {
  EXPECT_EQ(parse_notice_file("").value(), (Notice{{}, "announced by the notice file"}));
  EXPECT_EQ(parse_notice_file("90 the window closes\n").value(),
            (Notice{seconds(90), "the window closes"}));
  EXPECT_EQ(parse_notice_file(" 5\n").value(),
            (Notice{seconds(5), "announced by the notice file"}));
  for (const char* text : {"-1", "soon", "5x", "99999999999999999999"}) {
    EXPECT_FALSE(parse_notice_file(text).ok()) << text;
  }
}

TEST(NoticeSetting, NamesASource) {
  using Kind = NoticeSetting::Kind;
  EXPECT_EQ(parse_notice_setting("").value().kind, Kind::kNone);
  EXPECT_EQ(parse_notice_setting("none").value().kind, Kind::kNone);
  EXPECT_EQ(parse_notice_setting("ec2-rebalance").value().kind, Kind::kEc2Rebalance);
  EXPECT_EQ(parse_notice_setting("file:/a:b").value().place, "/a:b");
  EXPECT_EQ(parse_notice_setting("azure:http://127.0.0.1:8").value().place, "http://127.0.0.1:8");
  for (const char* text : {"file:", "file", "gcp", "gce:", "gce:127.0.0.1:8", "ec2:ftp://a"}) {
    EXPECT_FALSE(parse_notice_setting(text).ok()) << text;
  }
}

constexpr Instant kStart{1'000'000'000'000};

TEST(NoticeWatch, LeavesAtOnceIfTheEndIsNear) {
  NoticeWatch watch;
  EXPECT_FALSE(watch.update(kStart, std::nullopt).has_value());
  EXPECT_FALSE(watch.leave_at().has_value());
  EXPECT_TRUE(watch.update(kStart, Notice{seconds(30), "x"}).has_value());
  EXPECT_EQ(watch.leave_at(), kStart);
  EXPECT_EQ(watch.reason(), "x");
}

TEST(NoticeWatch, StaysWhileTheEndIsFarAndANoticeMayBeWithdrawn) {
  NoticeWatch watch;
  EXPECT_TRUE(watch.update(kStart, Notice{seconds(900), "x"}).has_value());
  EXPECT_EQ(watch.leave_at(), kStart + seconds(780));
  EXPECT_FALSE(watch.update(kStart + seconds(2), Notice{seconds(898), "x"}).has_value())
      << "nothing new to log";
  EXPECT_EQ(watch.leave_at(), kStart + seconds(780));
  EXPECT_TRUE(watch.update(kStart + seconds(4), std::nullopt).has_value());
  EXPECT_FALSE(watch.leave_at().has_value());
  EXPECT_FALSE(watch.update(kStart + seconds(6), std::nullopt).has_value());
}

/// Answers like Azure without events, and records the longest time that its callers allowed.
class PatienceNoted final : public HttpSender {
 public:
  Result<HttpResponse> send(const HttpRequest&, const HttpLimits& limits) override {
    most = std::max(most, limits.answer_max);
    return HttpResponse{200, {}, R"({"Events": []})"};
  }
  bool pause(Duration) override { return true; }
  void abort() override {}

  Duration most{};
};

TEST(AzureSource, IsNotWaitedForWhileThereIsANotice) {
  PatienceNoted sender;
  const auto source = make_notice_source(
      parse_notice_setting("azure").value(), sender, [] { return kNow; },
      [](const std::string&) { return std::string(); });
  EXPECT_TRUE(source->look(false).ok());
  EXPECT_LE(sender.most, seconds(10)) << "a worker that is to leave at a time would be late";
  EXPECT_TRUE(source->look(true).ok());
  EXPECT_GT(sender.most, seconds(120)) << "the first answer may take so long";
}

/// Refuses every request, and records their addresses.
class AddressesNoted final : public HttpSender {
 public:
  Result<HttpResponse> send(const HttpRequest& request, const HttpLimits&) override {
    seen.push_back(request.url.text());
    return HttpResponse{404, {}, ""};
  }
  bool pause(Duration) override { return true; }
  void abort() override {}

  std::vector<std::string> seen;
};

TEST(Ec2Source, TakesAnEndpointAsAwsToolsDo) {
  AddressesNoted sender;
  const auto source = make_notice_source(
      parse_notice_setting("ec2").value(), sender, [] { return kNow; },
      [](const std::string& name) {
        return std::string(name == "AWS_EC2_METADATA_SERVICE_ENDPOINT" ? "http://127.0.0.1:8/"
                                                                       : "");
      });
  (void)source->look(true);
  ASSERT_FALSE(sender.seen.empty());
  EXPECT_EQ(sender.seen[0], "http://127.0.0.1:8/latest/api/token") << "not //latest, which is 404";
}

TEST(NoticeWatch, FollowsANoticeThatMoves) {
  NoticeWatch watch;
  (void)watch.update(kStart, Notice{seconds(900), "x"});
  (void)watch.update(kStart + seconds(2), Notice{seconds(60), "x"});
  EXPECT_EQ(watch.leave_at(), kStart + seconds(2));
}

}  // namespace
}  // namespace mayfly::cloud_hooks
