// A worker asks several coordinators for the state to start with. Some of them are busy or have no
// state. The answers of a coordinator are tested in checkpoint_receiver_test.cpp.

#include "engine/transfers/better_state.hpp"

#include <gtest/gtest.h>

#include <atomic>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "base/bytes.hpp"
#include "base/unique_fd.hpp"
#include "elastic/net/coordinator_server.hpp"
#include "elastic/net/frame.hpp"
#include "elastic/net/job_token.hpp"
#include "engine/transfers/checkpoint_transfer.hpp"

namespace mayfly::engine {
namespace {

/// A coordinator that gives the answers of a function. If that returns nothing, the coordinator is
/// busy and does not answer.
class Asked final : public elastic::CoordinatorObserver {
 public:
  using Answer = std::function<std::optional<TransferAnswer>()>;

  Asked(const Bytes& token, Answer answer) : answer_(std::move(answer)) {
    elastic::CoordinatorServerOptions options;
    options.token = token;
    options.begins_later = true;  // the test has no members
    server_ = elastic::start_coordinator(std::move(options), *this).value();
  }
  [[nodiscard]] std::string endpoint() const { return server_->endpoint(); }

  void on_note(Instant, const elastic::coordinator_effect::Note&) override {}
  void on_view(Instant, const elastic::View&) override {}
  void on_recovery(const elastic::Recovery&) override {}
  void on_report(MemberId, ByteSpan, Instant) override {}
  elastic::CommandReply on_command(const elastic::Command&) override { return {}; }
  void on_ended(elastic::Outcome, const std::string&) override {}
  void on_transfer(UniqueFd socket, std::string) override {
    const int fd = socket.get();
    if (!elastic::send_message(fd, elastic::Welcome{}, transfer_deadline()).ok() ||
        !receive_frame(fd, kRequestBytesMax).ok()) {
      return;
    }
    if (const std::optional<TransferAnswer> answer = answer_()) {
      (void)send_frame(fd, encode(*answer));
    } else {
      waiting_.push_back(std::move(socket));
    }
  }

 private:
  const Answer answer_;
  std::vector<UniqueFd> waiting_;  // used on the server's thread
  std::unique_ptr<elastic::CoordinatorServer> server_;
};

std::optional<TransferAnswer> knows_of_nothing() {
  return TransferAnswer{};
}

constexpr Duration kAnswerMax = milliseconds(50);

TEST(BetterState, AStandbyDoesNotSpeakForACoordinatorThatHasNoTime) {
  const Bytes token = elastic::make_token();
  std::atomic<int> asked = 0;
  const Asked busy(token, [&asked]() -> std::optional<TransferAnswer> {
    if (++asked < 3) {
      return std::nullopt;
    }
    TransferAnswer answer;
    answer.verdict = TransferAnswer::Verdict::kRefused;
    answer.text = "it has answered";
    return answer;
  });
  const Asked standby(token, knows_of_nothing);
  const auto given = ask_for_better_state(
      {busy.endpoint(), standby.endpoint()}, token, {}, [] { return false; }, kAnswerMax);
  ASSERT_FALSE(given.ok());
  EXPECT_EQ(given.error().detail, "it has answered");
}

TEST(BetterState, ACoordinatorThatIsGoneIsNotWaitedFor) {
  const Bytes token = elastic::make_token();
  auto gone = std::make_unique<Asked>(token, knows_of_nothing);
  const std::string endpoint = gone->endpoint();
  gone.reset();
  const Asked standby(token, knows_of_nothing);
  const auto given = ask_for_better_state(
      {endpoint, standby.endpoint()}, token, {}, [] { return false; }, kAnswerMax);
  ASSERT_TRUE(given.ok()) << given.error().detail;
  EXPECT_FALSE(given.value().has_value());
}

TEST(BetterState, AWorkerThatIsToLeaveWaitsForNobody) {
  const Bytes token = elastic::make_token();
  const Asked busy(token, [] { return std::optional<TransferAnswer>(); });
  const auto given = ask_for_better_state(
      {busy.endpoint()}, token, {}, [] { return true; }, kAnswerMax);
  ASSERT_TRUE(given.ok()) << given.error().detail;
  EXPECT_FALSE(given.value().has_value());
}

}  // namespace
}  // namespace mayfly::engine
