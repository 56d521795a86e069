#include "benchmarks/ranks/control_hub.hpp"

#include <gmock/gmock.h>

#include <csignal>
#include <filesystem>
#include <thread>

namespace mayfly::bench {
namespace {

Instant hub_deadline() {
  return monotonic_now() + seconds(60);
}

class ControlHubTest : public ::testing::Test {
 protected:
  ControlHubTest() : hub_(ControlHub::open().value()) {}
  LineSocket connect() { return LineSocket::connect(hub_->path()).value(); }
  std::unique_ptr<ControlHub> hub_;
};

TEST_F(ControlHubTest, HearsAndAnswersEachConnection) {
  LineSocket a = connect();
  LineSocket b = connect();
  ASSERT_TRUE(a.send("hello a").ok());
  const ControlHub::Message first = hub_->next(hub_deadline()).value();
  EXPECT_EQ(first.line, "hello a");
  ASSERT_TRUE(b.send("hello b").ok());
  const ControlHub::Message second = hub_->next(hub_deadline()).value();
  EXPECT_EQ(second.line, "hello b");
  EXPECT_NE(first.connection, second.connection);
  ASSERT_TRUE(hub_->send(second.connection, "join 1").ok());
  EXPECT_EQ(b.receive(hub_deadline()).value(), "join 1");
}

TEST_F(ControlHubTest, SaysWhenAConnectionEnds) {
  std::optional<LineSocket> a = connect();
  ASSERT_TRUE(a->send("hello").ok());
  const std::size_t id = hub_->next(hub_deadline()).value().connection;
  a.reset();
  const ControlHub::Message last = hub_->next(hub_deadline()).value();
  EXPECT_EQ(last.connection, id);
  EXPECT_TRUE(last.gone);
  EXPECT_EQ(hub_->send(id, "anybody?").error().code, Errc::kPeerLost);
}

TEST_F(ControlHubTest, SilenceEndsAtTheDeadline) {
  EXPECT_EQ(hub_->next(monotonic_now() + milliseconds(2)).error().code, Errc::kDeadline);
}

TEST_F(ControlHubTest, SignalEndsTheWaitAndNotTheProcess) {
  ::raise(SIGINT);
  EXPECT_EQ(hub_->next(hub_deadline()).error().code, Errc::kAborted);
}

TEST_F(ControlHubTest, ScratchFolderGoesWithIt) {
  const std::string folder = hub_->folder();
  EXPECT_TRUE(std::filesystem::exists(folder));
  hub_.reset();
  EXPECT_FALSE(std::filesystem::exists(folder));
}

/// A hub that is served while stores on other threads use it.
class ControlStoreTest : public ControlHubTest {
 protected:
  ControlStoreTest() : thread_([this] { serve(); }) {}
  ~ControlStoreTest() override {
    over_ = true;
    thread_.join();
  }
  std::unique_ptr<ControlStore> open(const std::string& name) {
    return ControlStore::connect(hub_->path(), name).value();
  }
  static Bytes bytes(std::string_view text) {
    const auto* data = reinterpret_cast<const std::byte*>(text.data());
    return {data, data + text.size()};
  }

 private:
  void serve() {
    while (!over_) {
      (void)hub_->next(monotonic_now() + milliseconds(5));
    }
  }
  std::atomic<bool> over_{false};
  std::thread thread_;
};

TEST_F(ControlStoreTest, KeysAreSharedByStoresOfOneNameOnly) {
  const auto a = open("one");
  const auto b = open("one");
  const auto other = open("two");
  ASSERT_TRUE(a->set("view/1/0", bytes("address")).ok());
  EXPECT_EQ(b->get("view/1/0", hub_deadline()).value(), bytes("address"));
  EXPECT_EQ(other->get("view/1/0", monotonic_now() + milliseconds(20)).error().code,
            Errc::kDeadline);
}

TEST_F(ControlStoreTest, GetWaitsForTheKeyAndMayBeAskedAgain) {
  const auto a = open("one");
  const auto b = open("one");
  EXPECT_EQ(b->get("key", monotonic_now() + milliseconds(5)).error().code, Errc::kDeadline);
  ASSERT_TRUE(a->set("key", bytes("")).ok());
  EXPECT_EQ(b->get("key", hub_deadline()).value(), Bytes{});
  ASSERT_TRUE(a->set("other", bytes("\x01\xff")).ok());
  EXPECT_EQ(b->get("other", hub_deadline()).value(), bytes("\x01\xff"));
}

TEST_F(ControlStoreTest, LateAnswerToAnOldQuestionIsPassedOver) {
  const auto a = open("one");
  const auto b = open("one");
  EXPECT_EQ(b->get("old", monotonic_now() + milliseconds(5)).error().code, Errc::kDeadline);
  ASSERT_TRUE(a->set("old", bytes("x")).ok());
  ASSERT_TRUE(a->set("new", bytes("y")).ok());
  EXPECT_EQ(b->get("new", hub_deadline()).value(), bytes("y"));
}

}  // namespace
}  // namespace mayfly::bench
