#include "tests/unit/nn/cuda/reference_executor.hpp"

#include <algorithm>
#include <bit>
#include <cstring>

#include "base/check.hpp"
#include "nn/cuda/kernels/values.hpp"

namespace mayfly::nn::cuda {
namespace {

float read(const void* memory, std::size_t at, Dtype dtype) {
  if (dtype == Dtype::kFp32) {
    return static_cast<const float*>(memory)[at];
  }
  const std::uint16_t half = static_cast<const std::uint16_t*>(memory)[at];
  if (dtype == Dtype::kFp16) {
    return on_host::widen(on_host::Fp16{half});
  }
  return std::bit_cast<float>(std::uint32_t{half} << 16);
}

void write(void* memory, std::size_t at, Dtype dtype, float value) {
  if (dtype == Dtype::kFp32) {
    static_cast<float*>(memory)[at] = value;
    return;
  }
  if (dtype == Dtype::kFp16) {
    on_host::store_value(value, static_cast<on_host::Fp16*>(memory) + at);
    return;
  }
  const auto bits = std::bit_cast<std::uint32_t>(value);
  static_cast<std::uint16_t*>(memory)[at] =
      static_cast<std::uint16_t>((bits + 0x7FFFU + ((bits >> 16) & 1U)) >> 16);
}

std::vector<float> read_all(const void* memory, std::size_t count, Dtype dtype) {
  std::vector<float> values(count);
  for (std::size_t i = 0; i < count; ++i) {
    values[i] = read(memory, i, dtype);
  }
  return values;
}

void write_all(void* memory, std::span<const float> values, Dtype dtype) {
  for (std::size_t i = 0; i < values.size(); ++i) {
    write(memory, i, dtype, values[i]);
  }
}

/// Calls visit(x, filter, y) for each output pixel and each place of the filter that is inside the
/// image. The arguments are the first elements of three runs over channels: of the input pixel at
/// that place, of the place in the filter of an output channel, and of the output pixel.
template <typename Visit>
void for_each_place(const ConvShape& shape, const Visit& visit) {
  const std::int64_t k = shape.kernel;
  for (std::int64_t n = 0; n < shape.images; ++n) {
    for (std::int64_t row = 0; row < shape.output_size; ++row) {
      for (std::int64_t column = 0; column < shape.output_size; ++column) {
        for (std::int64_t place = 0; place < k * k; ++place) {
          const std::int64_t from_row = row * shape.stride + place / k - shape.padding;
          const std::int64_t from_column = column * shape.stride + place % k - shape.padding;
          if (std::min(from_row, from_column) < 0 ||
              std::max(from_row, from_column) >= shape.input_size) {
            continue;
          }
          const std::int64_t x = (n * shape.input_size + from_row) * shape.input_size + from_column;
          const std::int64_t y = (n * shape.output_size + row) * shape.output_size + column;
          visit(static_cast<std::size_t>(x * shape.in_channels),
                static_cast<std::size_t>(place * shape.in_channels),
                static_cast<std::size_t>(y * shape.out_channels));
        }
      }
    }
  }
}

}  // namespace

Result<void> NaiveConvolver::convolve(std::size_t /*operation*/, const Convolve& what,
                                      const ConvTensors& tensors, Stream /*stream*/) {
  const ConvShape& shape = plan_.layers[what.layer].conv;
  const Dtype dtype = plan_.dtype;
  const auto in = static_cast<std::size_t>(shape.in_channels);
  const auto out = static_cast<std::size_t>(shape.out_channels);
  const std::size_t next_filter = shape.filter_elements() / out;
  std::vector<float> x = read_all(tensors.x, shape.input_elements(), dtype);
  std::vector<float> filter = read_all(tensors.filter, shape.filter_elements(), dtype);
  std::vector<float> y = read_all(tensors.y, shape.output_elements(), dtype);
  const ConvPass pass = what.pass;
  std::vector<float>& result = pass == ConvPass::kForward         ? y
                               : pass == ConvPass::kInputGradient ? x
                                                                  : filter;
  std::ranges::fill(result, 0.0F);
  for_each_place(shape, [&](std::size_t x_at, std::size_t filter_at, std::size_t y_at) {
    for (std::size_t o = 0; o < out; ++o) {
      float* const xs = x.data() + x_at;
      float* const weights = filter.data() + o * next_filter + filter_at;
      float& there = y[y_at + o];
      switch (pass) {
        case ConvPass::kForward:
          for (std::size_t i = 0; i < in; ++i) {
            there += xs[i] * weights[i];
          }
          break;
        case ConvPass::kInputGradient:
          for (std::size_t i = 0; i < in; ++i) {
            xs[i] += there * weights[i];
          }
          break;
        case ConvPass::kWeightGradient:
          for (std::size_t i = 0; i < in; ++i) {
            weights[i] += there * xs[i];
          }
          break;
      }
    }
  });
  void* const place = pass == ConvPass::kForward         ? tensors.y
                      : pass == ConvPass::kInputGradient ? tensors.x
                                                         : tensors.filter;
  write_all(place, result, dtype);
  return {};
}

ReferenceExecutor::ReferenceExecutor(const Model& model, std::uint32_t microbatch,
                                     const StepPlanOptions& options)
    : microbatch_(microbatch),
      plan_(make_step_plan(model, microbatch, options)),
      memory_(plan_.memory.total()),
      convolver_(plan_),
      executor_(plan_, host_kernels(), convolver_, memory_.data()) {
  // These bytes are NaN in each type: a result shows whether memory was read before it was written.
  std::memset(memory_.data(), 0xFF, memory_.size());
  std::memcpy(executor_.at(plan_.resident.filter_table), plan_.filters.data(),
              plan_.filters.size() * sizeof(Filter));
}

void ReferenceExecutor::run(const OperationRange& range) {
  const Result<void> outcome = executor_.run(range, nullptr);
  ENSURE(outcome.ok(), outcome.error().detail.c_str());
}

void ReferenceExecutor::load(const Weights& weights) {
  std::ranges::copy(weights.parameters, executor_.floats(plan_.resident.parameters));
  std::ranges::copy(weights.statistics, executor_.floats(plan_.resident.running_statistics));
  run(plan_.load);
}

void ReferenceExecutor::take_training_set(const TrainingSet& set) {
  auto* const pixels = static_cast<std::uint8_t*>(executor_.at(plan_.resident.set_pixels));
  const Result<void> read = read_in_pieces(
      set, [pixels](std::size_t first, std::span<const std::uint8_t> piece) -> Result<void> {
        std::ranges::copy(piece, pixels + first);
        return {};
      });
  ENSURE(read.ok(), read.error().detail.c_str());
  std::memcpy(executor_.at(plan_.resident.set_table), set.table.data(), sizeof set.table);
}

void ReferenceExecutor::take_images(const Batch& batch, TensorId images) {
  std::ranges::copy(batch.images, executor_.floats(images));
}

void ReferenceExecutor::take_labels(const Batch& batch, TensorId labels, const LossInput& input) {
  auto* const to = static_cast<std::uint16_t*>(executor_.at(labels));
  std::fill_n(to, microbatch_, std::uint16_t{0});
  std::ranges::copy(batch.labels, to);
  *static_cast<LossInput*>(executor_.at(plan_.resident.loss_input)) = input;
}

TrainResult ReferenceExecutor::train(const Weights& weights, const Batch& batch,
                                     float label_smoothing, std::span<float> gradient,
                                     std::span<float> statistics, GradientSink& sink) {
  load(weights);
  if (holds_training_set()) {
    std::memcpy(executor_.at(plan_.resident.train_draws), batch.draws.data(),
                batch.draws.size_bytes());
  } else {
    take_images(batch, plan_.resident.train_images);
  }
  take_labels(batch, plan_.resident.train_labels,
              training_input(label_smoothing, microbatch_, weights.loss_scale));
  std::size_t end = gradient.size();
  for (const Segment& segment : plan_.training) {
    run(segment.operations);
    std::copy_n(executor_.floats(plan_.resident.gradient) + segment.ready_from,
                end - segment.ready_from, gradient.data() + segment.ready_from);
    end = segment.ready_from;
    sink.ready_from(end);
  }
  std::copy_n(executor_.floats(plan_.resident.batch_statistics), statistics.size(),
              statistics.data());
  const auto* output = static_cast<const LossOutput*>(executor_.at(plan_.resident.loss_output));
  return {.loss = static_cast<float>(output->loss_sum / microbatch_), .correct = output->correct};
}

EvaluationResult ReferenceExecutor::evaluate(const Weights& weights, const Batch& batch) {
  load(weights);
  take_images(batch, plan_.resident.evaluate_images);
  take_labels(batch, plan_.resident.evaluate_labels,
              {.smoothing = 0, .count = static_cast<std::uint32_t>(batch.labels.size())});
  run(plan_.evaluation);
  const auto* output = static_cast<const LossOutput*>(executor_.at(plan_.resident.loss_output));
  return {.loss_sum = output->loss_sum, .correct = output->correct};
}

}  // namespace mayfly::nn::cuda
