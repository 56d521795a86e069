#include <gmock/gmock.h>
#include <sys/socket.h>
#include <unistd.h>

#include <array>
#include <thread>

#include "engine/launch/rank_channel.hpp"

namespace mayfly::engine {
namespace {

using ::testing::HasSubstr;

/// A launcher that answers each line with the next one of its answers, then closes the connection.
class Launcher {
 public:
  explicit Launcher(std::vector<std::string> answers) {
    std::array<int, 2> ends{};
    EXPECT_EQ(::socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends.data()), 0);
    own_ = UniqueFd(ends[0]);
    rank_ = UniqueFd(ends[1]);
    thread_ = std::thread([this, answers = std::move(answers)] { serve(answers); });
  }
  ~Launcher() { thread_.join(); }

  std::unique_ptr<RankChannel> channel() { return make_pmi_channel(std::move(rank_)); }

 private:
  void serve(const std::vector<std::string>& answers) {
    for (const std::string& answer : answers) {
      char byte = 0;
      while (::read(own_.get(), &byte, 1) == 1 && byte != '\n') {
      }
      // In two pieces: a connection may divide lines anywhere.
      (void)!::write(own_.get(), answer.data(), answer.size() / 2);
      const std::string rest = answer.substr(answer.size() / 2) + "\n";
      (void)!::write(own_.get(), rest.data(), rest.size());
    }
    own_.reset();
  }

  UniqueFd own_;
  UniqueFd rank_;
  std::thread thread_;
};

const std::string kHello = "cmd=response_to_init pmi_version=1 pmi_subversion=1 rc=0";
const std::string kName = "cmd=my_kvsname kvsname=kvs_7_0";

Instant soon() {
  return monotonic_now() + seconds(20);
}

TEST(PmiChannel, ReceivesWhatRank0HasWritten) {
  Launcher launcher({kHello, kName, "cmd=barrier_out", "cmd=get_result rc=0 msg=success value=2",
                     "cmd=get_result rc=0 msg=success value=68690a",
                     "cmd=get_result rc=0 msg=success value=7468", "cmd=finalize_ack"});
  EXPECT_EQ(launcher.channel()->receive(soon()).value(), "hi\nth");
}

TEST(PmiChannel, ALauncherThatHangsUpIsAnError) {
  Launcher launcher({kHello, kName});
  const Result<std::string> received = launcher.channel()->receive(soon());
  ASSERT_FALSE(received.ok());
  EXPECT_EQ(received.error().code, Errc::kIo);
}

TEST(PmiChannel, ARefusalOfTheLauncherIsToldInItsWords) {
  Launcher launcher({kHello, kName, "cmd=put_result rc=-1 msg=no_room", "cmd=finalize_ack"});
  const Result<void> published = launcher.channel()->publish("text");
  ASSERT_FALSE(published.ok());
  EXPECT_THAT(published.error().detail, HasSubstr("msg=no_room"));
}

TEST(PmiChannel, AnythingElseThanOurValueIsRefused) {
  Launcher launcher({kHello, kName, "cmd=barrier_out", "cmd=get_result rc=0 value=1",
                     "cmd=get_result rc=0 value=zz", "cmd=finalize_ack"});
  EXPECT_FALSE(launcher.channel()->receive(soon()).ok());
}

TEST(PmiChannel, RanksThatDoNotComeAreADeadline) {
  std::array<int, 2> ends{};
  ASSERT_EQ(::socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends.data()), 0);
  const UniqueFd silent(ends[0]);
  const std::string lines = kHello + "\n" + kName + "\n";
  ASSERT_EQ(::write(silent.get(), lines.data(), lines.size()), static_cast<ssize_t>(lines.size()));
  const auto channel = make_pmi_channel(UniqueFd(ends[1]));
  const Result<std::string> received = channel->receive(monotonic_now() + milliseconds(50));
  ASSERT_FALSE(received.ok());
  EXPECT_EQ(received.error().code, Errc::kDeadline);
}

TEST(RankChannel, ThereIsNoneWithoutALauncher) {
  EXPECT_EQ(open_rank_channel([](const char*) { return nullptr; }), nullptr);
  for (const char* fd : {"", "x", "-1", "2", "99999", "7x"}) {
    const auto variables = [fd](const char* name) {
      return std::string(name) == "PMI_FD" ? fd : nullptr;
    };
    EXPECT_EQ(open_rank_channel(variables), nullptr) << fd;
  }
}

}  // namespace
}  // namespace mayfly::engine
