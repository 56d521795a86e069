#include "tests/unit/engine/trainer/linear_model.hpp"

#include <algorithm>
#include <array>
#include <atomic>
#include <chrono>
#include <cstring>
#include <deque>
#include <memory>
#include <optional>
#include <set>
#include <span>
#include <thread>
#include <utility>
#include <vector>

#include "base/check.hpp"
#include "base/digest.hpp"
#include "base/random.hpp"
#include "collectives/plan/exact_sum.hpp"

namespace mayfly::test_support {
namespace {

using engine::GradientBuckets;
using engine::ObservedStep;
using engine::ReductionLayout;

constexpr std::size_t kInputs = 5;
constexpr std::size_t kParameters = kInputs + 1;
constexpr std::uint64_t kSamples = 64;
constexpr float kRate = 0.05F;
// The least time of a microbatch, so that a joining worker becomes a member before the job ends.
constexpr std::chrono::microseconds kPace{200};
constexpr float kMomentum = 0.5F;

/// The statistic is the running mean of the targets.
ReductionLayout make_linear_layout() {
  return ReductionLayout({{{"target.mean", 1}}, {{"weight", kInputs}, {"bias", 1}}}, 1);
}

struct LinearState {
  Step committed{};
  std::array<float, kParameters> parameters{};
  std::array<float, kParameters> velocity{};
  float target_mean = 0;
  std::vector<std::int32_t> exponents;

  void apply(const ObservedStep& step, const ReductionLayout& layout) {
    ENSURE(step.step == next(committed) && !step.is_skipped, "steps come in order");
    const std::span<const float> gradient =
        step.means.span().subspan(layout.parameters_offset(), kParameters);
    for (std::size_t i = 0; i < kParameters; ++i) {
      velocity[i] = kMomentum * velocity[i] + gradient[i];
      parameters[i] -= kRate * velocity[i];
    }
    target_mean = 0.9F * target_mean + 0.1F * step.means[layout.statistics_offset()];
    exponents = step.next_exponents;
    committed = step.step;
  }

  [[nodiscard]] Bytes packed() const {
    Bytes bytes;
    const auto add = [&bytes](const void* data, std::size_t size) {
      const auto* const first = static_cast<const std::byte*>(data);
      bytes.insert(bytes.end(), first, first + size);
    };
    add(&committed, sizeof committed);
    add(parameters.data(), sizeof parameters);
    add(velocity.data(), sizeof velocity);
    add(&target_mean, sizeof target_mean);
    add(exponents.data(), exponents.size() * sizeof(std::int32_t));
    return bytes;
  }
  [[nodiscard]] Result<void> unpack(ByteSpan bytes) {
    if (bytes.size() != packed().size()) {
      return Error{Errc::kCorrupt, "a linear state of another size"};
    }
    const auto take = [&bytes](void* data, std::size_t size) {
      std::memcpy(data, bytes.data(), size);
      bytes = bytes.subspan(size);
    };
    take(&committed, sizeof committed);
    take(parameters.data(), sizeof parameters);
    take(velocity.data(), sizeof velocity);
    take(&target_mean, sizeof target_mean);
    take(exponents.data(), exponents.size() * sizeof(std::int32_t));
    return {};
  }
  [[nodiscard]] Digest digest() const { return digest_of(packed()); }
  [[nodiscard]] std::uint32_t check() const { return static_cast<std::uint32_t>(digest().low); }
};

class LinearKeeper final : public engine::StateKeeper {
 public:
  LinearKeeper(const engine::Job& job, const ReductionLayout& layout)
      : layout_(layout), means_(layout, job.microbatches) {
    state_.exponents.assign(layout.blocks().block_count(), collectives::kUnsetExponent);
  }
  /// To be called before the first step. The constructor cannot take the computer, which reads the
  /// keeper's state.
  void add(engine::Computer& computer) { computer_ = &computer; }
  [[nodiscard]] const LinearState& state() const { return state_; }

  Step committed() const override { return state_.committed; }
  const std::vector<std::int32_t>& exponents() const override { return state_.exponents; }
  std::optional<nn::LossScale> loss_scale() const override { return std::nullopt; }
  double learning_rate() const override { return kRate; }
  void draw_weights() override {}
  bool is_on_device() const override { return false; }
  double apply(const GradientBuckets& reduced, std::span<const std::int32_t> exponents,
               bool skips) override {
    ENSURE(!skips, "without a loss scale no update is skipped");
    ObservedStep step;
    step.step = next(state_.committed);
    means_.observe(reduced, exponents, *computer_, step);
    state_.apply(step, layout_);
    return means_.loss(reduced, exponents);
  }

