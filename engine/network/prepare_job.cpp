#include "engine/network/prepare_job.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <filesystem>

#include "base/parse.hpp"
#include "base/try_assign.hpp"
#include "datasets/jpeg.hpp"
#include "engine/config/bind_host.hpp"
#include "engine/config/derived_settings.hpp"
#include "engine/config/ps_settings.hpp"
#include "engine/job/derive_job.hpp"
#include "engine/job/job.hpp"
#include "engine/network/device.hpp"
#include "engine/state/starting_state.hpp"
#include "engine/training/backend.hpp"
#include "nn/cpu/conv_kernel.hpp"
#include "nn/cpu/cpu_engine.hpp"

namespace mayfly::engine {
namespace {

std::string synchronisation_of(const JobConfig& c) {
  return uses_parameter_servers(c)
             ? fmt::format(
                   "{}, {} slices, {} {} of {} shards, {} followers, rate {}, hashes {}, "
                   "straggler {}, warm-up {}, on divergence {} ({} times, {} means)",
                   phases_text(c), slices_per_step(c), server_count(c),
                   carries_servers(c) ? "colocated servers" : "servers", c.shards, c.ps_replicas,
                   c.lr_rule, c.ps_hashes, c.straggler,
                   c.asp_warm_up.empty() ? "none" : c.asp_warm_up, c.on_divergence,
                   c.divergence_factor, c.divergence_windows)
             : "all-reduce";
}

Fingerprint fingerprint_of(const Job& job) {
  const JobConfig& c = job.config;
  const auto computed_by = [&job](const std::string& what) {
    return takes_any_device(job) ? std::string("any") : what;
  };
  const bool evaluates = c.evaluate || job.evaluate_every_steps > 0;
  Fingerprint fingerprint = common_fingerprint(job);
  // A refused worker sees only the first difference. The data come before the number of steps,
  // which follows from them.
  fingerprint.insert(fingerprint.begin() + 2,
                     {{"data", job.facts.data},
                      {"data content", to_string(job.facts.data_digest)},
                      {"test content", evaluates ? to_string(job.facts.test_digest) : "any"},
                      {"image_size", fmt::format("{}", job.model.image_size)}});
  fingerprint.insert(fingerprint.end(),
                     {{"initial weights",
                       job.initial_weights.has_value() ? to_string(*job.initial_weights) : "none"},
                      {"lr", fmt::format("{}", c.lr)},
                      {"lr_schedule", c.lr_schedule},
                      {"warmup steps", fmt::format("{}", job.schedule.warmup_steps)},
                      {"momentum", fmt::format("{}", c.momentum)},
                      {"weight_decay", fmt::format("{}", c.weight_decay)},
                      {"label_smoothing", fmt::format("{}", c.label_smoothing)},
                      {"augment", c.augment ? "true" : "false"},
                      {"evaluation", fmt::format("{}/{}", c.evaluate, job.evaluate_every_steps)},
                      {"processes", process_set(c)},
                      {"synchronisation", synchronisation_of(c)},
                      {"injection", c.inject.empty() ? "none" : c.inject},
                      {"images", c.reuse_images ? "reused" : "all"},
                      {"device", computed_by(job.facts.device)},
                      {"instruction set", computed_by(job.facts.isa)},
                      {"dtype", nn::name_of(job.dtype)},
                      {"convolution kernels", computed_by(job.facts.conv_kernels)}});
  if (!job.facts.jpeg.empty()) {
    fingerprint.emplace_back("libjpeg-turbo, by what it decodes", computed_by(job.facts.jpeg));
  }
  return fingerprint;
}

/// Workers that start independently must start with the same weights, so the fingerprint contains
/// their digest. A resumed job does not use them.
Result<void> note_initial_weights(Job& job) {
  JobConfig& config = job.config;
  if (config.init_from.empty() || !config.resume.empty()) {
    return {};
  }
  TRY_ASSIGN(auto weights, read_initial_weights(config.init_from, config.model));
  config.init_from = weights.path;
  job.initial_weights = weights.digest();
  return {};
}

Result<datasets::DatasetPair> open_data(const JobConfig& config, DataUse use,
                                        const datasets::CalledOff& is_called_off) {
  constexpr int kAnyClasses = 2;
  TRY_ASSIGN(const auto usual, nn::make_model(config.model, kAnyClasses));
  datasets::OpenOptions options;
  options.skip_corrupt = config.skip_corrupt;
  options.image_size = static_cast<int>(config.image_size);
  options.usual_image_size = usual.image_size;
  options.seed = config.seed;
  options.cache_dir = config.cache_dir;
  options.is_called_off = is_called_off;
  options.store_bytes = use == DataUse::kTraining ? bytes_in(config.store).value_or(0) : 0;
  if (use == DataUse::kTraining && config.store_peers) {
    TRY_ASSIGN(options.store_host, listening_host(config.bind_host));
  }
  return datasets::open_dataset(config.data, options);
}

/// Fixes everything on which bits depend besides the configuration and the data.
Result<void> fix_arithmetic(Job& job) {
  TRY_ASSIGN(job.facts.device, device_identity(job.config.device, takes_any_device(job)));
  if (uses_cuda(job.config.device)) {  // the CPU does not compute the network, so any will do
    job.facts.isa = "any";
    job.facts.conv_kernels = "cudnn";
    return {};
  }
  TRY_ASSIGN(auto isa, nn::cpu::select_isa(job.config.isa, job.dtype));
  TRY(nn::cpu::select_conv_kernels(job.config.conv_kernels));
  job.facts.isa = isa;
  job.facts.conv_kernels = nn::cpu::conv_kernels_fingerprint();
  return {};
}

void note_data(Job& job, datasets::DatasetPair data) {
  job.facts.data = data.name;
  job.facts.data_digest = data.digest;
  job.facts.test_digest = data.test_digest;
  job.facts.classes = data.classes;
  job.facts.image_size = data.train->image_size();
  job.facts.train_samples = data.train->size();
  job.facts.left_out = data.left_out;
  job.facts.jpeg = data.encoded ? datasets::jpeg_identity() : "";
  job.data = std::move(data);
}

/// Batch norm divides by the standard deviation of the values of a channel, which is 0 for one
/// value.
Result<void> check_values_per_channel(const Job& job) {
  int least = job.model.image_size;
  for (const nn::ConvSpec* conv : nn::convolutions_of(job.model)) {
    least = std::min(least, conv->output_size());
  }
  const std::uint64_t values = std::uint64_t{job.config.microbatch} *
                               static_cast<std::uint64_t>(least) *
                               static_cast<std::uint64_t>(least);
  if (values < 2) {
    return Error{
        Errc::kInvalidInput,
        fmt::format("{} has one pixel in its last stage for images of {} pixels, and batch "
                    "norm needs two values of a channel: use a microbatch of at least 2, "
                    "or a larger image_size",
                    job.config.model, job.model.image_size)};
  }
  return {};
}

Result<void> derive_model(Job& job) {
  Result<nn::Model> model =
      nn::make_model(job.config.model, job.facts.classes, job.facts.image_size);
  if (!model.ok()) {
    return Error{model.error().code, job.config.data + ": " + model.error().detail};
  }
  job.model = std::move(model).value();
  return check_values_per_channel(job);
}

void derive_rest(Job& job) {
  derive_steps(job);
  job.fingerprint = fingerprint_of(job);
}

}  // namespace

Result<TestSet> open_test_set(const JobConfig& config) {
  TRY(nn::cpu::select_isa(config.isa));
  TRY(nn::cpu::select_conv_kernels(config.conv_kernels));
  TRY_ASSIGN(datasets::DatasetPair data, open_data(config, DataUse::kFacts, {}));
  TRY_ASSIGN(nn::Model model, nn::make_model(config.model, data.classes, data.test->image_size()));
  return TestSet{std::move(model), std::move(data)};
}

bool lacks_data_or_device(const JobConfig& config) {
  std::error_code ignored;
  if (is_program(config)) {
    return true;
  }
  const bool has_data =
      datasets::is_procedural(config.data) || std::filesystem::exists(config.data, ignored);
  return !has_data || (uses_cuda(config.device) && !device_identity(config.device).ok());
}

Result<std::unique_ptr<Job>> begin_job(const JobConfig& config) {
  auto job = std::make_unique<Job>();
  job->config = config;
  if (uses_parameter_servers(config)) {  // they sum floats, in an order of their own
    job->config.reduction = "fp32";
    job->config.wire = "auto";
  }
  TRY_ASSIGN(job->dtype, nn::parse_dtype(config.dtype));
  TRY_ASSIGN(job->schedule.kind, nn::parse_schedule_kind(config.lr_schedule));
  job->microbatches = config.global_batch / config.microbatch;
  TRY(derive_exchange(*job));
  TRY(note_initial_weights(*job));
  return job;
}

Result<void> complete_job(Job& job, JobFacts facts) {
  job.facts = std::move(facts);
  if (is_program(job.config)) {
    return derive_program(job);
  }
  TRY(derive_model(job));
  derive_rest(job);
  return {};
}

Result<std::unique_ptr<Job>> prepare_job(const JobConfig& config, DataUse use,
                                         const datasets::CalledOff& is_called_off) {
  if (is_program(config)) {
    return Error{Errc::kNotFound,
                 "the workers of this job are programs of the user's own: start such a program, "
                 "not `mayfly worker`"};
  }
  Result<std::unique_ptr<Job>> begun = begin_job(config);
  if (!begun.ok()) {
    return begun;
  }
  Job& job = *begun.value();
  TRY(fix_arithmetic(job));
  TRY_ASSIGN(auto data, open_data(config, use, is_called_off));
  note_data(job, std::move(data));
  TRY(derive_model(job));
  derive_rest(job);
  return begun;
}

}  // namespace mayfly::engine
