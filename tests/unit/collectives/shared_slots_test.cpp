#include "collectives/parameter_server/shared_slots.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <set>
#include <vector>

#include "base/random.hpp"

namespace mayfly::parameter_server {
namespace {

constexpr std::uint64_t kBytes = 5000;

/// The objects of a worker and of a shard for the same slots.
struct Ends {
  std::shared_ptr<SharedSlots> worker = SharedSlots::create(kBytes).value();
  std::shared_ptr<SharedSlots> shard = SharedSlots::map(worker->fd(), kBytes).value();
};

Bytes payload_of(int number) {
  return Bytes(kBytes, static_cast<std::byte>(number));
}

bool holds(ByteSpan bytes, int number) {
  return bytes.size() == kBytes && std::ranges::all_of(bytes, [number](std::byte byte) {
           return byte == static_cast<std::byte>(number);
         });
}

TEST(SharedSlots, GiveTheReaderWhatWasWritten) {
  const Ends ends;
  std::vector<std::uint64_t> slots;
  for (int number = 1; number <= 3; ++number) {
    slots.push_back(ends.worker->write_gradient(payload_of(number)));
  }
  for (int number = 1; number <= 3; ++number) {
    EXPECT_TRUE(holds(ends.shard->payload(slots[static_cast<std::size_t>(number - 1)]), number));
  }
}

TEST(SharedSlots, AreNotUsedAgainBeforeTheirReaderHasDone) {
  const Ends ends;
  std::set<std::uint64_t> slots;
  for (std::uint64_t i = 0; i < SharedSlots::kGradients; ++i) {
    slots.insert(ends.worker->write_gradient(payload_of(1)));
  }
  EXPECT_EQ(slots.size(), SharedSlots::kGradients);
  EXPECT_FALSE(slots.contains(0));
  EXPECT_EQ(ends.worker->write_gradient(payload_of(2)), 0U) << "all are taken";
  ends.shard->free(3);
  EXPECT_EQ(ends.worker->write_gradient(payload_of(2)), 3U);
  EXPECT_TRUE(holds(ends.shard->payload(3), 2));
  EXPECT_TRUE(holds(ends.shard->payload(2), 1));
}

TEST(SharedSlots, UseOneAgainRatherThanAnother) {
  const Ends ends;
  for (int number = 0; number < 6; ++number) {
    const std::uint64_t slot = ends.worker->write_gradient(payload_of(number));
    EXPECT_EQ(slot, 1U);
    ends.shard->free(slot);
  }
}

TEST(SharedSlots, TakeNoAnswerBeforeTheWorkerIsReadyForIt) {
  const Ends ends;
  EXPECT_EQ(ends.shard->write_answer(payload_of(1)), 0U) << "there may be no memory behind it";
  ends.worker->open_answers();
  EXPECT_EQ(ends.shard->write_answer(payload_of(1)), SharedSlots::kAnswer);
  EXPECT_EQ(ends.shard->write_answer(payload_of(2)), 0U) << "the worker has not read the first";
  EXPECT_TRUE(holds(ends.worker->payload(SharedSlots::kAnswer), 1));
  ends.worker->free(SharedSlots::kAnswer);
  EXPECT_EQ(ends.shard->write_answer(payload_of(2)), SharedSlots::kAnswer);
}

TEST(SharedSlots, AreFreeWhenTheLastWhoReadsThemIsGone) {
  Ends ends;
  const std::uint64_t slot = ends.worker->write_gradient(payload_of(1));
  {
    TakenSlot first(ends.shard, slot);
    TakenSlot kept = std::move(first);
    ends.shard.reset();  // the connection is gone, the gradient is kept
    EXPECT_TRUE(holds(kept.payload(), 1));
    EXPECT_EQ(ends.worker->write_gradient(payload_of(2)), slot + 1);
  }
  EXPECT_EQ(ends.worker->write_gradient(payload_of(2)), slot);
  EXPECT_TRUE(TakenSlot().payload().empty());
}

TEST(SharedSlots, OfAnotherSizeAreRefused) {
  const auto made = SharedSlots::create(kBytes).value();
  EXPECT_FALSE(SharedSlots::map(made->fd(), kBytes + 8192).ok());
  EXPECT_FALSE(SharedSlots::map(-1, kBytes).ok());
}

/// Whatever the other side writes into the marks, a call returns a slot that exists, or none.
TEST(SharedSlots, FollowNoFalseMark) {
  const Ends ends;
  const std::uint64_t seed = 20261122;
  RandomStream random{CounterRandom(seed)};
  std::byte* const marks = const_cast<std::byte*>(ends.shard->payload(1).data()) - 4096;
  for (int round = 0; round < 2000; ++round) {
    for (std::uint64_t slot = 1; slot <= SharedSlots::kAnswer; ++slot) {
      const auto mark =
          static_cast<std::uint32_t>(random.bits() % 5 == 0 ? random.bits() : random.bits() % 4);
      std::memcpy(marks + (slot - 1) * 64, &mark, sizeof mark);
    }
    EXPECT_LE(ends.worker->write_gradient(payload_of(1)), SharedSlots::kGradients) << seed;
    const std::uint64_t answer = ends.shard->write_answer(payload_of(2));
    EXPECT_TRUE(answer == 0 || answer == SharedSlots::kAnswer) << seed;
  }
}

TEST(CopyPayload, FillsBothRunsAndChecksTheHash) {
  const Bytes payload = payload_of(3);
  Bytes one(1000);
  Bytes two(kBytes - one.size());
  Header header;
  header.payload_check = payload_hash(payload, {});
  EXPECT_TRUE(copy_payload(payload, header, {one, two}).ok());
  EXPECT_EQ(one, Bytes(one.size(), std::byte{3}));
  EXPECT_EQ(two, Bytes(two.size(), std::byte{3}));
  Bytes whole(kBytes);
  EXPECT_TRUE(copy_payload(payload, header, {whole, {}}).ok());
  header.payload_check ^= 2;
  EXPECT_EQ(copy_payload(payload, header, {whole, {}}).error().code, Errc::kCorrupt);
}

}  // namespace
}  // namespace mayfly::parameter_server
