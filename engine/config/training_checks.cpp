#include "engine/config/setting_checks.hpp"

#include <algorithm>
#include <utility>

#include "base/text.hpp"
#include "elastic/core/view.hpp"
#include "engine/config/derived_settings.hpp"
#include "engine/config/ps_settings.hpp"
#include "nn/model.hpp"

namespace mayfly::engine {
namespace {

/// The two divisors of `total` next to `wish`, for the error text.
std::string divisors_near(std::uint32_t total, std::uint32_t wish) {
  std::uint32_t below = 1;
  std::uint32_t above = total;
  for (std::uint32_t d = 1; d <= total; ++d) {
    if (total % d == 0 && d < wish) {
      below = d;
    }
    if (total % d == 0 && d > wish) {
      above = d;
      break;
    }
  }
  if (below == above) {
    return "only " + std::to_string(below) + " does";
  }
  return "the nearest that do are " + std::to_string(below) + " and " + std::to_string(above);
}

Complaint check_optimizer(const JobConfig& c) {
  if (!(c.steps > 0 || c.epochs > 0)) {
    return "epochs " + shortest_text(c.epochs) + " must be above 0 unless steps is given";
  }
  if (!(c.lr > 0)) {
    return "lr " + shortest_text(c.lr) + " must be above 0";
  }
  if (!(c.momentum >= 0 && c.momentum < 1)) {
    return "momentum " + shortest_text(c.momentum) + " must be from 0 to below 1";
  }
  if (!(c.weight_decay >= 0)) {
    return "weight_decay " + shortest_text(c.weight_decay) + " must not be negative";
  }
  if (!(c.label_smoothing >= 0 && c.label_smoothing < 1)) {
    return "label_smoothing " + shortest_text(c.label_smoothing) + " must be from 0 to below 1";
  }
  return unless(c.warmup_epochs >= 0,
                "warmup_epochs " + shortest_text(c.warmup_epochs) + " must not be negative");
}

Complaint check_nccl(const JobConfig& c) {
  if (c.backend != "nccl") {
    return {};
  }
  if (!uses_cuda(c.device)) {
    return "backend nccl exchanges gradients in GPU memory, but device is " + c.device +
           ": use backend tcp, or device cuda";
  }
  if (uses_parameter_servers(c)) {
    return std::string(
        "backend nccl is for all-reduce; parameter servers are reached in host memory: leave "
        "backend out");
  }
  const Result<Wire> wire = parse_wire(c.wire, c.reduction);
  return unless(!wire.ok() || wire.value() == Wire::kInt32 || wire.value() == Wire::kFp32,
                "backend nccl carries 32 bits per gradient, but wire is " + c.wire +
                    ": use wire auto, or backend tcp");
}

Complaint check_device(const JobConfig& c) {
  if (const Result<DeviceChoice> choice = parse_device(c.device); !choice.ok()) {
    return choice.error().detail;
  }
  if (!uses_cuda(c.device)) {
    return {};
  }
  if (c.isa != "auto" || c.conv_kernels != "auto") {
    return "isa and conv_kernels choose how a CPU computes, but device is " + c.device;
  }
  return unless(c.threads <= 1, "threads " + std::to_string(c.threads) +
                                    " must be 0 or 1 with device " + c.device +
                                    ": a worker has one GPU");
}

Complaint check_dtype(const JobConfig& c) {
  if (Complaint unknown = one_of("dtype", c.dtype, {"fp32", "bf16", "fp16"})) {
    return unknown;
  }
  return unless(c.dtype != "fp16" || uses_cuda(c.device),
                "dtype fp16 is for GPUs, but device is " + c.device +
                    "; use device cuda, or dtype bf16 or fp32");
}

/// Checks the settings of a job whose workers are programs of the user's own.
Complaint check_program(const JobConfig& c) {
  const std::pair<bool, const char*> unfit[] = {
      {uses_parameter_servers(c), "parameter servers"},
      {c.backend != "tcp" && c.backend != "gloo", "the backends mpi and nccl"},
      {!c.init_from.empty(), "init_from"},
      {!c.cloud_provider.empty() && c.cloud_startup.empty() && c.cloud_program.empty(),
       "cloud_provider without cloud_program or cloud_startup"},
      {c.evaluators > 0, "evaluators"},
      {c.standby, "standby"}};
  for (const auto& [is_set, what] : unfit) {
    if (is_set) {
      return std::string("a program of your own (model ") + kProgramModel +
             ") cannot be combined with " + what;
    }
  }
  if (uses_cuda(c.device)) {
    return "device " + c.device +
           " applies to the networks of mayfly; a program of your own moves its " +
           "model to a GPU itself";
  }
  return std::nullopt;
}

std::vector<std::string> all_model_names() {
  std::vector<std::string> names = nn::model_names();
  names.emplace_back(kProgramModel);
  return names;
}

Complaint check_names(const JobConfig& c) {
  for (const Complaint& complaint :
       {one_of("model", c.model, all_model_names()),
        one_of("lr_schedule", c.lr_schedule, {"constant", "cosine", "step"}), check_nccl(c),
        one_of("backend", c.backend, {"tcp", "gloo", "mpi", "nccl"}),
        one_of("reduction", c.reduction, {"exact", "fp32"}), check_device(c),
        one_of("isa", c.isa, {"auto", "avx512", "avx2", "portable"}), check_dtype(c),
        one_of("conv_kernels", c.conv_kernels, {"auto", "direct", "winograd"})}) {
    if (complaint) {
      return complaint;
    }
  }
  if (is_program(c)) {
    return check_program(c);
  }
  if (c.image_size > 0) {
    constexpr int kAnyClasses = 2;
    const Result<nn::Model> model =
        nn::make_model(c.model, kAnyClasses, static_cast<int>(std::min(c.image_size, 1U << 20)));
    if (!model.ok()) {
      return "image_size: " + model.error().detail;
    }
  }
  return unless(!c.data.empty(), "data must not be empty");
}

Complaint check_exchange(const JobConfig& c) {
  if (const Result<Wire> wire = parse_wire(c.wire, c.reduction); !wire.ok()) {
    return wire.error().detail;
  }
  const Result<BucketSize> size = parse_bucket_kib(c.bucket_kib);
  return unless(size.ok(), size.ok() ? "" : size.error().detail);
}

}  // namespace

Complaint check_batches(const JobConfig& c) {
  if (c.global_batch < 1 || c.global_batch > 1'000'000) {
    return "global_batch " + std::to_string(c.global_batch) + " is not between 1 and 1000000";
  }
  if (c.microbatch < 1) {
    return "microbatch must be at least 1";
  }
  if (c.global_batch % c.microbatch != 0) {
    return "global_batch " + std::to_string(c.global_batch) + " is not a multiple of microbatch " +
           std::to_string(c.microbatch) + "; " + divisors_near(c.global_batch, c.microbatch);
  }
  return unless(c.global_batch / c.microbatch <= elastic::kMicrobatchesMax,
                "global_batch " + std::to_string(c.global_batch) + " makes more than " +
                    std::to_string(elastic::kMicrobatchesMax) + " microbatches of " +
                    std::to_string(c.microbatch) + "; choose a larger microbatch");
}

Complaint check_training(const JobConfig& c) {
  return first_of(c, {check_optimizer, check_names, check_exchange});
}

}  // namespace mayfly::engine
