// A worker's connection to a shard whose messages the test writes: the worker requests states,
// gives requests up and repeats them.

#include "collectives/parameter_server/shard_clients.hpp"

#include <gtest/gtest.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <memory>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "base/net/sockets.hpp"
#include "base/net/wake_up.hpp"
#include "collectives/parameter_server/message_stream.hpp"
#include "collectives/parameter_server/shard.hpp"
#include "collectives/tcp/tcp_address.hpp"

namespace mayfly::parameter_server {
namespace {

constexpr std::size_t kStateElements = std::size_t{1} << 19;
constexpr std::size_t kStateBytes = 2 * kStateElements * sizeof(float);  // 4 MiB
constexpr std::byte kPoison{0xee};
constexpr Duration kMoment = milliseconds(1);

/// The state of a version; the bytes of versions differ, and none is kPoison or zero.
Bytes pattern_of(std::uint64_t version) {
  Bytes bytes(kStateBytes);
  for (std::size_t i = 0; i < bytes.size(); ++i) {
    bytes[i] = static_cast<std::byte>(1 + (i / 4 * version + i) % 200);
  }
  return bytes;
}

/// The bytes of a kState message with pattern_of(version).
Bytes state_of(std::uint64_t version, std::uint64_t question) {
  Header header;
  header.type = MessageType::kState;
  header.version = version;
  header.slice = 2 * version;
  header.prefix = header.slice - 1;
  header.question = question;
  header.payload_bytes = kStateBytes;
  seal(header);
  const auto raw = std::as_bytes(std::span(&header, 1));
  Bytes bytes(raw.begin(), raw.end());
  const Bytes pattern = pattern_of(version);
  bytes.insert(bytes.end(), pattern.begin(), pattern.end());
  return bytes;
}

ByteSpan half_of(const Bytes& message) {
  return ByteSpan(message).first(kHeaderBytes + kStateBytes / 2);
}

ByteSpan rest_of(const Bytes& message) {
  return ByteSpan(message).subspan(kHeaderBytes + kStateBytes / 2);
}

ByteSpan header_in(const Bytes& message) {
  return ByteSpan(message).first(kHeaderBytes);
}

ByteSpan payload_in(const Bytes& message) {
  return ByteSpan(message).subspan(kHeaderBytes);
}

class ShardClientsTest : public testing::Test {
 protected:
  void SetUp() override {
    const std::string name = "@mayfly-shard-clients-" + std::to_string(::getpid());
    Result<UniqueFd> listener = listen_unix(name);
    if (!listener.ok()) {
      GTEST_SKIP() << "no Unix-domain sockets here";
    }
    listener_ = std::move(listener).value();
    const collectives::TcpAddress address{"127.0.0.1", 1, name, collectives::this_host_id()};
    ShardClientsOptions options;
    options.self = MemberId{1};
    options.addresses = {collectives::to_string(address)};
    options.elements = {kStateElements};
    options.share_memory = false;
    options.wake = &wake_;
    options.on_unreachable = [this](std::uint32_t, ConnectionFault fault) {
      faults_.push_back(fault);
    };
    clients_ = ShardClients::make(options, flow_, [this](std::uint32_t, bool) -> PayloadTarget {
                 return {std::span(buffers_[present_]), {}};
               }).value();
    clients_->set_view(ViewId{1}, 7);
    welcome();
  }

  /// Accepts a new connection of the worker, and welcomes it.
  void welcome() {
    UniqueFd fd;
    turn_until([&] {
      fd = accept_one(listener_.get());
      return fd.valid();
    });
    shard_ = std::make_unique<MessageStream>(std::move(fd), 0);
    hellos_ = 0;
    turn_until([this] { return hellos_ == 1; });
    Header header;
    header.type = MessageType::kWelcome;
    shard_->send(header);
    ASSERT_TRUE(shard_->flush().ok());
  }

