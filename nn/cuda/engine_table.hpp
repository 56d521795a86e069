#pragma once

// Which of cuDNN's engines computes each convolution of a step, as a table that was made once, on a
// device, by `mayfly bench engines`. At run time nothing is timed: a convolution is looked up. A
// table is of one GPU architecture and one version of cuDNN, and lies as a text file beside the
// program (docs/gpu.md). Pure.

#include <compare>
#include <cstddef>
#include <cstdint>
#include <map>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "base/digest.hpp"
#include "base/result.hpp"
#include "nn/cuda/conv_shape.hpp"
#include "nn/cuda/engine_name.hpp"
#include "nn/dtype.hpp"
#include "nn/model.hpp"

namespace mayfly::nn::cuda {

/// What is looked up.
struct ConvKey {
  Dtype dtype = Dtype::kFp32;
  ConvShape shape;
  ConvPass pass = ConvPass::kForward;

  auto operator<=>(const ConvKey&) const = default;
};

/// The only type that cuDNN 9.19 offers fused passes for, on an H200.
inline constexpr Dtype kFusedDtype = Dtype::kFp16;

/// Every convolution that a training step of `model` may make, once: all passes of all layers, less
/// the gradient of the images. Fused ones among them in kFusedDtype; which of them can be had is
/// another question.
[[nodiscard]] std::set<ConvKey> convolutions_of_step(const Model& model, std::uint32_t microbatch,
                                                     Dtype dtype);

/// What stands in a table for one convolution.
struct EngineEntry {
  EngineName engine;
  double microseconds = 0;        ///< median of its rounds when the table was made, for people
  double first_microseconds = 0;  ///< that of the engine that cuDNN offers first
};

class EngineTable {
 public:
  /// Empty. `kind` is that of the GPU and cuDNN, see kind_of() in cudnn_facts.
  explicit EngineTable(std::string kind) : kind_(std::move(kind)) {}

  /// What text() wrote. kCorrupt with the line that is wrong: anything unknown, or one convolution
  /// twice.
  [[nodiscard]] static Result<EngineTable> parse(std::string_view text);
  /// Tab-separated columns with a line that names them, in a fixed order.
  [[nodiscard]] std::string text() const;

  /// Null: no engine is known for it.
  [[nodiscard]] const EngineEntry* find(const ConvKey& key) const;
  /// Replaces what is there.
  void set(const ConvKey& key, const EngineEntry& entry);
  /// Takes everything of `newer`, which is of the same kind, and keeps what it lacks.
  void merge(const EngineTable& newer);

  [[nodiscard]] const std::string& kind() const { return kind_; }
  [[nodiscard]] std::size_t size() const { return entries_.size(); }

  /// What of it these convolutions use.
  [[nodiscard]] EngineTable used_by(const std::set<ConvKey>& convolutions) const;
  /// Of convolutions and engines, not of times.
  [[nodiscard]] Digest digest() const;

 private:
  std::string kind_;
  std::map<ConvKey, EngineEntry> entries_;
};

/// How `convolutions` are computed, for a job's fingerprint: "cudnn" if the table has nothing for
/// them, else also how many engines it names and their digest.
[[nodiscard]] std::string engines_fingerprint(const EngineTable& table,
                                              const std::set<ConvKey>& convolutions);

/// "the forward pass of 8 x 64 x 56 x 56 -> 128, 3x3 stride 2 in fp16"
[[nodiscard]] std::string text_of(const ConvKey& key);

/// An engine that was planned, but does not run on this device.
struct EngineRefusal {
  ConvKey key;
  EngineName engine;
  std::string why;  ///< in the words of cuDNN

  /// One line for the log: for which convolution, which engine, why, and what is done instead.
  [[nodiscard]] std::string text() const;
};

/// What became of a table when a step was planned.
struct EngineUse {
  std::size_t convolutions = 0;
  std::size_t by_table = 0;
  std::size_t fused = 0;                       ///< with what comes before or behind (ConvPass)
  std::size_t refused = 0;                     ///< in the table, but not possible
  std::string first_refusal = {};              ///< of one of these, in one line
  std::map<ConvKey, EngineName> engines = {};  ///< of every convolution that is computed
  std::vector<EngineRefusal> not_run = {};     ///< planned, but refused by the device

  /// One line for the log; empty if every convolution is computed as the table says.
  [[nodiscard]] std::string remark() const;
  /// What the bits depend on, for a job's fingerprint: how many engines, a digest of them and of
  /// what they compute, and the first that the device refused.
  [[nodiscard]] std::string fingerprint() const;
  /// A line for each refusal.
  [[nodiscard]] std::vector<std::string> warnings() const;
};

}  // namespace mayfly::nn::cuda
