#pragma once

// The state of a worker whose model is the program's own: parameters, buffers, the tensors of the
// program's optimizer, and a blob of everything that is not a tensor. Parameters and the
// optimizer's tensors are read and written in the program's memory. Buffers change while the
// program computes. Therefore the values that the last step has committed are kept here, and the
// program's buffers are set to them before each microbatch. The changes that a microbatch makes to
// buffers are summed like gradients, and their mean is committed.
//
// The program's thread reads and changes the state only during a task of the Mailbox, which orders
// these accesses with those of the trainer's thread.

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "base/aligned_buffer.hpp"
#include "base/bytes.hpp"
#include "engine/job/job.hpp"
#include "engine/program/mailbox.hpp"
#include "engine/program/program_tensor.hpp"
#include "engine/reduction/reduction_layout.hpp"
#include "engine/training/state_keeper.hpp"
#include "engine/training/step_means.hpp"

namespace mayfly::engine {

/// The part of a received state that the program itself has to load: the optimizer's tensors, in
/// the order in which the sender's program passed them to set_optimizer_state(), and the blob.
/// Valid until the program's next task.
struct LoadedState {
  std::vector<nn::NamedTensor> tensors;
  ByteSpan blob;
};

class ProgramState final : public StateKeeper {
 public:
  /// The references outlive it. `optimizer_bytes_max` bounds the optimizer's tensors and the blob.
  ProgramState(const Job& job, const ReductionLayout& layout, ProgramTensors tensors,
               std::size_t optimizer_bytes_max, Mailbox& mailbox);
  ProgramState(const ProgramState&) = delete;
  ProgramState& operator=(const ProgramState&) = delete;

  /// To be called before the first step: sets the computer that runs the parts of an update
  /// (Computer::run_parts).
  void update_with(Computer& computer) { computer_ = &computer; }

  // The program's thread, while it has a task:
  /// Replaces the optimizer's tensors and the blob. kInvalidInput if they are larger than the bound
  /// of the constructor, with both sizes, or if two tensors have the same name; then the previous
  /// ones are kept.
  [[nodiscard]] Result<void> set_optimizer_state(std::vector<ProgramTensor> tensors, Bytes blob,
                                                 double learning_rate);
  /// Sets the program's buffers to the committed values.
  void restore_buffers();
  /// Writes the changes that a microbatch has made to the buffers.
  void put_buffer_changes(std::span<float> statistics) const;
  /// The number of elements that put_buffer_changes() writes.
  [[nodiscard]] std::size_t buffer_elements() const;
  /// The place of a microbatch's weight in a step's vector: last among the statistics, in a block
  /// of the exact sum of its own. In the block of the loss, a large loss would take bits from the
  /// weight, by which all means are divided.
  [[nodiscard]] std::size_t weight_at() const {
    return layout_.parameters_offset() - ProgramTensors::kWeightElements;
  }
  /// The mean gradients over all microbatches of the step that is updated, in the order of the
  /// parameters.
  [[nodiscard]] std::span<const float> mean_gradients() const;
  /// In the task kLoad: writes the received parameters and buffers to the program's memory and
  /// returns the rest.
  [[nodiscard]] const LoadedState& take_loaded();
  /// At the end of the task kLoad: kInvalidInput with the name of a tensor if the optimizer's
  /// tensors differ from those of the member that has sent the state. After loading a checkpoint a
  /// program may have other tensors.
  [[nodiscard]] Result<void> was_taken() const;

  // The trainer's thread:
  /// Loads the state of a checkpoint. kCorrupt, or kInvalidInput with the tensor that does not fit.
  [[nodiscard]] Result<void> load(const nn::CheckpointFiles& files);

  [[nodiscard]] Step committed() const override { return committed_; }
  [[nodiscard]] const std::vector<std::int32_t>& exponents() const override { return exponents_; }
  [[nodiscard]] std::optional<nn::LossScale> loss_scale() const override { return std::nullopt; }
  [[nodiscard]] double learning_rate() const override { return learning_rate_; }
  [[nodiscard]] std::vector<OwnMetric> own_metrics() const override { return own_metrics_; }
  void draw_weights() override {}
  [[nodiscard]] bool is_on_device() const override { return false; }
  double apply(const GradientBuckets& reduced, std::span<const std::int32_t> exponents,
               bool skips) override;
  [[nodiscard]] std::size_t packed_size() const override;
  void prepare_to_pack() override;
  void pack(std::size_t first, std::span<std::byte> out) const override;
  [[nodiscard]] Result<void> unpack(ByteSpan packed) override;
  [[nodiscard]] std::unique_ptr<ObservedState> make_observed() override { return nullptr; }
  [[nodiscard]] nn::CheckpointFiles checkpoint() override;
  [[nodiscard]] std::uint64_t rest_hash() override;
  [[nodiscard]] std::uint32_t check(std::optional<std::uint64_t> rest) override;
  [[nodiscard]] Digest digest() override;
  [[nodiscard]] std::vector<std::uint64_t> part_hashes() override;

 private:
  /// A received state, before the program has loaded it.
  struct Incoming {
    Step committed{};
    std::vector<std::int32_t> exponents;
    std::vector<ByteSpan> parameters;
    std::vector<ByteSpan> buffers;
    LoadedState rest;
    bool is_of_member = false;
  };
  /// Calls `function` for each buffer that is not a constant, with its place among the buffers and
  /// the place of its first element among the statistics.
  template <typename Function>
  void for_all_summed_buffers(const Function& function) const;
  [[nodiscard]] Bytes packed_rest() const;
  [[nodiscard]] Result<void> split_rest(ByteSpan rest, LoadedState& into) const;
  void commit_buffers(std::span<const float> changes);
  void request_load(Incoming incoming);

  const Job& job_;
  const ReductionLayout& layout_;
  const ProgramTensors tensors_;
  const std::size_t rest_bytes_max_;
  Mailbox& mailbox_;
  Computer* computer_ = nullptr;
  const StepMeans step_means_;
  Step committed_{};
  std::vector<std::int32_t> exponents_;
  std::vector<Bytes> buffers_;  // the committed values
  std::vector<ProgramTensor> optimizer_;
  Bytes blob_;
  double learning_rate_ = 0;
  std::vector<OwnMetric> own_metrics_;
  ObservedStep means_;
  Incoming incoming_;
  Bytes head_;  // of the packed state
  Bytes rest_;  // of the packed state, without the padding
};

}  // namespace mayfly::engine