  template <typename Condition>
  void turn_until(const Condition& condition) {
    const Instant deadline = monotonic_now() + seconds(60);
    while (!condition()) {
      ASSERT_LT(monotonic_now(), deadline);
      clients_->wait(monotonic_now() + kMoment);
      if (shard_ != nullptr) {
        hear();
      }
    }
  }

  /// Receives the worker's messages as the shard.
  void hear() {
    EXPECT_TRUE(shard_
                    ->receive([](const Header&) { return Result<PayloadTarget>(PayloadTarget{}); },
                              [this](const Header& header) {
                                hellos_ += header.type == MessageType::kHello ? 1 : 0;
                                if (header.type == MessageType::kStatePull) {
                                  questions_.push_back(header.question);
                                }
                                return Result<void>();
                              })
                    .ok());
  }

  /// The number of the question in the nth pull of the state that the shard receives.
  std::uint64_t question(std::size_t nth) {
    turn_until([&] { return questions_.size() >= nth; });
    return questions_.size() >= nth ? questions_[nth - 1] : 0;
  }

  /// Sends `bytes` as the shard; the worker reads all of them.
  void say(ByteSpan bytes) {
    turn_until([&] {
      bytes = bytes.subspan(send_some(shard_->fd(), bytes.data(), bytes.size()).bytes);
      return bytes.empty();
    });
    for (int turn = 0; turn < 8; ++turn) {  // one reads 1 MiB, and the socket holds less
      clients_->wait(monotonic_now());
    }
  }

  UniqueFd listener_;
  const WakeUp wake_;
  WorkerFlow flow_{1};
  std::array<Bytes, 2> buffers_ = {Bytes(kStateBytes, kPoison), Bytes(kStateBytes, kPoison)};
  std::size_t present_ = 0;  // the buffer for states
  std::unique_ptr<ShardClients> clients_;
  std::unique_ptr<MessageStream> shard_;
  std::size_t hellos_ = 0;
  std::vector<std::uint64_t> questions_;
  std::vector<ConnectionFault> faults_;
};

TEST_F(ShardClientsTest, AStateThatIsAskedForAgainIsTheAnswerToThat) {
  clients_->pull_states();
  const Bytes first = state_of(1, question(1));
  say(half_of(first));
  ASSERT_TRUE(std::ranges::equal(std::span(buffers_[0]).first(kStateBytes / 2),
                                 payload_in(first).first(kStateBytes / 2)));

  present_ = 1;
  clients_->pull_states();
  std::ranges::fill(buffers_[0], kPoison);  // as if it had a new owner
  const Bytes second = state_of(2, question(2));
  say(rest_of(first));
  EXPECT_FALSE(clients_->states_arrived()) << "half of an answer that was given up";
  EXPECT_EQ(buffers_[0], Bytes(kStateBytes, kPoison)) << "it is not used any more";

  say(second);
  const std::optional<std::vector<StateVersion>> versions = clients_->states_arrived();
  ASSERT_TRUE(versions);
  EXPECT_EQ(versions->front(), (StateVersion{2, 4, 3}));
  EXPECT_EQ(buffers_[1], pattern_of(2));
  EXPECT_EQ(buffers_[0], Bytes(kStateBytes, kPoison));
}

TEST_F(ShardClientsTest, AStateWhoseHeaderCameBeforeTheQuestionIsNoAnswer) {
  const Bytes early = state_of(1, 0);
  say(header_in(early));
  clients_->pull_states();
  const Bytes answer = state_of(2, question(1));
  say(payload_in(early));
  EXPECT_FALSE(clients_->states_arrived()) << "it was thrown away";

  say(answer);
  const std::optional<std::vector<StateVersion>> versions = clients_->states_arrived();
  ASSERT_TRUE(versions);
  EXPECT_EQ(versions->front(), (StateVersion{2, 4, 3}));
  EXPECT_EQ(buffers_[0], pattern_of(2));
}

TEST_F(ShardClientsTest, AnAnswerThatHasNotBegunWhenItIsGivenUpIsThrownAway) {
  clients_->pull_states();
  const Bytes first = state_of(1, question(1));
  clients_->pull_states();
  const Bytes second = state_of(2, question(2));
  say(first);
  EXPECT_FALSE(clients_->states_arrived());
  EXPECT_EQ(buffers_[0], Bytes(kStateBytes, kPoison));
  say(second);
  EXPECT_TRUE(clients_->states_arrived());
  EXPECT_EQ(buffers_[0], pattern_of(2));
}

TEST_F(ShardClientsTest, AStateIsAskedForAgainOverANewConnection) {
  clients_->pull_states();
  say(half_of(state_of(1, question(1))));
  shard_.reset();
  welcome();
  const Bytes again = state_of(1, question(2));
  EXPECT_EQ(questions_[1], questions_[0]) << "the same fetch";
  say(again);
  EXPECT_TRUE(clients_->states_arrived());
  EXPECT_EQ(buffers_[0], pattern_of(1));
}

TEST_F(ShardClientsTest, AConnectionThatBreaksAfterALongTimeIsMadeAgainBeforeItIsReported) {
  const Instant old = monotonic_now() + milliseconds(5200);  // a new connection may take 5 s
  turn_until([&] { return monotonic_now() >= old; });
  shard_.reset();
  std::this_thread::sleep_for(milliseconds(300));  // the worker computes
  welcome();
  EXPECT_EQ(faults_, std::vector<ConnectionFault>{});
}

TEST_F(ShardClientsTest, EveryPartOfAStateIsProgress) {
  clients_->pull_states();
  const Bytes state = state_of(1, question(1));
  const Instant begun = monotonic_now();
  EXPECT_LT(clients_->state_received_at(), begun);
  say(half_of(state));
  const Instant half = clients_->state_received_at();
  EXPECT_GE(half, begun);
  clients_->wait(monotonic_now());
  EXPECT_EQ(clients_->state_received_at(), half) << "nothing came";
  const Instant repeated = monotonic_now();
  clients_->pull_states();
  say(rest_of(state));
  EXPECT_GE(clients_->state_received_at(), repeated) << "of what is thrown away, too";
}

class StillState final : public ShardState {
 public:
  void apply(std::span<const SliceGradient> /*slices*/, const Update& /*update*/) override {}
  [[nodiscard]] std::span<const float> values() const override { return values_; }
  [[nodiscard]] std::span<const float> momentum() const override { return momentum_; }

