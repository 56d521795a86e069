#include <fmt/format.h>

#include "base/try_assign.hpp"
#include "cli/cli.hpp"
#include "engine/config/config.hpp"
#include "engine/run/record_json.hpp"
#include "nn/cpu/conv_kernel.hpp"
#include "nn/cpu/cpu_engine.hpp"

namespace mayfly::cli {
namespace {

using nn::Lifetime;
using nn::MemoryPlan;
using nn::PlannedTensor;
using nn::cpu::KernelChoice;

/// The network and kernels that the settings select on this machine.
struct Subject {
  nn::Model model;
  std::uint32_t microbatch = 0;
  nn::Dtype dtype = nn::Dtype::kFp32;
  std::string isa;
};

Result<Subject> subject_of(const ParsedArguments& arguments) {
  engine::JobConfig config;
  for (const auto& [name, text] : arguments.settings) {
    const std::string source = "flag --" + engine::flag_name(*engine::find_setting(name));
    TRY(engine::apply_setting(config, name, text, source));
  }
  config.global_batch = config.microbatch;  // not used here, so that it is no reason to refuse the
                                            // settings
  TRY(engine::validate(config));
  TRY_ASSIGN(nn::Model model,
             nn::make_usual_model(config.model, static_cast<int>(config.image_size)));
  TRY_ASSIGN(const nn::Dtype dtype, nn::parse_dtype(config.dtype));
  TRY_ASSIGN(std::string isa, nn::cpu::select_isa(config.isa, dtype));
  TRY(nn::cpu::select_conv_kernels(config.conv_kernels));
  return Subject{std::move(model), config.microbatch, dtype, std::move(isa)};
}

engine::json::object json_about(const Subject& subject) {
  return {{"model", subject.model.name},
          {"image_size", subject.model.image_size},
          {"classes", subject.model.classes},
          {"dtype", nn::name_of(subject.dtype)},
          {"isa", subject.isa},
          {"conv_kernels", nn::cpu::conv_kernels_fingerprint()}};
}

std::string headline(const Subject& subject) {
  return fmt::format("{0} at {1}x{1}, {2} classes, {3}, {4}, convolutions {5}", subject.model.name,
                     subject.model.image_size, subject.model.classes, nn::name_of(subject.dtype),
                     subject.isa, nn::cpu::conv_kernels_fingerprint());
}

// ---- inspect --kernels

std::string kernels_json(const Subject& subject, const std::vector<KernelChoice>& choices) {
  engine::json::array layers;
  for (const KernelChoice& choice : choices) {
    const nn::ConvSpec& spec = choice.spec;
    layers.push_back({{"layer", choice.layer},
                      {"kernel_size", spec.kernel},
                      {"stride", spec.stride},
                      {"in_channels", spec.in_channels},
                      {"out_channels", spec.out_channels},
                      {"input_size", spec.input_size},
                      {"output_size", spec.output_size()},
                      {"kernel", nn::cpu::name_of(choice.kernel)}});
  }
  engine::json::object object = json_about(subject);
  object["layers"] = layers;
  return engine::json_text(object);
}

std::string kernels_text(const Subject& subject, const std::vector<KernelChoice>& choices) {
  std::string text = headline(subject) + "\n";
  text += fmt::format("  {:<4}{:<30}{:<6}{:<8}{:<14}{:<12}{}\n", "no", "layer", "size", "stride",
                      "channels", "pixels", "kernel");
  for (std::size_t i = 0; i < choices.size(); ++i) {
    const nn::ConvSpec& spec = choices[i].spec;
    text += fmt::format("  {:<4}{:<30}{:<6}{:<8}{:<14}{:<12}{}\n", i, choices[i].layer,
                        fmt::format("{0}x{0}", spec.kernel), spec.stride,
                        fmt::format("{} -> {}", spec.in_channels, spec.out_channels),
                        fmt::format("{} -> {}", spec.input_size, spec.output_size()),
                        nn::cpu::name_of(choices[i].kernel));
  }
  return text;
}

// ---- inspect --memory

std::uint64_t bytes_without_sharing(const MemoryPlan& plan) {
  std::uint64_t sum = 0;
  for (const PlannedTensor& tensor : plan.tensors()) {
    sum += tensor.bytes;
  }
  return sum;
}

/// "f3" is forward of convolution 3, "b3" its backward; see nn/memory_plan.hpp.
std::string time_name(int time, int convolutions) {
  if (time <= 0) {
    return "load";
  }
  if (time <= convolutions) {
    return fmt::format("f{}", time - 1);
  }
  if (time == convolutions + 1) {
    return "loss";
  }
  return time <= 2 * convolutions + 1 ? fmt::format("b{}", 2 * convolutions + 1 - time) : "end";
}

std::string lifetime_text(const Lifetime& lifetime, int convolutions) {
  if (lifetime.first <= 0 && lifetime.last > 2 * convolutions + 1) {
    return "whole step";
  }
  const std::string first = time_name(lifetime.first, convolutions);
  const std::string last = time_name(lifetime.last, convolutions);
  return first == last ? first : first + " - " + last;
}

std::string memory_json(const Subject& subject, const MemoryPlan& plan, int convolutions) {
  engine::json::array tensors;
  for (const PlannedTensor& tensor : plan.tensors()) {
    tensors.push_back({{"tensor", tensor.name},
                       {"bytes", tensor.bytes},
                       {"first", time_name(tensor.lifetime.first, convolutions)},
                       {"last", time_name(tensor.lifetime.last, convolutions)},
                       {"offset", tensor.offset}});
  }
  engine::json::object object = json_about(subject);
  object["microbatch"] = subject.microbatch;
  object["total_bytes"] = plan.total();
  object["bytes_without_sharing"] = bytes_without_sharing(plan);
  object["tensors"] = tensors;
  return engine::json_text(object);
}

std::string memory_text(const Subject& subject, const MemoryPlan& plan, int convolutions) {
  constexpr double kMebibyte = 1 << 20;
  const std::uint64_t sum = bytes_without_sharing(plan);
  std::string text = fmt::format(
      "{}, microbatch {}\n  {} bytes ({:.1f} MiB) per compute thread; without sharing {} ({:.1f} "
      "MiB)\n  lifetimes: f3 is forward of convolution 3 (inspect --kernels), b3 its backward\n",
      headline(subject), subject.microbatch, plan.total(),
      static_cast<double>(plan.total()) / kMebibyte, sum, static_cast<double>(sum) / kMebibyte);
  text += fmt::format("  {:<46}{:>12}  {:<14}{:>12}\n", "tensor", "bytes", "lifetime", "offset");
  for (const PlannedTensor& tensor : plan.tensors()) {
    text += fmt::format("  {:<46}{:>12}  {:<14}{:>12}\n", tensor.name, tensor.bytes,
                        lifetime_text(tensor.lifetime, convolutions), tensor.offset);
  }
  return text;
}

/// Refuses a checkpoint with --kernels or --memory: these describe a network of --model.
Result<void> check_usage(const ParsedArguments& arguments) {
  if (arguments.has("kernels") && arguments.has("memory")) {
    return Error{Errc::kInvalidInput, "inspect shows --kernels or --memory, one at a time"};
  }
  if (!arguments.positionals.empty()) {
    return Error{Errc::kInvalidInput,
                 "inspect --kernels and --memory describe --model NAME; unexpected argument '" +
                     arguments.positionals.front() + "'"};
  }
  return {};
}

}  // namespace

int inspect(const ParsedArguments& arguments, Context& context) {
  if (!arguments.has("kernels") && !arguments.has("memory")) {
    return inspect_checkpoint(arguments, context);
  }
  if (const Result<void> fine = check_usage(arguments); !fine.ok()) {
    return context.complain(fine.error());
  }
  const Result<Subject> subject = subject_of(arguments);
  if (!subject.ok()) {
    return context.complain(subject.error());
  }
  const nn::Model& model = subject.value().model;
  const std::vector<KernelChoice> choices = nn::cpu::kernel_choices(nn::cpu::selected_isa(), model);
  if (arguments.has("kernels")) {
    context.out << (arguments.has("json") ? kernels_json(subject.value(), choices) + "\n"
                                          : kernels_text(subject.value(), choices));
    return kExitDone;
  }
  const Result<MemoryPlan> plan =
      nn::cpu::memory_plan_of(model, subject.value().microbatch, subject.value().dtype);
  if (!plan.ok()) {
    return context.complain(plan.error());
  }
  const auto convolutions = static_cast<int>(choices.size());
  context.out << (arguments.has("json")
                      ? memory_json(subject.value(), plan.value(), convolutions) + "\n"
                      : memory_text(subject.value(), plan.value(), convolutions));
  return kExitDone;
}

}  // namespace mayfly::cli
