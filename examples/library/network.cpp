// A network of libtorch, PyTorch's C++ interface, elastic: classifies points in a spiral.
//   mayfly run --workers 3 -- ./network 300
//   find_package(Torch REQUIRED)  find_package(Mayfly REQUIRED)
//   target_link_libraries(network PRIVATE ${TORCH_LIBRARIES} Mayfly::mayfly)
#include <torch/torch.h>

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <mayfly/job.hpp>

namespace {

constexpr std::int64_t kArms = 3;

/// Two coordinates of each sample, and the number of its arm of the spiral.
std::pair<torch::Tensor, torch::Tensor> batch_of(std::span<const std::uint64_t> samples) {
  const auto count = static_cast<std::int64_t>(samples.size());
  torch::Tensor points = torch::empty({count, 2});
  torch::Tensor arms = torch::empty({count}, torch::kLong);
  for (std::int64_t i = 0; i < count; ++i) {
    const std::uint64_t sample = samples[static_cast<std::size_t>(i)];
    const auto arm = static_cast<std::int64_t>(sample) % kArms;
    const float radius = static_cast<float>(sample) / 900;
    const float angle = 4 * radius + 2.1F * static_cast<float>(arm);
    points[i][0] = radius * std::cos(angle);
    points[i][1] = radius * std::sin(angle);
    arms[i] = arm;
  }
  return {points, arms};
}

mayfly::Tensor described(const std::string& name, const torch::Tensor& tensor) {
  return {name, tensor.scalar_type() == torch::kLong ? MF_I64 : MF_F32, tensor.sizes().vec(),
          tensor.data_ptr()};
}

mayfly::Evaluation evaluated(torch::nn::Sequential& model, std::span<const std::uint64_t> samples) {
  namespace functional = torch::nn::functional;
  model->eval();
  const torch::NoGradGuard no_grad;
  const auto [points, arms] = batch_of(samples);
  const torch::Tensor scores = model->forward(points);
  model->train();
  const torch::Tensor right = (scores.argmax(1) == arms).sum();
  const auto summed = functional::CrossEntropyFuncOptions().reduction(torch::kSum);
  return {static_cast<std::uint64_t>(right.item<std::int64_t>()),
          functional::cross_entropy(scores, arms, summed).item<double>()};
}

/// Gradient descent with momentum, which is a part of the job's state.
struct Optimizer {
  std::vector<torch::Tensor> weights;
  std::vector<torch::Tensor> velocities;

  void update(const mayfly::Step& step) {
    const torch::NoGradGuard no_grad;
    for (std::size_t i = 0; i < weights.size(); ++i) {
      auto* mean = const_cast<float*>(step.gradient(i));
      velocities[i].mul_(0.9).add_(torch::from_blob(mean, weights[i].sizes()));
      weights[i].sub_(velocities[i], 0.05);
    }
  }
  /// A checkpoint may be that of a version of this program with another optimizer.
  void load(const mf_loaded_state& state) {
    for (std::size_t i = 0; i < velocities.size(); ++i) {
      if (state.tensor_count != velocities.size() || state.tensors[i].type != MF_F32 ||
          !std::ranges::equal(std::span(state.tensors[i].shape, state.tensors[i].dimensions),
                              velocities[i].sizes())) {
        std::fprintf(stderr, "network: the received state has another optimizer\n");
        std::exit(2);
      }
      std::memcpy(velocities[i].data_ptr(), state.tensors[i].data, velocities[i].nbytes());
    }
  }
};

}  // namespace

int main(int argc, char** argv) {
  at::set_num_threads(1);
  torch::manual_seed(1);  // the same first weights on all workers
  torch::nn::Sequential model(torch::nn::Linear(2, 32), torch::nn::BatchNorm1d(32),
                              torch::nn::ReLU(), torch::nn::Dropout(0.1),
                              torch::nn::Linear(32, kArms));
  Optimizer optimizer;
  std::vector<mayfly::Tensor> parameters;
  std::vector<mayfly::Tensor> momentum;
  for (const auto& item : model->named_parameters()) {
    optimizer.weights.push_back(item.value());
    optimizer.velocities.push_back(torch::zeros_like(item.value()));
    parameters.push_back(described(item.key(), item.value()));
    momentum.push_back(described("velocity." + item.key(), optimizer.velocities.back()));
  }
  std::vector<mayfly::Tensor> buffers;  // batch norm's
  for (const auto& item : model->named_buffers()) {
    buffers.push_back(described(item.key(), item.value()));
  }
  mayfly::Options options;
  options.data_name = "a spiral";
  options.train_samples = 900;
  options.test_samples = 900;
  options.test_chunk = 100;
  options.steps = argc > 1 ? std::strtoull(argv[1], nullptr, 10) : 300;
  options.global_batch = 64;
  options.microbatch = 16;

  mayfly::Job job;
  job.on_load([&](const mf_loaded_state& state) { optimizer.load(state); });
  job.on_evaluate(
      [&](std::span<const std::uint64_t> samples) { return evaluated(model, samples); });
  const bool begun = job.ok() && job.parameters(parameters) && job.buffers(buffers) &&
                     job.optimizer_state(momentum) && job.start(options);
  while (auto step = begun ? job.next_step() : std::nullopt) {
    while (const auto microbatch = step->next_microbatch()) {
      torch::manual_seed(microbatch->seed);  // dropout does not depend on the worker
      const auto [points, arms] = batch_of(microbatch->samples);
      model->zero_grad();
      const torch::Tensor loss = torch::nn::functional::cross_entropy(model->forward(points), arms);
      loss.backward();
      std::vector<const float*> gradients;
      for (const torch::Tensor& weight : optimizer.weights) {
        gradients.push_back(weight.grad().data_ptr<float>());
      }
      step->add(gradients, loss.item<double>());
    }
    if (step->updates()) {
      optimizer.update(*step);
    }
    if (step->updates() && step->speaks() && step->number() % 100 == 0) {
      std::printf("step %llu: loss %.4f\n", static_cast<unsigned long long>(step->number()),
                  step->loss());
    }
  }
  if (!job.ok()) {
    std::fprintf(stderr, "network: %s\n", job.error().c_str());
    return 2;
  }
  if (job.outcome() == MF_LOST) {
    std::fprintf(stderr, "network: %s\n", job.detail().c_str());
    return 1;  // so that the launcher replaces this worker
  }
  return 0;
}
