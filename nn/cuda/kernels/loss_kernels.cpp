// Softmax cross entropy with smoothed labels, top-1 hits and the gradient of the logits, as
// nn/cpu/classifier defines them. Sums over classes and images are trees here, so the loss may
// differ from the CPU's in a double's last digits.

#include "base/portable_math.hpp"
#include "nn/cuda/kernels/launch.hpp"
#include "nn/cuda/kernels/parts.hpp"

namespace mayfly::nn::cuda::MAYFLY_SIDE {
namespace {

/// One block for each image.
struct Loss {
  static constexpr int kThreads = 128;
  static constexpr int kFolds = 7;
  // Phases: three trees, each with a phase that fills it and its folds; then the result.
  static constexpr int kSum = 1 + kFolds;
  static constexpr int kGradient = 2 * (1 + kFolds);
  static constexpr int kAnswer = 3 * (1 + kFolds);

  struct Shared {
    double best[kThreads];
    std::uint32_t where[kThreads];
    double sum[kThreads];
    double loss[kThreads];
  };
  using State = Nothing;

  std::uint32_t images;
  std::uint32_t classes;
  const std::uint16_t* labels;
  const LossInput* input;
  const double* logits;
  double* logit_gradients;
  double* losses;
  std::uint32_t* hits;

  MAYFLY_HOST_DEVICE int phases() const { return kAnswer + 1; }

  MAYFLY_HOST_DEVICE void phase(int number, const Place& at, State& /*state*/,
                                Shared& shared) const {
    if (number < kSum) {
      number == 0 ? find_best(at, shared) : fold_best(number, at.thread, shared);
    } else if (number < kGradient) {
      number == kSum ? sum_exponentials(at, shared) : fold(number - kSum, at.thread, shared.sum);
    } else if (number < kAnswer) {
      number == kGradient ? derive(at, shared) : fold(number - kGradient, at.thread, shared.loss);
    } else if (at.thread == 0) {
      losses[at.block] = shared.loss[0];
      hits[at.block] = shared.where[0] == labels[at.block] ? 1U : 0U;
    }
  }

  MAYFLY_HOST_DEVICE const double* logits_of(const Place& at) const {
    return logits + std::uint64_t{at.block} * classes;
  }

  /// A thread without a class has the first class's logit.
  MAYFLY_HOST_DEVICE void find_best(const Place& at, Shared& shared) const {
    const double* const from = logits_of(at);
    std::uint32_t where = at.thread < classes ? at.thread : 0;
    double best = from[where];
    for (std::uint32_t k = at.thread + kThreads; k < classes; k += kThreads) {
      where = from[k] > best ? k : where;
      best = from[k] > best ? from[k] : best;
    }
    shared.best[at.thread] = best;
    shared.where[at.thread] = where;
  }
  /// The first of equal logits is the best.
  MAYFLY_HOST_DEVICE static void fold_best(int number, std::uint32_t thread, Shared& shared) {
    const std::uint32_t half = static_cast<std::uint32_t>(kThreads) >> number;
    if (thread < half) {
      const double other = shared.best[thread + half];
      const std::uint32_t where = shared.where[thread + half];
      const bool is_better = other > shared.best[thread] ||
                             (other == shared.best[thread] && where < shared.where[thread]);
      if (is_better) {
        shared.best[thread] = other;
        shared.where[thread] = where;
      }
    }
  }
  MAYFLY_HOST_DEVICE static void fold(int number, std::uint32_t thread, double* values) {
    const std::uint32_t half = static_cast<std::uint32_t>(kThreads) >> number;
    if (thread < half) {
      values[thread] += values[thread + half];
    }
  }

  MAYFLY_HOST_DEVICE void sum_exponentials(const Place& at, Shared& shared) const {
    const double* const from = logits_of(at);
    double sum = 0;
    for (std::uint32_t k = at.thread; k < classes; k += kThreads) {
      sum += portable_exp(from[k] - shared.best[0]);
    }
    shared.sum[at.thread] = sum;
  }

  MAYFLY_HOST_DEVICE void derive(const Place& at, Shared& shared) const {
    const double* const from = logits_of(at);
    double* const to = logit_gradients + std::uint64_t{at.block} * classes;
    const double normaliser = shared.best[0] + portable_log(shared.sum[0]);
    const auto smoothing = static_cast<double>(input->smoothing);
    const double off_target = smoothing / static_cast<double>(classes);
    double loss = 0;
    for (std::uint32_t k = at.thread; k < classes; k += kThreads) {
      const double on_target = k == labels[at.block] ? 1.0 - smoothing : 0.0;
      const double target = on_target + off_target;
      const double log_probability = from[k] - normaliser;
      if (target != 0) {
        loss -= target * log_probability;
      }
      to[k] = (portable_exp(log_probability) - target) / static_cast<double>(images);
    }
    shared.loss[at.thread] = loss;
  }
};

/// Over all images that count; one block.
struct TotalLoss {
  static constexpr int kThreads = 256;
  static constexpr int kFolds = 8;

  struct Shared {
    double loss[kThreads];
    std::uint32_t hits[kThreads];
  };
  using State = Nothing;

  std::uint32_t images;
  const LossInput* input;
  const double* losses;
  const std::uint32_t* hits;
  LossOutput* output;

  MAYFLY_HOST_DEVICE int phases() const { return 2 + kFolds; }

  MAYFLY_HOST_DEVICE void phase(int number, const Place& at, State& /*state*/,
                                Shared& shared) const {
    if (number == 0) {
      const std::uint32_t count = input->count < images ? input->count : images;
      double loss = 0;
      std::uint32_t correct = 0;
      for (std::uint32_t image = at.thread; image < count; image += kThreads) {
        loss += losses[image];
        correct += hits[image];
      }
      shared.loss[at.thread] = loss;
      shared.hits[at.thread] = correct;
    } else if (number <= kFolds) {
      const std::uint32_t half = static_cast<std::uint32_t>(kThreads) >> number;
      if (at.thread < half) {
        shared.loss[at.thread] += shared.loss[at.thread + half];
        shared.hits[at.thread] += shared.hits[at.thread + half];
      }
    } else if (at.thread == 0) {
      *output = {shared.loss[0], shared.hits[0], 0};
    }
  }
};

int classifier_loss(const ClassifierShape& shape, const std::uint16_t* labels,
                    const LossInput* input, const ClassifierMemory& memory, LossOutput* output,
                    Stream stream) {
  if (shape.images == 0 || shape.classes < 2) {
    return kInvalidArguments;
  }
  const int each = launch_blocks(Loss{shape.images, shape.classes, labels, input, memory.logits,
                                      memory.logit_gradients, memory.losses, memory.hits},
                                 {shape.images, 1}, stream);
  const int total = launch_blocks(
      TotalLoss{shape.images, input, memory.losses, memory.hits, output}, {1, 1}, stream);
  return first_failure(each, total);
}

}  // namespace

void add_loss_kernels(Kernels& table) {
  table.classifier_loss = classifier_loss;
}

int load_loss_kernels() {
  return load_blocks<Loss, TotalLoss>();
}

}  // namespace mayfly::nn::cuda::MAYFLY_SIDE
