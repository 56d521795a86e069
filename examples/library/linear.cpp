// Linear regression with momentum, elastic, in C++20: `mayfly run --workers 3 -- ./linear 200`.
//   g++ -std=c++20 linear.cpp $(pkg-config --cflags --libs mayfly) -o linear
#include <array>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <mayfly/job.hpp>

namespace {

constexpr std::size_t kInputs = 4;
using Vector = std::array<float, kInputs + 1>;  // weights, then the bias

/// Fills in the inputs of a sample, with a one for the bias, and returns the target of the model.
float target_of(std::uint64_t sample, Vector& inputs) {
  float target = 3;
  inputs.back() = 1;
  for (std::size_t k = 0; k < kInputs; ++k) {
    inputs[k] = static_cast<float>(sample * (2 * k + 3) % 17) / 17 - 0.5F;
    target += static_cast<float>(k) * inputs[k];
  }
  return target;
}

/// The mean loss of these samples, and its gradient.
double compute(const Vector& parameters, std::span<const std::uint64_t> samples, Vector& gradient) {
  const float share = 1.0F / static_cast<float>(samples.size());
  double loss = 0;
  gradient.fill(0);
  for (const std::uint64_t sample : samples) {
    Vector inputs;
    float error = -target_of(sample, inputs);
    for (std::size_t k = 0; k <= kInputs; ++k) {
      error += parameters[k] * inputs[k];
    }
    for (std::size_t k = 0; k <= kInputs; ++k) {
      gradient[k] += share * 2 * error * inputs[k];
    }
    loss += static_cast<double>(share * error * error);
  }
  return loss;
}

/// A checkpoint may be that of a version of this program with another optimizer.
bool has_velocity(const mf_loaded_state& state) {
  return state.tensor_count == 1 && state.tensors[0].type == MF_F32 &&
         state.tensors[0].dimensions == 1 && state.tensors[0].shape[0] == kInputs + 1;
}

}  // namespace

int main(int argc, char** argv) {
  Vector parameters{};
  Vector velocity{};
  Vector gradient{};
  mayfly::Options options;
  options.data_name = "a line";
  options.train_samples = 256;
  options.steps = argc > 1 ? std::strtoull(argv[1], nullptr, 10) : 200;
  options.global_batch = 32;
  options.microbatch = 4;
  mayfly::Job job;
  job.on_load([&](const mf_loaded_state& state) {
    if (!has_velocity(state)) {
      std::fprintf(stderr, "linear: the received state has another optimizer\n");
      std::exit(2);
    }
    std::memcpy(velocity.data(), state.tensors[0].data, sizeof velocity);
  });
  const mayfly::Tensor model{"parameters", MF_F32, {kInputs + 1}, parameters.data()};
  const mayfly::Tensor momentum{"velocity", MF_F32, {kInputs + 1}, velocity.data()};
  const bool begun =
      job.ok() && job.parameters({model}) && job.optimizer_state({momentum}) && job.start(options);
  while (auto step = begun ? job.next_step() : std::nullopt) {
    while (const auto microbatch = step->next_microbatch()) {
      step->add({gradient.data()}, compute(parameters, microbatch->samples, gradient));
    }
    for (std::size_t k = 0; step->updates() && k <= kInputs; ++k) {
      velocity[k] = 0.9F * velocity[k] + step->gradient(0)[k];
      parameters[k] -= 0.05F * velocity[k];
    }
  }
  if (!job.ok()) {
    std::fprintf(stderr, "linear: %s\n", job.error().c_str());
    return 2;
  }
  std::printf("outcome %d, bias %.6f\n", static_cast<int>(job.outcome()),
              static_cast<double>(parameters.back()));
  if (job.outcome() == MF_LOST) {
    std::fprintf(stderr, "linear: %s\n", job.detail().c_str());
    return 1;  // so that the launcher replaces this worker
  }
  return 0;
}