  std::size_t packed_size() const override { return state_.packed().size(); }
  void prepare_to_pack() override {}
  void pack(std::size_t first, std::span<std::byte> out) const override {
    std::ranges::copy(ByteSpan(state_.packed()).subspan(first, out.size()), out.begin());
  }
  Result<void> unpack(ByteSpan packed) override { return state_.unpack(packed); }
  std::unique_ptr<engine::ObservedState> make_observed() override;
  nn::CheckpointFiles checkpoint() override { return {{"linear", state_.packed()}}; }

  std::uint64_t rest_hash() override { return 0; }
  std::uint32_t check(std::optional<std::uint64_t> /*rest*/) override { return state_.check(); }
  Digest digest() override { return state_.digest(); }
  std::vector<std::uint64_t> part_hashes() override { return {state_.digest().low}; }

 private:
  class Observed;
  const ReductionLayout& layout_;
  const engine::StepMeans means_;
  engine::Computer* computer_ = nullptr;
  LinearState state_;
};

class LinearKeeper::Observed final : public engine::ObservedState {
 public:
  explicit Observed(LinearKeeper& keeper) : keeper_(keeper), state_(keeper.state_) {}
  Result<void> unpack(ByteSpan packed) override { return state_.unpack(packed); }
  Step committed() const override { return state_.committed; }
  std::uint32_t check() const override { return state_.check(); }
  void apply(const ObservedStep& step) override { state_.apply(step, keeper_.layout_); }
  void hand_over() override { keeper_.state_ = state_; }

 private:
  LinearKeeper& keeper_;
  LinearState state_;
};

std::unique_ptr<engine::ObservedState> LinearKeeper::make_observed() {
  return std::make_unique<Observed>(*this);
}

class LinearFeed final : public datasets::Feed {
 public:
  explicit LinearFeed(std::function<void()> unrequested) : unrequested_(std::move(unrequested)) {}

  void request(std::uint64_t step, std::span<const std::uint32_t> microbatches) override {
    for (const std::uint32_t microbatch : microbatches) {
      requested_.insert({step, microbatch});
    }
  }
  void cancel_requests() override { requested_.clear(); }
  datasets::LoaderWait time_waited() const override { return {}; }
  datasets::LoaderWork work() const override { return {}; }
  datasets::FeedSettings settings() const override { return {}; }

  void take(std::uint64_t step, std::uint32_t microbatch) {
    if (requested_.erase({step, microbatch}) == 0) {
      unrequested_();
    }
  }

 private:
  const std::function<void()> unrequested_;
  std::set<std::pair<std::uint64_t, std::uint32_t>> requested_;
};

/// Computes within the calls that wait for it, without a thread of its own, like a user's program
/// that the trainer asks for one microbatch after the other.
class LinearComputer final : public engine::Computer {
 public:
  LinearComputer(const engine::Job& job, const ReductionLayout& layout, const LinearState& state,
                 LinearFeed* feed)
      : job_(job),
        layout_(layout),
        state_(state),
        feed_(feed),
        sums_(layout, job.wire, job.microbatches) {}

  void begin_step(std::uint64_t step, std::span<const std::int32_t> exponents,
                  std::optional<std::uint32_t> audited) override {
    ENSURE(queue_.empty(), "a step begins when the one before is complete or discarded");
    step_ = step;
    audited_ = audited;
    audited_hash_.reset();
    sums_.clear(exponents, step);
  }
  void add_microbatches(std::span<const std::uint32_t> microbatches) override {
    queue_.insert(queue_.end(), microbatches.begin(), microbatches.end());
  }
  bool wait_for_bucket(std::size_t bucket) override {
    if (!wait_for_step()) {
      return false;
    }
    sums_.settle(bucket);
    return true;
  }
  bool wait_for_step() override {
    while (!queue_.empty() && !is_interrupted_) {
      compute(queue_.front());
      queue_.pop_front();
    }
    return !is_interrupted_;
  }
  const engine::GradientSums& sums() const override { return sums_; }
  std::optional<std::uint64_t> audited_hash() const override { return audited_hash_; }
  std::optional<std::uint64_t> recompute(std::uint32_t microbatch) override {
    engine::StepTotals totals;
    return hash_of(result_of(microbatch, totals));
  }
  void discard() override { queue_.clear(); }
  void drop_queued() override { queue_.clear(); }
  void interrupt() override { is_interrupted_ = true; }
  void clear_interrupt() override { is_interrupted_ = false; }
  std::optional<Error> failure() const override { return std::nullopt; }
  std::size_t test_chunks() const override { return 0; }
  engine::EvaluationSums evaluate(std::span<const std::uint32_t> /*chunks*/) override { return {}; }
  void run_parts(const engine::PartFunction& function) override { function(0, 1); }
  std::size_t thread_count() const override { return 1; }
  engine::ComputeSpeed take_speed() override { return {}; }
  engine::ComputeWork computed() const override { return {}; }

