#include "cloud_hooks/http/http_sender.hpp"

#include <gtest/gtest.h>

#include <deque>

namespace mayfly::cloud_hooks {
namespace {

/// Answers with the given statuses one after the other, and records the pauses before retries.
class Scripted final : public HttpSender {
 public:
  explicit Scripted(std::deque<int> statuses) : statuses_(std::move(statuses)) {}

  Result<HttpResponse> send(const HttpRequest&, const HttpLimits&) override {
    const int status = statuses_.front();
    statuses_.pop_front();
    if (status == 0) {
      return Error{Errc::kDeadline, "scripted"};
    }
    return HttpResponse{status, {}, ""};
  }
  bool pause(Duration length) override {
    pauses.push_back(length);
    return !aborted_;
  }
  void abort() override { aborted_ = true; }

  std::vector<Duration> pauses;

 private:
  std::deque<int> statuses_;
  bool aborted_ = false;
};

std::optional<Duration> again_unless_200(const Result<HttpResponse>& answer) {
  return answer.ok() && answer.value().status == 200 ? std::nullopt : std::optional<Duration>(0);
}

Result<HttpResponse> send_all(Scripted& sender, int& made,
                              std::optional<Duration> (*again)(const Result<HttpResponse>&)) {
  return send_with_retries(
      sender, {},
      [&]() -> Result<HttpRequest> {
        ++made;
        return HttpRequest{};
      },
      again);
}

TEST(Retries, EndWithTheFirstFinalAnswer) {
  Scripted sender({503, 0, 200, 503});
  int made = 0;
  const Result<HttpResponse> answer = send_all(sender, made, again_unless_200);
  ASSERT_TRUE(answer.ok());
  EXPECT_EQ(answer.value().status, 200);
  EXPECT_EQ(made, 3) << "a new request each time, as signatures carry a time";
  EXPECT_EQ(sender.pauses, (std::vector<Duration>{milliseconds(250), milliseconds(500)}));
}

TEST(Retries, AreBounded) {
  Scripted sender({503, 0, 500, 200});
  int made = 0;
  const Result<HttpResponse> answer = send_all(sender, made, again_unless_200);
  ASSERT_TRUE(answer.ok());
  EXPECT_EQ(answer.value().status, 500);
}

TEST(Retries, WaitAsLongAsTheServerSaysButNotForever) {
  Scripted patient({503, 200});
  int made = 0;
  const auto two_seconds = [](const Result<HttpResponse>& answer) {
    return answer.value().status == 200 ? std::nullopt : std::optional<Duration>(seconds(2));
  };
  EXPECT_EQ(send_all(patient, made, two_seconds).value().status, 200);
  EXPECT_EQ(patient.pauses, (std::vector<Duration>{seconds(2)}));
  Scripted asked_too_much({503, 200});
  const auto an_hour = [](const Result<HttpResponse>&) {
    return std::optional<Duration>(seconds(3600));
  };
  EXPECT_EQ(send_all(asked_too_much, made, an_hour).value().status, 503);
  EXPECT_TRUE(asked_too_much.pauses.empty());
}

TEST(Retries, EndWithAnAbort) {
  Scripted sender({503, 200});
  sender.abort();
  int made = 0;
  EXPECT_EQ(send_all(sender, made, again_unless_200).value().status, 503);
}

}  // namespace
}  // namespace mayfly::cloud_hooks
