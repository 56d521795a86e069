#include "engine/config.hpp"

#include <algorithm>
#include <cctype>
#include <charconv>
#include <cmath>
#include <limits>
#include <utility>

#include "base/edit_distance.hpp"

namespace mayfly::engine {
namespace {

Error wrong(const std::string& expected, std::string_view found) {
  return {Errc::kInvalidInput, "expects " + expected + ", got '" + std::string(found) + "'"};
}

/// Numbers beyond 63 bits are refused because a TOML integer cannot hold them.
template <typename T>
std::uint64_t whole_max() {
  constexpr auto kTomlMax = static_cast<std::uint64_t>(std::numeric_limits<std::int64_t>::max());
  return std::min<std::uint64_t>(std::numeric_limits<T>::max(), kTomlMax);
}

template <typename T>
Result<void> parse_whole(T& field, std::string_view text) {
  std::uint64_t number = 0;
  const auto [end, failure] = std::from_chars(text.data(), text.data() + text.size(), number);
  if (failure != std::errc{} || end != text.data() + text.size() || number > whole_max<T>()) {
    return wrong("a whole number from 0 to " + std::to_string(whole_max<T>()), text);
  }
  field = static_cast<T>(number);
  return {};
}

Result<void> parse_real(double& field, std::string_view text) {
  double number = 0;
  const auto [end, failure] = std::from_chars(text.data(), text.data() + text.size(), number);
  if (failure != std::errc{} || end != text.data() + text.size() || !std::isfinite(number)) {
    return wrong("a number", text);
  }
  field = number;
  return {};
}

Result<void> parse_switch(bool& field, std::string_view text) {
  for (const std::string_view yes : {"true", "on", "yes", "1"}) {
    if (text == yes) {
      field = true;
      return {};
    }
  }
  for (const std::string_view no : {"false", "off", "no", "0"}) {
    if (text == no) {
      field = false;
      return {};
    }
  }
  return wrong("true or false", text);
}

Result<void> parse_text(std::string& field, std::string_view text) {
  const auto is_control = [](char c) { return std::iscntrl(static_cast<unsigned char>(c)) != 0; };
  if (std::any_of(text.begin(), text.end(), is_control)) {
    return Error{Errc::kInvalidInput, "contains control characters"};
  }
  field = text;
  return {};
}

/// The shortest text that reads back to the same number.
std::string print_real(double number) {
  char buffer[32];
  const auto [end, failure] = std::to_chars(buffer, buffer + sizeof buffer, number);
  return failure == std::errc{} ? std::string(buffer, end) : std::string("0");
}

template <typename T>
requires std::is_integral_v<T> Setting make(std::string name, T JobConfig::*field,
                                            std::string help) {
  return {std::move(name),
          std::move(help),
          SettingKind::kWhole,
          false,
          [field](JobConfig& c, std::string_view text) { return parse_whole(c.*field, text); },
          [field](const JobConfig& c) { return std::to_string(c.*field); }};
}
Setting make(std::string name, double JobConfig::*field, std::string help) {
  return {std::move(name),
          std::move(help),
          SettingKind::kReal,
          false,
          [field](JobConfig& c, std::string_view text) { return parse_real(c.*field, text); },
          [field](const JobConfig& c) { return print_real(c.*field); }};
}
Setting make(std::string name, bool JobConfig::*field, std::string help) {
  return {std::move(name),
          std::move(help),
          SettingKind::kSwitch,
          true,
          [field](JobConfig& c, std::string_view text) { return parse_switch(c.*field, text); },
          [field](const JobConfig& c) { return std::string(c.*field ? "true" : "false"); }};
}
Setting make(std::string name, std::string JobConfig::*field, std::string help) {
  return {std::move(name),
          std::move(help),
          SettingKind::kText,
          false,
          [field](JobConfig& c, std::string_view text) { return parse_text(c.*field, text); },
          [field](const JobConfig& c) { return c.*field; }};
}

void append_training(std::vector<Setting>& list) {
  using C = JobConfig;
  list.push_back(
      make("model", &C::model,
           "network: resnet20, 32, 44, 56 or 110 (CIFAR), resnet18, 34 or 50 (ImageNet)"));
  list.push_back(make("data", &C::data,
                      "folder with CIFAR binaries or images, a tar of images, or "
                      "procedural[:SAMPLES]"));
  list.push_back(make("image_size", &C::image_size,
                      "pixels a side that the network sees; 0 = as small equal images have it, "
                      "else 32 or 224 by the model"));
  list.push_back(
      make("skip_corrupt", &C::skip_corrupt, "leave unusable images out and count them"));
  list.push_back(make("cache_dir", &C::cache_dir,
                      "folder for decoded images and images' sizes; empty = .cache beside the "
                      "run directory"));
  list.push_back(make("seed", &C::seed, "of initial weights, sample order and augmentation"));
  list.push_back(make("init_from", &C::init_from,
                      "start with these weights: a safetensors file, a checkpoint or a run "
                      "directory; ignored with --resume"));
  list.push_back(make("epochs", &C::epochs, "passes over the training set; see --steps"));
  list.push_back(make("steps", &C::steps, "optimizer steps of the job; 0 = as --epochs says"));
  list.push_back(make("global_batch", &C::global_batch, "samples per step, whoever is alive"));
  list.push_back(
      make("microbatch", &C::microbatch, "samples that one compute thread runs as a whole"));
  list.push_back(make("lr", &C::lr, "learning rate after warm-up"));
  list.push_back(make("lr_schedule", &C::lr_schedule, "cosine, step or constant"));
  list.push_back(make("warmup_epochs", &C::warmup_epochs,
                      "linear warm-up, in epochs; at most a fifth of the job"));
  list.push_back(make("momentum", &C::momentum, "of stochastic gradient descent"));
  list.push_back(make("weight_decay", &C::weight_decay, "L2 penalty on all parameters"));
  list.push_back(make("label_smoothing", &C::label_smoothing, "0 = none"));
  list.push_back(make("augment", &C::augment, "crop and flip training images at random"));
}

void append_computing(std::vector<Setting>& list) {
  using C = JobConfig;
  list.push_back(
      make("workers", &C::workers, "local workers to start (train), or to wait for (coordinator)"));
  list.push_back(
      make("threads", &C::threads, "compute threads per worker; 0 = cores / workers, at least 1"));
  list.push_back(make("loader_threads", &C::loader_threads,
                      "threads per worker that prepare data; 0 = 1, or as many as compute threads "
                      "if images are decoded while training"));
  list.push_back(
      make("backend", &C::backend, "gradient exchange: tcp, gloo, or mpi (under mpirun)"));
  list.push_back(
      make("reduction", &C::reduction, "gradient sum: exact (same bits for any workers) or fp32"));
  list.push_back(make("wire", &C::wire,
                      "gradients on their way: auto = 32 bits; int16 (exact), bf16 or fp16 (fp32) "
                      "halve the bytes"));
  list.push_back(make("bucket_kib", &C::bucket_kib,
                      "smallest message of gradients in KiB; auto = tried out in the first steps"));
  list.push_back(make("device", &C::device,
                      "what computes: cpu; cuda = one GPU per worker; cuda:N = that GPU"));
  list.push_back(
      make("isa", &C::isa, "instruction set: auto, avx512, avx2 or portable (slow, for checks)"));
  list.push_back(make("dtype", &C::dtype,
                      "activations: fp32, or bf16 (a CPU needs AVX512-BF16; weights stay fp32)"));
  list.push_back(make("conv_kernels", &C::conv_kernels,
                      "convolutions: auto (the faster by layer), direct or winograd"));
  list.push_back(make("bind_host", &C::bind_host,
                      "address, or network interface, on which this process listens"));
}

void append_parameter_servers(std::vector<Setting>& list) {
  using C = JobConfig;
  list.push_back(make("sync", &C::sync,
                      "parameter servers instead of all-reduce: bsp, asp, ssp:S or backup:N-of-M"));
  list.push_back(make("phases", &C::phases,
                      "several of them, one after the other, e.g. bsp:6.25%,asp; amounts also as "
                      "400steps or 51200samples"));
  list.push_back(make("ps", &C::ps, "parameter servers"));
  list.push_back(make("shards", &C::shards, "parts of the parameters on each server, 1 to 4"));
  list.push_back(make("slices", &C::slices,
                      "that a step is cut into for parameter servers; 0 = as many as workers"));
  list.push_back(make("lr_rule", &C::lr_rule,
                      "learning rate of updates from less than a global batch: linear, sqrt or "
                      "fixed"));
  list.push_back(make("ps_hashes", &C::ps_hashes,
                      "check a hash of all gradients and parameters on their way"));
  list.push_back(make("ps_index", &C::ps_index,
                      "of `mayfly ps-server`: which one of the servers it is, from 0"));
  list.push_back(make("ps_server", &C::ps_server, "set by `mayfly ps-server`"));
}

void append_membership(std::vector<Setting>& list) {
  using C = JobConfig;
  list.push_back(make("coordinator", &C::coordinator,
                      "HOST:PORT of a running coordinator, then those of its standbys, with "
                      "commas; empty = start one"));
  list.push_back(make("coordinator_timeout", &C::coordinator_timeout,
                      "seconds that a worker with nothing to do waits for a coordinator that is "
                      "away"));
  list.push_back(make("standby", &C::standby,
                      "of `mayfly coordinator`: takes over the job if its coordinator dies"));
  list.push_back(make("quorum", &C::quorum,
                      "of `mayfly coordinator`: the job has standbys, so an unplanned change needs "
                      "a majority of the last view"));
  list.push_back(make("port", &C::port, "of our own coordinator; 0 = any free port"));
  list.push_back(make("token_file", &C::token_file,
                      "the job's secret; empty = token in the run directory, made if missing"));
  list.push_back(make("min_workers", &C::min_workers, "with fewer workers the job waits"));
  list.push_back(make("spares", &C::spares,
                      "of the workers so many stay idle until another is lost or leaves"));
  list.push_back(make("min_workers_timeout", &C::min_workers_timeout,
                      "seconds to wait for them before the job ends (exit code 4)"));
  list.push_back(make("silence_max_ms", &C::silence_max_ms,
                      "a worker silent for longer is evicted (adaptive upwards)"));
  list.push_back(make("starved_max_ms", &C::starved_max_ms,
                      "the same if its machine answers and its process is not stopped"));
  list.push_back(make("hang_max_ms", &C::hang_max_ms,
                      "a worker that stands still for longer is evicted (adaptive upwards); 0 = "
                      "only reported"));
  list.push_back(
      make("rebalance", &C::rebalance, "share microbatches out anew when measured speeds change"));
  list.push_back(make("evict_stragglers", &C::evict_stragglers,
                      "a worker so many times slower than the others' median leaves; 0 = never"));
  list.push_back(make("evict_stragglers_after", &C::evict_stragglers_after,
                      "seconds for which it must have been so slow"));
  list.push_back(make("observe_from_mib", &C::observe_from_mib,
                      "a joiner takes a state of so many MiB while the others go on; a smaller one "
                      "is sent to it at a step boundary"));
  list.push_back(make("resident_mib", &C::resident_mib,
                      "memory that each worker holds for nothing, for benchmarks of recovery"));
  list.push_back(make("notice", &C::notice,
                      "a worker leaves in time when its cloud says that it takes the server: gce, "
                      "ec2, ec2-rebalance, azure or file:PATH; empty = none but signals"));
  list.push_back(make("chaos", &C::chaos,
                      "scripted faults for local workers, e.g. "
                      "kill@step=200:worker=1,join@step=300"));
}

void append_cloud(std::vector<Setting>& list) {
  using C = JobConfig;
  list.push_back(make("server", &C::server,
                      "of a worker: the name of what it runs on, as the cloud provider knows it"));
  list.push_back(make("cloud_provider", &C::cloud_provider,
                      "of `mayfly coordinator`: who starts workers: local, exec, slurm, gce or "
                      "ec2; empty = nobody"));
  list.push_back(make("cloud_offers", &C::cloud_offers,
                      "what may be asked for: TYPE@ZONE:spot=PRICE*SPEED or :on_demand, with "
                      "commas"));
  list.push_back(make("cloud_max_workers", &C::cloud_max_workers,
                      "`mayfly scale` goes no higher; 0 = as --workers says"));
  list.push_back(
      make("cloud_on_demand_floor", &C::cloud_on_demand_floor, "so many workers on demand"));
  list.push_back(make("cloud_budget", &C::cloud_budget,
                      "for the whole job, in the currency of the offers; 0 = no limit"));
  list.push_back(make("cloud_budget_per_hour", &C::cloud_budget_per_hour,
                      "for all servers together; 0 = no limit"));
  list.push_back(make("cloud_lifetime_hours", &C::cloud_lifetime_hours,
                      "after which a server ends by itself; 0 = never"));
  list.push_back(make("cloud_start_timeout", &C::cloud_start_timeout,
                      "seconds for a server to start, and then for its worker to join"));
  list.push_back(make("cloud_job", &C::cloud_job,
                      "label of the job's servers; empty = the name of the run directory"));
  list.push_back(
      make("cloud_command", &C::cloud_command, "of exec: the program and its arguments"));
  list.push_back(make("cloud_sbatch", &C::cloud_sbatch, "of slurm: more options for sbatch"));
  list.push_back(make("cloud_options", &C::cloud_options,
                      "of gce and ec2: words KEY=VALUE, such as project=P or image=I"));
  list.push_back(make("cloud_worker_args", &C::cloud_worker_args,
                      "more arguments for `mayfly worker` on the servers"));
  list.push_back(make("cloud_startup", &C::cloud_startup,
                      "file with the script that a new server runs; empty = made for a shared "
                      "file system"));
  list.push_back(
      make("cloud_dry_run", &C::cloud_dry_run, "print what would be asked for, and end"));
}

void append_records(std::vector<Setting>& list) {
  using C = JobConfig;
  list.push_back(
      make("run_dir", &C::run_dir, "folder of this run; empty = runs/<model>-<date>-<time>"));
  list.push_back(make("checkpoint_every", &C::checkpoint_every, "steps; 0 = only at the end"));
  list.push_back(make("keep_checkpoints", &C::keep_checkpoints, "how many of the newest stay"));
  list.push_back(
      make("resume", &C::resume, "a checkpoint folder, or a run directory (its latest)"));
  list.push_back(
      make("digest_every", &C::digest_every, "steps between state digests in metrics.jsonl"));
  list.push_back(
      make("audit_every", &C::audit_every,
           "steps between audits: another worker computes one microbatch, too; 0 = none"));
  list.push_back(make("eval_every_epochs", &C::eval_every_epochs,
                      "epochs between test evaluations; 0 = only at the end"));
  list.push_back(make("evaluate", &C::evaluate, "measure test accuracy at the end"));
  list.push_back(make("ledger", &C::ledger, "record which samples each worker computed"));
  list.push_back(make("tensorboard", &C::tensorboard, "write TensorBoard event files"));
  list.push_back(make("trace", &C::trace,
                      "write where time goes to this file, for Perfetto; auto = trace.json in "
                      "the run directory, empty = do not"));
  list.push_back(
      make("trace_steps", &C::trace_steps, "steps of each view that are traced: FIRST:END"));
  list.push_back(make("quiet", &C::quiet, "no progress line"));
  list.push_back(make("launched", &C::launched, "set by launchers for the workers they start"));
}

std::string normalised(std::string_view name) {
  std::string out(name);
  for (char& c : out) {
    c = c == '-' ? '_' : static_cast<char>(std::tolower(static_cast<unsigned char>(c)));
  }
  return out;
}

std::vector<std::string> setting_names() {
  std::vector<std::string> names;
  for (const Setting& setting : settings()) {
    names.push_back(setting.name);
  }
  return names;
}

/// MAYFLY_ names that scripts and tests read, not the product.
bool is_reserved(const std::string& variable) {
  return variable == "MAYFLY_LAUNCHER_PID" || variable == "MAYFLY_CIFAR10_DIR" ||
         variable == "MAYFLY_CIFAR100_DIR" || variable == "MAYFLY_SIM_SEEDS" ||
         variable.starts_with("MAYFLY_TEST_");
}

}  // namespace

const std::vector<Setting>& settings() {
  static const std::vector<Setting> list = [] {
    std::vector<Setting> all;
    append_training(all);
    append_computing(all);
    append_parameter_servers(all);
    append_membership(all);
    append_cloud(all);
    append_records(all);
    return all;
  }();
  return list;
}

const Setting* find_setting(std::string_view name) {
  std::string wanted(name);
  std::replace(wanted.begin(), wanted.end(), '-', '_');
  for (const Setting& setting : settings()) {
    if (setting.name == wanted) {
      return &setting;
    }
  }
  return nullptr;
}

std::string flag_name(const Setting& setting) {
  std::string flag = setting.name;
  std::replace(flag.begin(), flag.end(), '_', '-');
  return flag;
}

Result<void> apply_setting(JobConfig& config, std::string_view name, std::string_view value,
                           const SettingSource& source) {
  const Setting* setting = find_setting(name);
  if (setting == nullptr) {
    return Error{Errc::kInvalidInput, source + ": unknown setting '" + std::string(name) + "'" +
                                          suggestion(name, setting_names())};
  }
  if (Result<void> done = setting->set(config, value); !done.ok()) {
    return Error{Errc::kInvalidInput, source + ": " + setting->name + " " + done.error().detail};
  }
  return {};
}

Result<void> apply_environment(JobConfig& config,
                               const std::map<std::string, std::string>& environment) {
  constexpr std::string_view kPrefix = "MAYFLY_";
  for (const auto& [variable, value] : environment) {
    if (!variable.starts_with(kPrefix) || is_reserved(variable)) {
      continue;
    }
    const std::string name = normalised(std::string_view(variable).substr(kPrefix.size()));
    if (Result<void> done = apply_setting(config, name, value, "environment " + variable);
        !done.ok()) {
      return done;
    }
  }
  return {};
}

std::string nearest_name(std::string_view name, const std::vector<std::string>& known) {
  const std::string wanted = normalised(name);
  std::string best;
  std::size_t best_distance = (wanted.size() + 2) / 3 + 1;
  for (const std::string& candidate : known) {
    const std::size_t distance = edit_distance(wanted, normalised(candidate));
    if (distance < best_distance) {
      best = candidate;
      best_distance = distance;
    }
  }
  return best;
}

std::string suggestion(std::string_view name, const std::vector<std::string>& known) {
  const std::string nearest = nearest_name(name, known);
  return nearest.empty() ? std::string() : "; did you mean '" + nearest + "'?";
}

}  // namespace mayfly::engine