 private:
  std::vector<float> values_ = std::vector<float>(16, 1.0F);
  std::vector<float> momentum_ = std::vector<float>(16, 2.0F);
};

TEST(ShardClients, AShardRepeatsTheNumberOfTheQuestion) {
  JobLength length;
  length.last_step = 6;
  const SyncPlan plan = parse_phases("bsp", length).value();
  StillState state;
  ShardListener listener;
  const auto shard = Shard::start({}, plan, state, listener).value();
  shard->set_view({ViewId{1}, 7, {MemberId{1}}});
  const WakeUp wake;
  ShardClientsOptions options;
  options.self = MemberId{1};
  options.addresses = {shard->address()};
  options.elements = {16};
  options.wake = &wake;
  WorkerFlow flow(1);
  std::vector<float> got(32);
  const auto clients = ShardClients::make(options, flow, [&](std::uint32_t, bool) -> PayloadTarget {
                         return {std::as_writable_bytes(std::span(got)), {}};
                       }).value();
  clients->set_view(ViewId{1}, 7);
  for (int fetch = 0; fetch < 3; ++fetch) {
    std::ranges::fill(got, 0.0F);
    clients->pull_states();
    clients->pull_states();  // gives the first request up
    const Instant deadline = monotonic_now() + seconds(60);
    bool is_there = false;
    while (!is_there && monotonic_now() < deadline) {
      clients->wait(monotonic_now() + kMoment);
      is_there = clients->states_arrived().has_value();
    }
    ASSERT_TRUE(is_there);
    EXPECT_EQ(got.front(), 1.0F);
    EXPECT_EQ(got.back(), 2.0F);
  }
}

}  // namespace
}  // namespace mayfly::parameter_server
