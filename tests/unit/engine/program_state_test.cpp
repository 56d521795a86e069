#include "engine/program/program_state.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <cstring>
#include <limits>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "collectives/plan/exact_sum.hpp"
#include "engine/program/mailbox.hpp"
#include "nn/checkpoint.hpp"

namespace mayfly::engine {
namespace {

using ::testing::HasSubstr;

constexpr std::size_t kRestBytes = 4096;

/// The memory of a program: two parameters, a running mean, a counter, a constant, and momentum.
struct ProgramMemory {
  std::array<float, 6> weight{1, 2, 3, 4, 5, 6};
  std::array<float, 2> bias{7, 8};
  std::array<float, 2> mean{0.5F, 0.25F};
  std::int64_t counter = 40;
  std::array<std::uint8_t, 3> mask{1, 0, 1};
  std::array<float, 6> momentum{};
  std::array<float, 2> bias_momentum{};
  std::vector<std::string> metrics;
  bool is_bias_first = false;

  template <typename T>
  static ProgramTensor tensor(const char* name, const char* type, std::vector<std::int64_t> shape,
                              T* data, std::size_t elements) {
    return {name,
            type,
            std::move(shape),
            reinterpret_cast<std::byte*>(data),
            elements,
            elements * sizeof(T)};
  }
  ProgramTensors tensors() {
    ProgramTensors all = {
        {tensor("weight", "F32", {2, 3}, weight.data(), 6),
         tensor("bias", "F32", {2}, bias.data(), 2)},
        {tensor("mean", "F32", {2}, mean.data(), 2), tensor("counter", "I64", {}, &counter, 1),
         tensor("mask", "U8", {3}, mask.data(), 3)},
        metrics};
    if (is_bias_first) {
      std::ranges::reverse(all.parameters);
    }
    return all;
  }
  std::vector<ProgramTensor> optimizer() {
    return {tensor("momentum", "F32", {6}, momentum.data(), 6),
            tensor("bias_momentum", "F32", {2}, bias_momentum.data(), 2)};
  }
};

/// A worker's state, and a program that loads every state that it receives.
struct StateWorld {
  explicit StateWorld(std::vector<std::string> metrics = {}, bool is_bias_first = false)
      : memory(with(std::move(metrics), is_bias_first)) {
    job.config.model = kProgramModel;
    job.microbatches = 4;
    job.fingerprint = {{"version", "test"},
                       {"program: tensors", to_string(memory.tensors().layout_digest())}};
    EXPECT_TRUE(state.set_optimizer_state(memory.optimizer(), blob("first"), 0.1).ok());
  }
  static ProgramMemory with(std::vector<std::string> metrics, bool is_bias_first) {
    ProgramMemory made;
    made.metrics = std::move(metrics);
    made.is_bias_first = is_bias_first;
    return made;
  }
  static Bytes blob(std::string_view text) {
    const auto bytes = std::as_bytes(std::span(text));
    return {bytes.begin(), bytes.end()};
  }
  /// Calls `function` on the trainer's thread, while the program loads the states that it receives.
  template <typename Function>
  Result<void> while_program_loads(const Function& function) {
    Result<void> result;
    std::thread trainer([&] {
      result = function();
      mailbox.end();
    });
    while (mailbox.next(seconds(60))->kind != ProgramTask::Kind::kEnd) {
      const LoadedState& loaded = state.take_loaded();
      if (takes) {
        take(loaded);
      }
      was_taken = state.was_taken();
      taken = Bytes(loaded.blob.begin(), loaded.blob.end());
    }
    trainer.join();
    return result;
  }
  /// Copies the tensors as programs do, in the order of set_optimizer_state().
  void take(const LoadedState& loaded) {
    ASSERT_EQ(loaded.tensors.size(), 2u);
    const ByteSpan first = loaded.tensors[0].tensor.bytes;
    const ByteSpan second = loaded.tensors[1].tensor.bytes;
    ASSERT_EQ(first.size(), sizeof memory.momentum);
    ASSERT_EQ(second.size(), sizeof memory.bias_momentum);
    std::memcpy(memory.momentum.data(), first.data(), first.size());
    std::memcpy(memory.bias_momentum.data(), second.data(), second.size());
  }
  Bytes packed() {
    state.prepare_to_pack();
    Bytes all(state.packed_size());
    constexpr std::size_t kPart = 37;  // divides the size of no tensor
    for (std::size_t first = 0; first < all.size(); first += kPart) {
      state.pack(first, std::span(all).subspan(first, std::min(kPart, all.size() - first)));
    }
    return all;
  }

