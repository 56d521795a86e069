#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "base/digest.hpp"
#include "base/result.hpp"
#include "datasets/dataset.hpp"
#include "engine/config/config.hpp"
#include "engine/config/derived_settings.hpp"
#include "nn/dtype.hpp"
#include "nn/model.hpp"
#include "nn/optimizer.hpp"

namespace mayfly::engine {

/// The properties that must be equal on all workers of a job, as (name, value) in a fixed order.
using Fingerprint = std::vector<std::pair<std::string, std::string>>;

/// The facts that a program of the user's own (is_program()) states about its job. They must be
/// equal in all workers.
struct ProgramFacts {
  std::uint64_t steps = 0;  ///< of the whole job; 0 = the job is not a program's
  std::uint32_t global_batch = 0;
  std::uint32_t microbatch = 0;
  std::uint64_t test_samples = 0;    ///< 0 = nothing is evaluated
  std::vector<std::string> tensors;  ///< names of the state's tensors, for messages
  std::vector<std::pair<std::string, std::string>> equals;  ///< (name, text) of its own settings
  std::vector<std::string> sums = {};                       ///< names of its evaluations' sums

  /// Their description for JSON; see engine/run/records.hpp.
  static void fields(auto& io, auto& r) {
    io("steps", r.steps);
    io("global_batch", r.global_batch);
    io("microbatch", r.microbatch);
    io("test_samples", r.test_samples);
    io("tensors", r.tensors);
    io("equals", r.equals);
    io.unless(std::vector<std::string>(), "sums", r.sums);
  }
  friend bool operator==(const ProgramFacts&, const ProgramFacts&) = default;
};

/// The facts that a job takes from its data set and from the machine that computes it, rather than
/// from its settings.
struct JobFacts {
  std::string data;  ///< datasets::DatasetPair::name
  Digest data_digest;
  Digest test_digest{};  ///< of the test set
  int classes = 0;
  int image_size = 0;  ///< input resolution in pixels (height = width)
  std::uint64_t train_samples = 0;
  datasets::LeftOut left_out;
  std::string device;        ///< device_identity() of the computing device
  std::string isa;           ///< instruction set the arithmetic is fixed to
  std::string conv_kernels;  ///< nn::cpu::conv_kernels_fingerprint(), or cuDNN's
  std::string jpeg{};        ///< datasets::jpeg_identity() if images are decoded while training
  ProgramFacts program;

  /// Their description for JSON; see engine/run/records.hpp.
  static void fields(auto& io, auto& r) {
    io("data", r.data);
    io("data_digest", r.data_digest);
    io.unless(Digest(), "test_digest", r.test_digest);
    io("classes", r.classes);
    io("image_size", r.image_size);
    io("train_samples", r.train_samples);
    io("left_out", r.left_out);
    io("device", r.device);
    io("isa", r.isa);
    io("conv_kernels", r.conv_kernels);
    io.unless(std::string(), "jpeg", r.jpeg);
    io.unless(ProgramFacts(), "program", r.program);
  }
};

/// A configuration with everything derived from it and from the data set. Immutable once prepared.
/// It is equal on all workers; the coordinator verifies this with the fingerprint.
struct Job {
  JobConfig config;
  nn::Model model;
  datasets::DatasetPair data;  ///< has no images in a process that received the facts of the job
  JobFacts facts;
  nn::Schedule schedule;
  std::uint64_t total_steps = 0;
  std::uint64_t evaluate_every_steps = 0;  ///< 0 = only at the end
  std::uint32_t microbatches = 0;          ///< per step
  nn::Dtype dtype = nn::Dtype::kFp32;      ///< of activations
  Wire wire = Wire::kInt32;                ///< of the gradients of parameters
  BucketSize bucket_size;
  std::optional<Digest> initial_weights;  ///< of init_from's content, if the job starts from it
  Fingerprint fingerprint;

  [[nodiscard]] bool exact() const { return is_exact(wire); }
  [[nodiscard]] double epochs_at(std::uint64_t step) const {
    return static_cast<double>(step) * config.global_batch /
           static_cast<double>(facts.train_samples);
  }
};

/// Workers of one job must have the same version: equal bits are guaranteed within a version only.
inline constexpr const char* kVersion = "0.1.0";

}  // namespace mayfly::engine
