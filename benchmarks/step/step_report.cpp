#include "benchmarks/step/step_report.hpp"

#include <fmt/format.h>

#include "engine/run/record_json.hpp"

namespace mayfly::bench {
namespace {

std::string number(double value, int digits) {
  return fmt::format("{:.{}f}", value, digits);
}

std::uint64_t images_of(const StepBenchResult& result) {
  std::uint64_t images = 0;
  for (const ThreadRate& rate : result.threads) {
    images += rate.images;
  }
  return images;
}

/// The time of one microbatch in one part of the step.
struct PartTime {
  double ms = 0;
  double share = 0;  ///< of the whole step
};

class PartTimes {
 public:
  explicit PartTimes(const StepBenchResult& result)
      : microbatches_(static_cast<double>(images_of(result)) / result.batch),
        total_(result.times.total()) {}

  [[nodiscard]] PartTime of(double seconds) const {
    return {seconds * 1e3 / microbatches_, seconds / total_};
  }
  [[nodiscard]] double gflops(double flops, double seconds) const {
    return seconds > 0 ? flops * microbatches_ / seconds / 1e9 : 0;
  }

 private:
  double microbatches_;
  double total_;
};

struct RestPart {
  const char* name;
  double seconds;
};

std::vector<RestPart> rest_of(const StepSeconds& times) {
  return {{"images and weights", times.load},
          {"norm, ReLU, shortcut forward", times.forward_elementwise},
          {"classifier", times.classifier},
          {"norm, ReLU, shortcut backward", times.backward_elementwise},
          {"gradient sums and update", times.outside}};
}

std::string shape_of(const nn::ConvSpec& spec) {
  return fmt::format("{0}x{0}{1} {2}->{3} {4}x{4}", spec.kernel,
                     spec.stride == 1 ? "" : fmt::format("/{}", spec.stride), spec.in_channels,
                     spec.out_channels, spec.output_size());
}

std::string layer_json(const StepBenchResult& result, std::size_t index) {
  const PartTimes part(result);
  const nn::cpu::KernelChoice& choice = result.kernels[index];
  const LayerCost& cost = result.cost.layers[index];
  const LayerSeconds& took = result.times.layers[index];
  const double seconds = took.forward + took.backward;
  const double gflops = part.gflops(cost.forward.flops + cost.backward.flops, seconds);
  return engine::json_text(
      {{"kind", "layer"},
       {"layer", choice.layer},
       {"shape", shape_of(choice.spec)},
       {"kernel", nn::cpu::name_of(choice.kernel)},
       {"forward_ms", engine::rounded(part.of(took.forward).ms, 4)},
       {"backward_ms", engine::rounded(part.of(took.backward).ms, 4)},
       {"forward_gflops", engine::rounded(part.gflops(cost.forward.flops, took.forward), 1)},
       {"backward_gflops", engine::rounded(part.gflops(cost.backward.flops, took.backward), 1)},
       {"peak_fraction", engine::rounded(gflops / result.machine.gflops_per_core, 3)},
       {"step_share", engine::rounded(part.of(seconds).share, 4)}});
}

std::string layer_table(const StepBenchResult& result) {
  const PartTimes part(result);
  constexpr const char* kRow = "  {:<30} {:<22} {:<9} {:>9} {:>9} {:>9} {:>9} {:>7} {:>7}\n";
  std::string text = fmt::format(fmt::runtime(kRow), "CPU time per microbatch", "", "kernel",
                                 "fwd ms", "bwd ms", "fwd GF/s", "bwd GF/s", "% peak", "% step");
  for (std::size_t i = 0; i < result.kernels.size(); ++i) {
    const nn::cpu::KernelChoice& choice = result.kernels[i];
    const LayerCost& cost = result.cost.layers[i];
    const LayerSeconds& took = result.times.layers[i];
    const double seconds = took.forward + took.backward;
    const double gflops = part.gflops(cost.forward.flops + cost.backward.flops, seconds);
    text += fmt::format(fmt::runtime(kRow), choice.layer, shape_of(choice.spec),
                        nn::cpu::name_of(choice.kernel), number(part.of(took.forward).ms, 3),
                        number(part.of(took.backward).ms, 3),
                        number(part.gflops(cost.forward.flops, took.forward), 0),
                        number(part.gflops(cost.backward.flops, took.backward), 0),
                        number(100 * gflops / result.machine.gflops_per_core, 0),
                        number(100 * part.of(seconds).share, 1));
  }
  for (const RestPart& rest : rest_of(result.times)) {
    text += fmt::format(fmt::runtime(kRow), rest.name, "", "", number(part.of(rest.seconds).ms, 3),
                        "", "", "", "", number(100 * part.of(rest.seconds).share, 1));
  }
  return text;
}

}  // namespace

StepRates rates_of(const StepBenchResult& result) {
  const auto count = static_cast<double>(result.threads.size());
  const double microbatches = static_cast<double>(images_of(result)) / result.batch;
  StepRates rates;
  double cpu_seconds = 0;
  for (const ThreadRate& rate : result.threads) {
    rates.images_per_second += static_cast<double>(rate.images) / rate.seconds;
    cpu_seconds += rate.cpu_seconds;
  }
  rates.images_per_second_per_core = rates.images_per_second / count;
  rates.images_per_cpu_second = static_cast<double>(images_of(result)) / cpu_seconds;
  rates.gflops_per_core = result.cost.total.flops * microbatches / cpu_seconds / 1e9;
  rates.peak_fraction = rates.gflops_per_core / result.machine.gflops_per_core;
  rates.gigabytes_per_second =
      result.cost.total.bytes * rates.images_per_second / result.batch / 1e9;
  rates.bandwidth_fraction = rates.gigabytes_per_second / result.machine.gigabytes_per_second;
  return rates;
}

std::string to_json_lines(const StepBenchResult& result) {
  const StepRates rates = rates_of(result);
  std::string text =
      engine::json_text(
          {{"kind", "step"},
           {"model", result.model},
           {"image_size", result.image_size},
           {"classes", result.classes},
           {"batch", result.batch},
           {"threads", result.threads.size()},
           {"global_batch", result.global_batch},
           {"dtype", result.dtype},
           {"isa", result.isa},
           {"conv_kernels", result.conv_kernels},
           {"images", images_of(result)},
           {"images_per_second", engine::rounded(rates.images_per_second, 2)},
           {"images_per_second_per_core", engine::rounded(rates.images_per_second_per_core, 2)},
           {"images_per_cpu_second", engine::rounded(rates.images_per_cpu_second, 2)},
           {"gflops_per_core", engine::rounded(rates.gflops_per_core, 1)},
           {"machine_gflops_per_core", engine::rounded(result.machine.gflops_per_core, 1)},
           {"peak_fraction", engine::rounded(rates.peak_fraction, 3)},
           {"gigabytes_per_second", engine::rounded(rates.gigabytes_per_second, 2)},
           {"machine_gigabytes_per_second",
            engine::rounded(result.machine.gigabytes_per_second, 2)},
           {"bandwidth_fraction", engine::rounded(rates.bandwidth_fraction, 3)}}) +
      "\n";
  if (result.kernels.empty()) {
    return text;
  }
  for (std::size_t i = 0; i < result.kernels.size(); ++i) {
    text += layer_json(result, i) + "\n";
  }
  const PartTimes part(result);
  for (const RestPart& rest : rest_of(result.times)) {
    text += engine::json_text({{"kind", "rest"},
                               {"part", rest.name},
                               {"ms", engine::rounded(part.of(rest.seconds).ms, 4)},
                               {"step_share", engine::rounded(part.of(rest.seconds).share, 4)}}) +
            "\n";
  }
  return text;
}

std::string to_text(const StepBenchResult& result) {
  const StepRates rates = rates_of(result);
  std::string text = fmt::format(
      "{} at {}x{}, {} classes, {}, {}, convolutions {}: {} thread{} x microbatch {}, an update "
      "per {} images\n",
      result.model, result.image_size, result.image_size, result.classes, result.dtype, result.isa,
      result.conv_kernels, result.threads.size(), result.threads.size() == 1 ? "" : "s",
      result.batch, result.global_batch);
  text += fmt::format("  {:.1f} images/s, {:.1f} per core, {:.1f} per CPU-second\n",
                      rates.images_per_second, rates.images_per_second_per_core,
                      rates.images_per_cpu_second);
  text += fmt::format(
      "  {:.0f} GFLOP/s per core as direct convolution: {:.0f} % of the {:.0f} measured here "
      "(multiply-adds)\n",
      rates.gflops_per_core, 100 * rates.peak_fraction, result.machine.gflops_per_core);
  text += fmt::format(
      "  {:.1f} GB/s if no cache helped: {:.0f} % of the {:.1f} measured here (triad)\n",
      rates.gigabytes_per_second, 100 * rates.bandwidth_fraction,
      result.machine.gigabytes_per_second);
  return result.kernels.empty() ? text : text + layer_table(result);
}

}  // namespace mayfly::bench