  ProgramMemory memory;
  Job job;
  Mailbox mailbox;
  ReductionLayout layout{memory.tensors().summed()};
  ProgramState state{job, layout, memory.tensors(), kRestBytes, mailbox};
  Bytes taken;
  bool takes = true;  // whether the program copies the tensors of a state
  Result<void> was_taken;
};

TEST(ProgramState, SumsParametersAndBuffersThatAreNoConstants) {
  ProgramMemory memory;
  const SummedTensors summed = memory.tensors().summed();
  ASSERT_EQ(summed.parameters.size(), 2u);
  ASSERT_EQ(summed.statistics.size(), 3u);
  EXPECT_EQ(summed.statistics[1].name, "counter");
  EXPECT_EQ(summed.statistics[2].name, "weight of a microbatch");
}

TEST(ProgramState, TheWeightHasABlockOfItsOwn) {
  const StateWorld world;
  const collectives::BlockLayout& blocks = world.layout.blocks();
  const std::size_t block = blocks.first_block_at(world.state.weight_at());
  EXPECT_EQ(blocks.size(block), ProgramTensors::kWeightElements);
  EXPECT_EQ(block + 1, world.layout.first_parameter_block());
}

TEST(ProgramState, GivesTheChangesOfBuffersAndPutsTheCommittedValuesBack) {
  StateWorld world;
  world.memory.mean = {1.5F, 0};
  world.memory.counter = 41;
  world.memory.mask = {9, 9, 9};
  std::array<float, 3> changes{};
  world.state.put_buffer_changes(changes);
  EXPECT_EQ(changes, (std::array<float, 3>{1, -0.25F, 1}));
  world.state.restore_buffers();
  EXPECT_EQ(world.memory.mean, (std::array<float, 2>{0.5F, 0.25F}));
  EXPECT_EQ(world.memory.counter, 40);
  EXPECT_EQ(world.memory.mask, (std::array<std::uint8_t, 3>{1, 0, 1}));
}

TEST(ProgramState, WhatIsInfiniteAndStaysSoHasNotChanged) {
  constexpr float kInfinity = std::numeric_limits<float>::infinity();
  ProgramMemory memory;
  memory.mean = {-kInfinity, kInfinity};
  Job job;
  Mailbox mailbox;
  const ReductionLayout layout(memory.tensors().summed());
  const ProgramState state(job, layout, memory.tensors(), kRestBytes, mailbox);
  memory.mean[1] = 2;
  std::array<float, 3> changes{};
  state.put_buffer_changes(changes);
  EXPECT_EQ(changes, (std::array<float, 3>{0, -kInfinity, 0}));
}

TEST(ProgramState, ComesToAnotherWorkerAsItIs) {
  StateWorld from;
  from.memory.momentum.fill(0.5F);
  from.memory.bias_momentum.fill(0.75F);
  StateWorld to;
  to.memory.weight.fill(0);
  to.memory.mean = {};
  const Bytes packed = from.packed();
  const Result<void> unpacked = to.while_program_loads([&] { return to.state.unpack(packed); });
  ASSERT_TRUE(unpacked.ok()) << unpacked.error().detail;
  EXPECT_EQ(to.memory.weight, from.memory.weight);
  EXPECT_EQ(to.memory.mean, from.memory.mean);
  EXPECT_EQ(to.memory.momentum, from.memory.momentum);
  EXPECT_EQ(to.memory.bias_momentum, from.memory.bias_momentum);
  EXPECT_EQ(to.taken, StateWorld::blob("first"));
  EXPECT_EQ(to.state.digest(), from.state.digest());
  EXPECT_EQ(to.state.check(to.state.rest_hash()), from.state.check(from.state.rest_hash()));
  EXPECT_EQ(to.state.part_hashes(), from.state.part_hashes());
}

TEST(ProgramState, NamesTheTensorThatTheProgramHasNotTaken) {
  StateWorld from;
  from.memory.bias_momentum.fill(0.75F);
  StateWorld to;
  to.takes = false;
  const Bytes packed = from.packed();
  EXPECT_TRUE(to.while_program_loads([&] { return to.state.unpack(packed); }).ok());
  ASSERT_FALSE(to.was_taken.ok());
  EXPECT_THAT(to.was_taken.error().detail, HasSubstr("not adopted the tensor bias_momentum of"));

  StateWorld resumed;
  resumed.takes = false;
  const nn::CheckpointFiles files = from.state.checkpoint();
  EXPECT_TRUE(resumed.while_program_loads([&] { return resumed.state.load(files); }).ok());
  EXPECT_TRUE(resumed.was_taken.ok()) << "a program may leave the optimizer of a checkpoint out";
}

TEST(ProgramState, TensorsWithoutElementsMayComeInAnotherOrder) {
  StateWorld from;
  StateWorld to;
  to.takes = false;  // the momentum is equal in both
  for (StateWorld* world : {&from, &to}) {
    std::vector<ProgramTensor> tensors = world->memory.optimizer();
    tensors.push_back(ProgramMemory::tensor<float>("second", "F32", {0}, nullptr, 0));
    tensors.push_back(ProgramMemory::tensor<float>("first", "F32", {0}, nullptr, 0));
    ASSERT_TRUE(world->state.set_optimizer_state(tensors, {}, 0).ok());
  }
  const Bytes packed = from.packed();
  EXPECT_TRUE(to.while_program_loads([&] { return to.state.unpack(packed); }).ok());
  EXPECT_TRUE(to.was_taken.ok()) << to.was_taken.error().detail;
}

TEST(ProgramState, TwoTensorsOfOneNameAreRefused) {
  StateWorld world;
  const Bytes before = world.packed();
  std::vector<ProgramTensor> twice = world.memory.optimizer();
  twice[1].name = twice[0].name;
  const Result<void> set = world.state.set_optimizer_state(twice, {}, 0);
  ASSERT_FALSE(set.ok());
  EXPECT_THAT(set.error().detail, HasSubstr("two tensors of the name momentum"));
  EXPECT_EQ(world.packed(), before) << "the state of before stays";
}

TEST(ProgramState, IsRefusedIfItIsTornOrForeign) {
  StateWorld world;
  Bytes packed = world.packed();
  packed[0] ^= std::byte{1};
  EXPECT_EQ(world.state.unpack(packed).error().code, Errc::kCorrupt);
  packed.pop_back();
  EXPECT_EQ(world.state.unpack(packed).error().code, Errc::kCorrupt);
}

TEST(ProgramState, ComesBackFromACheckpoint) {
  StateWorld from;
  from.memory.momentum.fill(0.5F);
  from.memory.bias_momentum.fill(0.75F);
  const nn::CheckpointFiles files = from.state.checkpoint();
  const Result<nn::CheckpointInfo> info = nn::check_files(files);
  ASSERT_TRUE(info.ok()) << info.error().detail;
  EXPECT_EQ(info.value().digest, from.state.digest());
  StateWorld to;
  to.memory.bias.fill(0);
  const Result<void> loaded = to.while_program_loads([&] { return to.state.load(files); });
  ASSERT_TRUE(loaded.ok()) << loaded.error().detail;
  EXPECT_EQ(to.state.digest(), from.state.digest());
  EXPECT_EQ(to.taken, StateWorld::blob("first"));
}

TEST(ProgramState, NamesTheTensorOfACheckpointThatDoesNotFit) {
  StateWorld from;
  const nn::CheckpointFiles files = from.state.checkpoint();
  ProgramMemory memory;
  ProgramTensors others = memory.tensors();
  others.parameters[0].shape = {3, 2};
  Job job;
  Mailbox mailbox;
  const ReductionLayout layout(others.summed());
  ProgramState to(job, layout, others, kRestBytes, mailbox);
  const Result<void> loaded = to.load(files);
  ASSERT_FALSE(loaded.ok());
  EXPECT_THAT(loaded.error().detail,
              HasSubstr("tensor weight: expected F32 [3, 2], found F32 [2, 3]"));
}

TEST(ProgramState, AnExponentThatNoSumCanHaveIsRefused) {
  constexpr std::int32_t kIllegal = collectives::kExponentMax + 1;
  constexpr std::size_t kHeadBytes = 3 * sizeof(std::uint64_t);  // in front of the exponents
  StateWorld world;
  Bytes packed = world.packed();
  std::memcpy(packed.data() + kHeadBytes, &kIllegal, sizeof kIllegal);
  const Result<void> unpacked =
      world.while_program_loads([&] { return world.state.unpack(packed); });
  ASSERT_FALSE(unpacked.ok());
  EXPECT_EQ(unpacked.error().code, Errc::kCorrupt);

  StateWorld other;
  nn::CheckpointFiles files = other.state.checkpoint();
  const Result<nn::CheckpointInfo> info = nn::check_files(files);
  ASSERT_TRUE(info.ok());
  Bytes& rest = files[nn::kOptimizerFile];
  const auto tensors = nn::decode_safetensors(rest);
  ASSERT_TRUE(tensors.ok());
  const auto at = tensors.value().at("mayfly.exponents").bytes.data() - rest.data();
  std::memcpy(rest.data() + at, &kIllegal, sizeof kIllegal);
  files.erase(nn::kManifestFile);
  files = nn::with_manifest(std::move(files), info.value());
  const Result<void> loaded = other.while_program_loads([&] { return other.state.load(files); });
  ASSERT_FALSE(loaded.ok());
  EXPECT_THAT(loaded.error().detail, HasSubstr("an exponent that no sum can have"));
}

TEST(ProgramState, AProgramThatResumesMayHaveOtherMetrics) {
  StateWorld from;
  const nn::CheckpointFiles files = from.state.checkpoint();
  StateWorld to({"norm"});
  to.memory.weight.fill(0);
  const Result<void> loaded = to.while_program_loads([&] { return to.state.load(files); });
  ASSERT_TRUE(loaded.ok()) << loaded.error().detail;
  EXPECT_EQ(to.memory.weight, from.memory.weight);
  ASSERT_EQ(to.state.exponents().size(), from.state.exponents().size() + 1);
  EXPECT_THAT(to.state.exponents(), ::testing::Each(collectives::kUnsetExponent));
}

TEST(ProgramState, ExponentsOfTensorsInAnotherOrderAreMeasuredAgain) {
  constexpr std::int32_t kMeasured = 3;
  constexpr std::size_t kHeadBytes = 3 * sizeof(std::uint64_t);  // in front of the exponents
  StateWorld from;
  Bytes packed = from.packed();
  for (std::size_t i = 0; i < from.state.exponents().size(); ++i) {
    std::memcpy(packed.data() + kHeadBytes + i * sizeof kMeasured, &kMeasured, sizeof kMeasured);
  }
  ASSERT_TRUE(from.while_program_loads([&] { return from.state.unpack(packed); }).ok());
  const nn::CheckpointFiles files = from.state.checkpoint();
  for (const auto& [is_bias_first, exponent] :
       {std::pair(false, kMeasured), std::pair(true, collectives::kUnsetExponent)}) {
    StateWorld to({}, is_bias_first);
    to.memory.weight.fill(0);
    const Result<void> loaded = to.while_program_loads([&] { return to.state.load(files); });
    ASSERT_TRUE(loaded.ok()) << loaded.error().detail;
    EXPECT_EQ(to.memory.weight, from.memory.weight);
    ASSERT_EQ(to.state.exponents().size(), from.state.exponents().size());
    EXPECT_THAT(to.state.exponents(), ::testing::Each(exponent));
  }
}

TEST(ProgramState, ACheckpointOfAnotherReductionOrOfMoreTensorsIsRefused) {
  StateWorld from;
  const nn::CheckpointFiles files = from.state.checkpoint();
  ProgramMemory memory;
  Mailbox mailbox;
  ProgramTensors fewer = memory.tensors();
  fewer.buffers.erase(fewer.buffers.begin());
  for (const auto& [wire, tensors] :
       {std::pair(Wire::kFp32, memory.tensors()), std::pair(Wire::kInt32, fewer)}) {
    Job job;
    job.wire = wire;
    const ReductionLayout layout(tensors.summed());
    ProgramState to(job, layout, tensors, kRestBytes, mailbox);
    const Result<void> loaded = to.load(files);
    ASSERT_FALSE(loaded.ok());
    EXPECT_THAT(loaded.error().detail, HasSubstr("with another --reduction or by another program"));
  }
}

TEST(ProgramState, ADamagedCheckpointIsNoState) {
  StateWorld from;
  nn::CheckpointFiles files = from.state.checkpoint();
  files[nn::kModelFile].back() ^= std::byte{1};
  const Result<void> loaded = from.state.load(files);
  ASSERT_FALSE(loaded.ok());
  EXPECT_THAT(loaded.error().detail, HasSubstr("model.safetensors"));
}

TEST(ProgramState, MoreThanWasReservedIsRefusedWithBothSizes) {
  StateWorld world;
  const Result<void> set = world.state.set_optimizer_state({}, Bytes(kRestBytes), 0);
  ASSERT_FALSE(set.ok());
  EXPECT_THAT(set.error().detail, HasSubstr("4096 were reserved"));
}

}  // namespace
}  // namespace mayfly::engine
