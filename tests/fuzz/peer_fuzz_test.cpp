// Data from other processes: a coordinator's first messages, a worker's proof, hellos and data of
// members, shared memory.

#include <gtest/gtest.h>
#include <sys/socket.h>

#include <array>
#include <cstring>
#include <thread>

#include "base/aligned_buffer.hpp"
#include "base/net/sockets.hpp"
#include "base/unique_fd.hpp"
#include "collectives/tcp/channel.hpp"
#include "collectives/tcp/exchange.hpp"
#include "collectives/tcp/shm_pipe.hpp"
#include "collectives/tcp/tcp_address.hpp"
#include "collectives/tcp/tcp_handshake.hpp"
#include "elastic/net/frame.hpp"
#include "elastic/net/handshake.hpp"
#include "elastic/net/job_token.hpp"
#include "tests/fuzz/driver.hpp"

namespace mayfly {
namespace {

using fuzz::bytes_of;
using fuzz::text_of;

template <typename T>
Bytes raw_bytes(const T& value) {
  const auto raw = std::as_bytes(std::span(&value, 1));
  return {raw.begin(), raw.end()};
}

Bytes joined(Bytes one, const Bytes& other) {
  one.insert(one.end(), other.begin(), other.end());
  return one;
}

/// A connected pair of sockets. The second one has sent `bytes` and nothing more.
std::array<UniqueFd, 2> connected(ByteSpan bytes) {
  std::array<int, 2> raw{};
  EXPECT_EQ(::socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK, 0, raw.data()), 0);
  std::array<UniqueFd, 2> ends{UniqueFd(raw[0]), UniqueFd(raw[1])};
  (void)send_some(raw[1], bytes.data(), bytes.size());
  ::shutdown(raw[1], SHUT_WR);
  return ends;
}

TEST(PeerFuzz, AnAddressIsUnderstoodOrRefused) {
  const auto read = [](ByteSpan bytes) -> std::string {
    const auto address = collectives::parse_tcp_address(text_of(bytes));
    if (!address.ok()) {
      return address.error().detail;
    }
    const std::string text = collectives::to_string(address.value());
    const auto again = collectives::parse_tcp_address(text);
    EXPECT_TRUE(again.ok()) << text;
    return "an address";
  };
  fuzz::run({"tcp_address",
             {bytes_of("tcp:10.0.0.1:4711"), bytes_of("tcp:[fe80::1]:1"),
              bytes_of("tcp:127.0.0.1:4711;unix:@mayfly-12-0011223344556677;host:abc")},
             read});
}

TEST(PeerFuzz, AHelloIsJudgedOnceItIsCompleteWhateverItSays) {
  const collectives::Hello expected{collectives::kHelloMagic, 7, 99, 2, 0};
  const auto read = [&](ByteSpan bytes) -> std::string {
    auto ends = connected(bytes);
    collectives::Incoming incoming(std::move(ends[0]));
    const bool is_here = incoming.receive() && incoming.receive();
    EXPECT_EQ(incoming.hello().has_value(), bytes.size() >= sizeof expected);
    if (!incoming.hello()) {
      return "incomplete";
    }
    const auto verdict = collectives::judge(*incoming.hello(), expected);
    const bool is_right = std::memcmp(bytes.data() + 8, raw_bytes(expected).data() + 8, 24) == 0;
    EXPECT_EQ(verdict == collectives::Verdict::kWelcome, is_right);
    return verdict ? "verdict " + std::string(static_cast<std::size_t>(*verdict) & 7, 'i')
                   : std::string(is_here ? "waits" : "gone");
  };
  collectives::Hello newer = expected;
  newer.view = 8;
  fuzz::run({"group_hello", {raw_bytes(expected), raw_bytes(newer)}, read, 5'000});
}

TEST(PeerFuzz, AnOperationEndsWhateverTheOtherMemberSends) {
  constexpr std::size_t kCount = 300;
  AlignedBuffer<std::byte> scratch(collectives::kExchangeScratchBytes);
  std::vector<std::int32_t> data(kCount, 1);
  const std::span<std::byte> memory = std::as_writable_bytes(std::span(data));
  const collectives::OperationHeader header{3, 0x5eed};
  const auto read = [&](ByteSpan bytes) -> std::string {
    std::string outcome;
    for (const bool is_one_shot : {true, false}) {
      auto ends = connected(bytes);
      std::vector<collectives::TcpPeer> peers(2);
      peers[1] = {MemberId{2}, collectives::make_socket_channel(std::move(ends[0]))};
      collectives::Operation operation;
      operation.header = header;
      operation.data = memory;
      const auto make =
          is_one_shot ? collectives::make_one_shot_exchange : collectives::make_two_shot_exchange;
      const auto exchange = make(operation, 0, peers, scratch.span());
      for (int pumps = 0; !exchange->complete(); ++pumps) {
        const Result<bool> moved = exchange->pump();
        if (!moved.ok()) {
          outcome += moved.error().detail;
          break;
        }
        if (pumps > 1000) {
          ADD_FAILURE() << "it goes on for ever";
          break;
        }
      }
      outcome += exchange->complete() ? "complete" : "";
    }
    return outcome;
  };
  collectives::OperationHeader other = header;
  other.sequence = 4;
  fuzz::run({"group_data",
             {joined(raw_bytes(header), Bytes(memory.begin(), memory.end())),
              joined(raw_bytes(other), Bytes(40))},
             read,
             5'000});
}

TEST(PeerFuzz, CountersInSharedMemoryAreFollowedWhereTheyCanBeAndNowhereElse) {
  AlignedBuffer<std::byte> memory(collectives::kShmPipeBytes);
  struct Counters {
    std::uint64_t written;
    std::uint64_t read;
    std::uint32_t reader_wants;
    std::uint32_t writer_wants;
  };
  const auto read = [&](ByteSpan bytes) -> std::string {
    Counters said{};
    std::memcpy(&said, bytes.data(), std::min(bytes.size(), sizeof said));
    auto* const header = new (memory.span().data()) collectives::ShmPipeHeader;
    header->written = said.written;
    header->read = said.read;
    header->reader_wants = said.reader_wants;
    header->writer_wants = said.writer_wants;
    collectives::ShmReader reader(memory.span().data());
    const ByteSpan there = reader.peek(1 << 20);
    EXPECT_GE(there.data(), memory.span().data());
    EXPECT_LE(there.data() + there.size(), memory.span().data() + memory.span().size());
    EXPECT_LE(reader.available(), collectives::kShmRingBytes);
    reader.consume(there.size());
    (void)reader.take_writer_alarm();
    (void)reader.arm(1 << 20);
    header->read = said.read;
    collectives::ShmWriter writer(memory.span().data());
    const Bytes data(5000, std::byte{3});
    EXPECT_LE(writer.write(data), data.size());
    (void)writer.take_reader_alarm();
    (void)writer.arm();
    return std::string(reader.broken() ? "broken" : "sane") +
           (writer.broken() ? " broken" : " sane");
  };
  fuzz::run({"shm_counters",
             {raw_bytes(Counters{0, 0, 0, 0}), raw_bytes(Counters{5000, 0, 100, 1 << 17})},
             read});
}

TEST(PeerFuzz, OnlyAProofOfTheTokenLetsAnybodyIn) {
  const Bytes token(elastic::kTokenBytes, std::byte{1});
  const Bytes challenge(elastic::kNonceBytes, std::byte{2});
  elastic::Hello hello;
  hello.nonce = Bytes(elastic::kNonceBytes, std::byte{3});
  hello.proof = elastic::make_proof(token, challenge, hello.nonce, hello.role);
  hello.fingerprint = {{"model", "resnet20"}};
  const auto read = [&](ByteSpan bytes) -> std::string {
    elastic::FrameReader reader(elastic::kUnauthenticatedFrameBytesMax);
    const std::span<std::byte> space = reader.space();
    const std::size_t count = std::min(space.size(), bytes.size());
    std::copy_n(bytes.begin(), count, space.begin());
    reader.filled(count);
    const auto message = reader.next();
    if (!message.ok()) {
      return message.error().detail;
    }
    const auto* said = message.value() ? std::get_if<elastic::Hello>(&*message.value()) : nullptr;
    if (said == nullptr) {
      return message.value() ? elastic::name_of(*message.value()) : "incomplete";
    }
    const auto refusal = elastic::reason_to_refuse(*said, token, challenge);
    const bool is_proof =
        said->nonce == hello.nonce && said->proof == hello.proof && said->role == hello.role;
    EXPECT_TRUE(refusal.has_value() || is_proof);
    return refusal.value_or("welcome");
  };
  elastic::Hello other = hello;
  other.role = elastic::Role::kOperator;
  fuzz::run({"control_hello", {elastic::to_frame(hello), elastic::to_frame(other)}, read});
}

/// Sends `bytes` to each client that connects, and closes.
class FalseCoordinator {
 public:
  FalseCoordinator() : listener_(listen_tcp({"127.0.0.1", 0}).value()) {}
  [[nodiscard]] std::string endpoint() const {
    return "127.0.0.1:" + std::to_string(bound_endpoint(listener_.get()).port);
  }
  /// Answers a connection that the kernel has accepted; the other side already waits for the
  /// answer.
  void answer(ByteSpan bytes) {
    UniqueFd fd;
    while (!fd.valid()) {
      fd = accept_one(listener_.get());
    }
    (void)send_some(fd.get(), bytes.data(), bytes.size());
    ::shutdown(fd.get(), SHUT_WR);
    std::array<std::byte, 4096> heard{};
    while (!receive_some(fd.get(), heard.data(), heard.size()).closed) {
    }
  }

 private:
  UniqueFd listener_;
};

TEST(PeerFuzz, WhateverACoordinatorAnswersAWorkerGetsAVerdictOrAnError) {
  FalseCoordinator coordinator;
  const Bytes token(elastic::kTokenBytes, std::byte{1});
  const auto read = [&](ByteSpan bytes) -> std::string {
    std::thread other([&] { coordinator.answer(bytes); });
    auto answer = elastic::ask_for_admission(coordinator.endpoint(), token, elastic::Hello{},
                                             monotonic_now() + seconds(30));
    std::string outcome = "a verdict";
    if (!answer.ok()) {
      EXPECT_NE(answer.error().code, Errc::kDeadline);
      // Without the address, whose port differs between runs.
      outcome = answer.error().detail.substr(coordinator.endpoint().size());
    }
    answer = Error{Errc::kIo, "closed"};  // so that the other side hears the end, too
    other.join();
    return outcome;
  };
  const Bytes challenge = elastic::to_frame(elastic::Challenge{Bytes(32, std::byte{5})});
  fuzz::run({"coordinator_words",
             {joined(challenge, elastic::to_frame(elastic::Welcome{MemberId{3}})),
              joined(challenge, elastic::to_frame(elastic::Refused{"wrong token"}))},
             read,
             150});
}

}  // namespace
}  // namespace mayfly