 private:
  [[nodiscard]] static std::uint64_t hash_of(const std::vector<float>& result) {
    return digest_of(std::as_bytes(std::span(result))).low;
  }
  void compute(std::uint32_t microbatch) {
    if (feed_ != nullptr) {
      feed_->take(step_, microbatch);
    }
    std::this_thread::sleep_for(kPace);
    engine::StepTotals totals;
    const std::vector<float> result = result_of(microbatch, totals);
    for (std::size_t b = 0; b < layout_.buckets().size(); ++b) {
      sums_.add_bucket(b, result, microbatch);
    }
    sums_.add_totals(totals);
    if (audited_ == microbatch) {
      audited_hash_ = hash_of(result);
    }
  }

  /// [loss | statistics | gradients] of a microbatch.
  [[nodiscard]] std::vector<float> result_of(std::uint32_t microbatch,
                                             engine::StepTotals& totals) const {
    const std::uint32_t size = job_.config.microbatch;
    const float share = 1.0F / static_cast<float>(size);
    std::vector<float> result(layout_.element_count());
    const std::span<float> gradient = std::span(result).subspan(layout_.parameters_offset());
    for (std::uint32_t i = 0; i < size; ++i) {
      const std::uint64_t position =
          (step_ - 1) * job_.config.global_batch + std::uint64_t{microbatch} * size + i;
      const std::uint64_t sample = position % kSamples;
      totals.add_sample(sample);
      RandomStream random{CounterRandom(job_.config.seed).split(sample)};
      std::array<float, kParameters> input{};
      input.back() = 1;
      float target = 3;
      for (std::size_t k = 0; k < kInputs; ++k) {
        input[k] = static_cast<float>(random.unit() - 0.5);
        target += static_cast<float>(k) * input[k];
      }
      float error = -target;
      for (std::size_t k = 0; k < kParameters; ++k) {
        error += state_.parameters[k] * input[k];
      }
      result[0] += share * error * error;
      result[layout_.statistics_offset()] += share * target;
      for (std::size_t k = 0; k < kParameters; ++k) {
        gradient[k] += share * 2 * error * input[k];
      }
    }
    return result;
  }

  const engine::Job& job_;
  const ReductionLayout& layout_;
  const LinearState& state_;
  LinearFeed* const feed_;  // null = none
  engine::GradientSums sums_;
  std::deque<std::uint32_t> queue_;
  std::uint64_t step_ = 0;
  std::optional<std::uint32_t> audited_;
  std::optional<std::uint64_t> audited_hash_;
  std::atomic<bool> is_interrupted_{false};
};

}  // namespace

WorkerKit make_linear_kit(const engine::JobConfig& config, bool has_feed,
                          const std::function<void()>& unrequested) {
  WorkerKit kit;
  kit.job = std::make_unique<engine::Job>();
  kit.job->config = config;
  kit.job->facts.train_samples = kSamples;
  kit.job->total_steps = config.steps;
  kit.job->microbatches = config.global_batch / config.microbatch;
  kit.job->bucket_size.elements = 1;
  kit.layout = std::make_unique<ReductionLayout>(make_linear_layout());
  auto feed = has_feed ? std::make_unique<LinearFeed>(unrequested) : nullptr;
  auto keeper = std::make_unique<LinearKeeper>(*kit.job, *kit.layout);
  kit.computer =
      std::make_unique<LinearComputer>(*kit.job, *kit.layout, keeper->state(), feed.get());
  keeper->add(*kit.computer);
  kit.feed = std::move(feed);
  kit.state = std::move(keeper);
  return kit;
}

}  // namespace mayfly::test_support
