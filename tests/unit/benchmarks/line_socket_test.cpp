#include "benchmarks/ranks/line_socket.hpp"

#include <gtest/gtest.h>
#include <sys/socket.h>

#include <array>

namespace mayfly::bench {
namespace {

TEST(LineBuffer, GivesLinesWhateverTheChunks) {
  LineBuffer buffer;
  buffer.append("one\ntw");
  EXPECT_EQ(buffer.next(), "one");
  EXPECT_EQ(buffer.next(), std::nullopt);
  buffer.append("o\n\nthree");
  EXPECT_EQ(buffer.next(), "two");
  EXPECT_EQ(buffer.next(), "");
  EXPECT_EQ(buffer.next(), std::nullopt);
  buffer.append("\n");
  EXPECT_EQ(buffer.next(), "three");
}

TEST(Words, AreWhatSpacesSeparate) {
  EXPECT_EQ(words_of("cell 4096 fp32"), (std::vector<std::string>{"cell", "4096", "fp32"}));
  EXPECT_EQ(words_of("quit"), std::vector<std::string>{"quit"});
  EXPECT_TRUE(words_of("").empty());
}

TEST(Words, RestOfLineKeepsItsSpaces) {
  EXPECT_EQ(rest_of_line("failed io no such file", 2), "no such file");
  EXPECT_EQ(rest_of_line("ready", 1), "");
  EXPECT_EQ(rest_of_line("ready", 0), "ready");
  EXPECT_EQ(rest_of_line("", 1), "");
}

class LineSocketTest : public ::testing::Test {
 protected:
  LineSocketTest() {
    std::array<int, 2> ends{};
    EXPECT_EQ(::socketpair(AF_UNIX, SOCK_STREAM, 0, ends.data()), 0);
    a_.emplace(UniqueFd(ends[0]));
    b_.emplace(UniqueFd(ends[1]));
  }
  std::optional<LineSocket> a_;
  std::optional<LineSocket> b_;
};

TEST_F(LineSocketTest, CarriesLinesBothWays) {
  ASSERT_TRUE(a_->send("hello tcp -1").ok());
  ASSERT_TRUE(b_->send("join 0 2 /tmp/b").ok());
  ASSERT_TRUE(b_->send("quit").ok());
  EXPECT_EQ(b_->receive().value(), "hello tcp -1");
  EXPECT_EQ(a_->receive().value(), "join 0 2 /tmp/b");
  EXPECT_EQ(a_->receive().value(), "quit");
}

TEST_F(LineSocketTest, DeadlineLosesNothing) {
  EXPECT_EQ(b_->receive(monotonic_now()).error().code, Errc::kDeadline);
  ASSERT_TRUE(a_->send("late").ok());
  EXPECT_EQ(b_->receive(monotonic_now()).value(), "late");
}

TEST_F(LineSocketTest, LostPeerIsAnErrorAfterItsLastLine) {
  ASSERT_TRUE(a_->send("last words").ok());
  a_.reset();
  EXPECT_EQ(b_->receive().value(), "last words");
  EXPECT_EQ(b_->receive().error().code, Errc::kPeerLost);
  Result<void> sent = b_->send("anybody there?");
  EXPECT_EQ(sent.error().code, Errc::kPeerLost);
}

TEST(LineSocketConnect, NamesThePathWhereNobodyListens) {
  const Result<LineSocket> socket = LineSocket::connect("/nonexistent/control");
  ASSERT_FALSE(socket.ok());
  EXPECT_NE(socket.error().detail.find("/nonexistent/control"), std::string::npos);
  EXPECT_EQ(LineSocket::connect(std::string(200, 'x')).error().code, Errc::kInvalidInput);
}

}  // namespace
}  // namespace mayfly::bench
