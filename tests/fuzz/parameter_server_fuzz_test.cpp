// Messages that a shard of a parameter server receives from workers, a leader or intruders.

#include <gtest/gtest.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cstring>
#include <memory>
#include <string>
#include <vector>

#include "base/net/sockets.hpp"
#include "base/unique_fd.hpp"
#include "collectives/parameter_server/message.hpp"
#include "collectives/parameter_server/message_stream.hpp"
#include "collectives/parameter_server/shard.hpp"
#include "collectives/parameter_server/shared_slots.hpp"
#include "collectives/tcp/tcp_address.hpp"
#include "tests/fuzz/driver.hpp"

namespace mayfly::parameter_server {
namespace {

constexpr std::uint32_t kFloats = 24;
constexpr std::uint64_t kPayload = kFloats * sizeof(float);
constexpr std::uint64_t kKey = 0x5eed;

SyncPlan plan_of(const char* phases) {
  JobLength length;
  length.last_step = 6;
  length.slices_per_step = 2;
  return parse_phases(phases, length).value();
}

Header header_of(MessageType type) {
  Header header;
  header.type = type;
  header.view = 1;
  header.key = kKey;
  header.worker = 1;
  header.serial = 1;
  header.clock = 1;
  return header;
}

Bytes bytes_of(Header header, bool with_payload = false) {
  header.payload_bytes = with_payload ? kPayload : 0;
  seal(header);
  const auto raw = std::as_bytes(std::span(&header, 1));
  Bytes bytes(raw.begin(), raw.end());
  bytes.resize(kHeaderBytes + header.payload_bytes);
  return bytes;
}

Bytes push_of(std::uint64_t slice) {
  Header push = header_of(MessageType::kPush);
  push.slice = slice;
  push.flags = flags::kAsks | flags::kWantsLease;
  push.wanted = 1;
  push.question = slice + 1;
  push.count = 1;
  return bytes_of(push, true);
}

Bytes joined(std::initializer_list<Bytes> parts) {
  Bytes all;
  for (const Bytes& part : parts) {
    all.insert(all.end(), part.begin(), part.end());
  }
  return all;
}

Bytes bytes_of_payload() {
  return Bytes(kPayload, std::byte{1});
}

std::vector<Bytes> words_of_workers() {
  return {joined({bytes_of(header_of(MessageType::kPull)), push_of(0), push_of(1)}),
          joined({push_of(1), push_of(1), bytes_of(header_of(MessageType::kRest))}),
          joined({bytes_of(header_of(MessageType::kStatePull)), push_of(3)}),
          bytes_of(header_of(MessageType::kBye)),
          bytes_of(header_of(MessageType::kHold)),
          bytes_of(header_of(MessageType::kTaken))};
}

/// Gives a mutated header a valid hash, as an attacker who knows the format would. Random mutations
/// would hardly ever produce one.
Bytes resealed(ByteSpan bytes) {
  Bytes out(bytes.begin(), bytes.end());
  for (std::size_t at = 0; at + kHeaderBytes <= out.size();) {
    Header header;
    std::memcpy(&header, out.data() + at, kHeaderBytes);
    seal(header);
    std::memcpy(out.data() + at, &header, kHeaderBytes);
    const std::uint64_t following = header.slot == 0 ? header.payload_bytes : 0;
    at += kHeaderBytes + std::min<std::uint64_t>(following, out.size());
  }
  return out;
}

TEST(PsFuzz, AHeaderIsOursOrRefused) {
  const auto read = [](ByteSpan bytes) -> std::string {
    Header header;
    std::memcpy(&header, bytes.data(), std::min(bytes.size(), kHeaderBytes));
    const Result<void> checked = check_header(header, kPayload);
    if (!checked.ok()) {
      return checked.error().detail;
    }
    EXPECT_LE(header.payload_bytes, kPayload);
    EXPECT_GE(header.type, MessageType::kHello);
    EXPECT_LE(header.type, MessageType::kTaken);
    Header again = header;
    seal(again);
    EXPECT_EQ(std::memcmp(&again, &header, kHeaderBytes), 0);
    return "type " + std::string(static_cast<std::size_t>(header.type), 'i');
  };
  fuzz::run({"ps_header", words_of_workers(), read});
}

TEST(PsFuzz, AStreamGivesWholeMessagesOrEnds) {
  const auto read = [](ByteSpan raw) -> std::string {
    const Bytes bytes = resealed(raw);
    std::array<int, 2> ends{};
    EXPECT_EQ(::socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK, 0, ends.data()), 0);
    const UniqueFd other(ends[1]);
    (void)send_some(ends[1], bytes.data(), bytes.size());
    ::shutdown(ends[1], SHUT_WR);
    MessageStream stream{UniqueFd(ends[0]), kPayload};
    std::array<std::byte, kPayload> space{};
    std::size_t messages = 0;
    std::size_t payload = 0;
    Result<void> received;
    while (received.ok()) {
      received = stream.receive(
          [&](const Header& header) -> Result<PayloadTarget> {
            EXPECT_LE(header.payload_bytes, kPayload);
            const std::size_t following = header.slot == 0 ? header.payload_bytes : 0;
            return PayloadTarget{std::span(space).first(following), {}};
          },
          [&](const Header& header) -> Result<void> {
            ++messages;
            payload += header.slot == 0 ? header.payload_bytes : 0;
            return {};
          });
    }
    EXPECT_LE(messages * kHeaderBytes + payload, bytes.size());
    return received.error().detail + std::string(std::min<std::size_t>(messages, 4), 'm');
  };
  fuzz::run({"ps_stream", words_of_workers(), read, 5'000});
}

/// Any messages of members: some are refused, none ends the machine, and no slice counts twice.
TEST(PsFuzz, TheMachineBehindAShardIsNotUpsetByAnything) {
  const auto read = [](ByteSpan bytes) -> std::string {
    std::string outcome;
    for (const char* phases : {"bsp:50%,asp", "ssp:1", "backup:2-of-3"}) {
      const SyncPlan plan = plan_of(phases);
      ShardCore core(plan, {true, {true}, {.falls_back = true}});
      (void)core.take({.kind = ShardEventKind::kWorkers, .workers = {MemberId{1}, MemberId{2}}});
      std::size_t refused = 0;
      std::uint64_t updates = 0;
      for (std::size_t at = 0; at + kHeaderBytes <= bytes.size(); at += kHeaderBytes) {
        Header header;
        std::memcpy(&header, bytes.data() + at, kHeaderBytes);
        header.worker = header.worker % 3;  // an intruder, too
        const Result<ShardOutcome> taken = core.take(event_of(header));
        refused += taken.ok() ? 0 : 1;
        updates += taken.ok() && taken.value().update ? 1 : 0;
        updates += taken.ok() && taken.value().restore ? 1 : 0;  // changes the parameters, too
      }
      EXPECT_EQ(updates, core.order().version());
      EXPECT_LE(core.order().applied().count(), plan.last_slice());
      outcome += std::string(std::min<std::size_t>(refused, 3), 'r') + "/" +
                 std::string(std::min<std::size_t>(updates, 3), 'u') + " ";
    }
    return outcome;
  };
  Bytes many;
  for (std::uint64_t slice = 0; slice < 8; ++slice) {
    Header push = header_of(MessageType::kPush);
    push.worker = 1 + slice % 2;
    push.slice = slice;
    push.version = slice / 2;
    push.flags = flags::kAsks | flags::kWantsLease;
    push.wanted = push.version + 1;
    push.serial = slice / 2;
    many = joined({many, bytes_of(header_of(MessageType::kHello)), bytes_of(push)});
  }
  fuzz::run({"ps_machine", {many, words_of_workers()[0], words_of_workers()[1]}, read, 5'000});
}

class SumState final : public ShardState {
 public:
  void apply(std::span<const SliceGradient> slices, const Update& /*update*/) override {
    for (const SliceGradient& slice : slices) {
      ASSERT_EQ(slice.sum.size(), values_.size());
      ASSERT_GT(slice.microbatches, 0U) << "a part of a step";
      for (std::size_t i = 0; i < values_.size(); ++i) {
        values_[i] += slice.sum[i];
      }
    }
  }
  [[nodiscard]] std::span<const float> values() const override { return values_; }
  [[nodiscard]] std::span<const float> momentum() const override { return momentum_; }

 private:
  std::vector<float> values_ = std::vector<float>(kFloats);
  std::vector<float> momentum_ = std::vector<float>(kFloats);
};

/// A running shard; each conversation uses a new connection.
class ShardUnderFire {
 public:
  explicit ShardUnderFire(ShardRole role) {
    ShardOptions options;
    options.role = role;
    shard_ = Shard::start(options, plan_, state_, listener_).value();
    shard_->set_view({ViewId{1}, kKey, {MemberId{1}, MemberId{2}}, role, ""});
    address_ = collectives::parse_tcp_address(shard_->address()).value();
  }

  /// Sends the bytes and reads until the shard closes; returns the size of its answer. `memory`: a
  /// descriptor that is sent with the first bytes (-1: none).
  std::size_t converse(ByteSpan bytes, int memory = -1) {
    UniqueFd fd = address_.unix_name.empty()
                      ? start_connect_tcp({address_.host, address_.port}).value()
                      : start_connect_unix(address_.unix_name).value();
    EXPECT_TRUE(fd.valid());
    std::size_t sent = 0;
    std::size_t answered = 0;
    bool is_open = true;
    while (is_open) {
      pollfd polled{fd.get(), static_cast<short>(POLLIN | (sent < bytes.size() ? POLLOUT : 0)), 0};
      if (::poll(&polled, 1, 10'000) != 1) {
        ADD_FAILURE() << "the shard neither answers nor closes";
        break;
      }
      if (sent < bytes.size()) {
        sent += send_with_descriptor(fd.get(), bytes.subspan(sent), memory).bytes;
        memory = sent > 0 ? -1 : memory;
        if (sent == bytes.size()) {
          ::shutdown(fd.get(), SHUT_WR);
        }
      }
      std::array<std::byte, 4096> space{};
      const Moved moved = receive_some(fd.get(), space.data(), space.size());
      answered += moved.bytes;
      is_open = !moved.closed;
    }
    return answered;
  }

  [[nodiscard]] bool is_local() const { return !address_.unix_name.empty(); }

 private:
  const SyncPlan plan_ = plan_of("asp");
  SumState state_;
  ShardListener listener_;
  std::unique_ptr<Shard> shard_;
  collectives::TcpAddress address_;
};

TEST(PsFuzz, AShardOutlivesWhateverAWorkerSays) {
  ShardUnderFire shard(ShardRole::kLeads);
  const auto read = [&](ByteSpan bytes) -> std::string {
    const std::size_t answered =
        shard.converse(joined({bytes_of(header_of(MessageType::kHello)), resealed(bytes)}));
    return "answered " + std::string(std::min<std::size_t>(answered / kHeaderBytes, 5), 'a');
  };
  fuzz::run({"ps_worker_words", words_of_workers(), read, 1'000});
}

TEST(PsFuzz, AFollowerOutlivesWhateverALeaderSays) {
  ShardUnderFire shard(ShardRole::kFollows);
  Bytes entries;
  std::uint64_t number = 0;
  for (const MessageType type :
       {MessageType::kRoster, MessageType::kHello, MessageType::kPull, MessageType::kPush}) {
    Header header = header_of(type);
    header.entry = ++number;
    entries = joined({entries, bytes_of(header, type == MessageType::kPush)});
  }
  const auto read = [&](ByteSpan bytes) -> std::string {
    const std::size_t answered =
        shard.converse(joined({bytes_of(header_of(MessageType::kFollow)), resealed(bytes)}));
    return "answered " + std::string(std::min<std::size_t>(answered / kHeaderBytes, 5), 'a');
  };
  fuzz::run({"ps_leader_words", {entries, words_of_workers()[0]}, read, 1'000});
}

TEST(PsFuzz, AShardOutlivesAWorkerThatGoesBackToWhatThereIsNot) {
  ShardUnderFire shard(ShardRole::kLeads);
  Header hello = header_of(MessageType::kHello);
  hello.rewound_at = 2;
  const Bytes question = bytes_of(header_of(MessageType::kPull));  // is answered at once
  EXPECT_EQ(shard.converse(joined({bytes_of(hello), question})), 0U);
  hello.rewound_at = 0;
  EXPECT_GT(shard.converse(joined({bytes_of(hello), question})), 0U);
}

TEST(PsFuzz, AGradientOfNothingIsRefused) {
  ShardUnderFire shard(ShardRole::kLeads);
  Header push = header_of(MessageType::kPush);
  const Bytes hello = bytes_of(header_of(MessageType::kHello));
  const std::size_t to_nothing = shard.converse(joined({hello, bytes_of(push, true)}));
  push.count = 1;
  push.flags = flags::kAsks;
  EXPECT_GT(shard.converse(joined({hello, bytes_of(push, true)})), to_nothing);
}

/// A worker names slots that exist or do not, in shared memory of the right or of a wrong size or
/// without memory, with any content that another process may have written.
TEST(PsFuzz, AShardOutlivesWhateverAWorkerShares) {
  ShardUnderFire shard(ShardRole::kLeads);
  if (!shard.is_local()) {
    GTEST_SKIP() << "no Unix-domain sockets here";
  }
  const auto push_in = [](std::uint64_t slot, std::uint64_t slice) {
    Header push = header_of(MessageType::kPush);
    push.slice = slice;
    push.slot = slot;
    push.flags = flags::kAsks | flags::kWantsLease;
    push.question = slice + 1;
    push.payload_bytes = kPayload;
    push.count = 1;
    seal(push);
    const auto raw = std::as_bytes(std::span(&push, 1));
    return Bytes(raw.begin(), raw.end());
  };
  const auto read = [&](ByteSpan bytes) -> std::string {
    const std::size_t way = bytes.empty() ? 0 : static_cast<std::size_t>(bytes.back()) % 4;
    const auto slots = SharedSlots::create(way == 1 ? 64 * kPayload : kPayload).value();
    const UniqueFd other(::dup(STDERR_FILENO));
    if (way != 1 && slots->write_gradient(bytes_of_payload()) == 1) {
      slots->open_answers();
      std::memcpy(const_cast<std::byte*>(slots->payload(1).data()), bytes.data(),
                  std::min<std::size_t>(bytes.size(), kPayload));
    }
    if (way == 3) {  // overwrites the marks, which are at the memory's beginning
      std::memcpy(const_cast<std::byte*>(slots->payload(1).data()) - 4096, bytes.data(),
                  std::min<std::size_t>(bytes.size(), 4096));
    }
    const int memory = way == 2 ? other.get() : slots->fd();
    const std::size_t answered =
        shard.converse(joined({bytes_of(header_of(MessageType::kHello)), resealed(bytes)}), memory);
    return "answered " + std::string(std::min<std::size_t>(answered / kHeaderBytes, 5), 'a') +
           std::string(way, 'w');
  };
  fuzz::run({"ps_shared_words",
             {joined({push_in(1, 0), push_in(2, 1), push_in(1, 2)}), joined({push_in(5, 3)}),
              joined({push_in(6, 4), push_of(5)}), push_in(std::uint64_t{1} << 63, 1)},
             read,
             1'000});
}

}  // namespace
}  // namespace mayfly::parameter_server
