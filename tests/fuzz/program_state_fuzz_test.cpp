// The state of a user's own program, as it is received from another member or read from a
// checkpoint.

#include <gtest/gtest.h>

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <thread>
#include <vector>

#include "engine/program/mailbox.hpp"
#include "engine/program/program_state.hpp"
#include "nn/checkpoint.hpp"
#include "tests/fuzz/driver.hpp"

namespace mayfly::engine {
namespace {

constexpr std::size_t kRestBytes = 1024;

/// A program that loads every received state by position, as far as it fits.
class TakingProgram {
 public:
  TakingProgram() {
    job_.config.model = kProgramModel;
    job_.microbatches = 4;
    job_.fingerprint = {{"version", "test"}};
    EXPECT_TRUE(state_.set_optimizer_state(optimizer(), fuzz::bytes_of("{\"lr\": 1}"), 0.1).ok());
    program_ = std::thread([this] { serve(); });
  }
  ~TakingProgram() {
    mailbox_.end();
    program_.join();
  }
  TakingProgram(const TakingProgram&) = delete;
  TakingProgram& operator=(const TakingProgram&) = delete;

  ProgramState& state() { return state_; }

  Bytes packed() {
    state_.prepare_to_pack();
    Bytes all(state_.packed_size());
    state_.pack(0, all);
    return all;
  }

  /// The state that the program last loaded: names, quoted, and sizes.
  const std::string& taken() const { return taken_; }

 private:
  static ProgramTensor tensor(const char* name, std::span<float> memory) {
    return {name,
            "F32",
            {static_cast<std::int64_t>(memory.size())},
            reinterpret_cast<std::byte*>(memory.data()),
            memory.size(),
            memory.size_bytes()};
  }
  ProgramTensors tensors() { return {{tensor("weight", weight_)}, {tensor("mean", mean_)}}; }
  std::vector<ProgramTensor> optimizer() { return {tensor("momentum", momentum_)}; }

  void serve() {
    while (mailbox_.next(seconds(60))->kind != ProgramTask::Kind::kEnd) {
      const LoadedState& loaded = state_.take_loaded();
      taken_ = "blob of " + std::to_string(loaded.blob.size());
      std::uint64_t sum = 0;  // reads every byte
      for (const nn::NamedTensor& named : loaded.tensors) {
        taken_ += ", '" + named.name + "' " + std::to_string(named.tensor.bytes.size());
        for (const std::byte byte : named.tensor.bytes) {
          sum += std::to_integer<std::uint64_t>(byte);
        }
      }
      for (const std::byte byte : loaded.blob) {
        sum += std::to_integer<std::uint64_t>(byte);
      }
      taken_ += sum == 0 ? ", of zeros" : "";
      const Result<void> was_taken = state_.was_taken();
      taken_ += was_taken.ok() ? ", the same" : ", others";
    }
  }

  std::array<float, 6> weight_{1, 2, 3, 4, 5, 6};
  std::array<float, 2> mean_{0.5F, 0.25F};
  std::array<float, 6> momentum_{6, 5, 4, 3, 2, 1};
  Job job_;
  Mailbox mailbox_;
  ReductionLayout layout_{tensors().summed()};
  ProgramState state_{job_, layout_, tensors(), kRestBytes, mailbox_};
  std::string taken_;
  std::thread program_;
};

TEST(ProgramStateFuzz, AMembersStateIsTakenWholeOrNotAtAll) {
  TakingProgram program;
  const auto read = [&program](ByteSpan bytes) -> std::string {
    Bytes sized(bytes.begin(), bytes.end());
    sized.resize(program.state().packed_size());  // other sizes are refused at once
    const Bytes before = program.packed();
    const Result<void> unpacked = program.state().unpack(sized);
    if (!unpacked.ok()) {
      EXPECT_EQ(program.packed(), before) << "a refused state has left something";
      return unpacked.error().detail;
    }
    EXPECT_EQ(program.packed().size(), before.size());
    return program.taken();
  };
  fuzz::run({"program_state", {program.packed()}, read});
}

TEST(ProgramStateFuzz, ACheckpointIsTakenWholeOrNotAtAll) {
  TakingProgram program;
  const nn::CheckpointFiles files = program.state().checkpoint();
  const Result<nn::CheckpointInfo> info = nn::check_files(files);
  ASSERT_TRUE(info.ok());
  const auto read = [&](ByteSpan bytes) -> std::string {
    nn::CheckpointFiles changed = files;
    changed[nn::kOptimizerFile].assign(bytes.begin(), bytes.end());
    changed.erase(nn::kManifestFile);
    const Bytes before = program.packed();
    // The manifest has the hashes of the changed files, as if they had been written so.
    const Result<void> loaded =
        program.state().load(nn::with_manifest(std::move(changed), info.value()));
    if (!loaded.ok()) {
      EXPECT_EQ(program.packed(), before) << "a refused checkpoint has left something";
      return loaded.error().detail;
    }
    return program.taken();
  };
  fuzz::run({"program_checkpoint", {files.at(nn::kOptimizerFile)}, read});
}

}  // namespace
}  // namespace mayfly::engine
