#include "base/rejection_log.hpp"

#include <gtest/gtest.h>
#include <sys/socket.h>
#include <unistd.h>

#include <array>

#include "base/unique_fd.hpp"

namespace mayfly {
namespace {

TEST(LineBudget, AFloodWritesTenLinesThenOnePerSecondWithTheNumberLeftOut) {
  LineBudget budget;
  const Instant start = Instant{} + seconds(1000);
  int written = 0;
  for (int i = 0; i < 1000; ++i) {
    written += budget.spend(start).has_value() ? 1 : 0;
  }
  EXPECT_EQ(written, 10);
  EXPECT_EQ(budget.spend(start + milliseconds(999)), std::nullopt);
  EXPECT_EQ(budget.spend(start + seconds(1)), std::optional<std::uint64_t>(991));
  EXPECT_EQ(budget.spend(start + seconds(1)), std::nullopt);
}

TEST(LineBudget, AfterARestNothingIsLeftOut) {
  LineBudget budget;
  const Instant start = Instant{} + seconds(1000);
  for (int i = 0; i < 10; ++i) {
    EXPECT_EQ(budget.spend(start), std::optional<std::uint64_t>(0));
  }
  for (int i = 0; i < 10; ++i) {
    EXPECT_EQ(budget.spend(start + seconds(3600)), std::optional<std::uint64_t>(0));
  }
  EXPECT_EQ(budget.spend(start + seconds(3600)), std::nullopt);
}

TEST(PeerName, NamesTheProcessAtTheOtherEndOnThisHost) {
  std::array<int, 2> raw{};
  ASSERT_EQ(::socketpair(AF_UNIX, SOCK_STREAM, 0, raw.data()), 0);
  const UniqueFd one(raw[0]);
  const UniqueFd other(raw[1]);
  EXPECT_EQ(peer_name(one.get()),
            "process " + std::to_string(::getpid()) + " of user " + std::to_string(::getuid()));
}

TEST(PeerName, OfAnUnconnectedSocketIsSomebody) {
  const UniqueFd fd(::socket(AF_INET, SOCK_STREAM, 0));
  EXPECT_EQ(peer_name(fd.get()), "somebody");
}

}  // namespace
}  // namespace mayfly
