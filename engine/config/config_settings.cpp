// The one list of settings, from which flags, environment names, TOML keys and help are made.

#include <string>
#include <string_view>
#include <type_traits>
#include <utility>

#include "engine/config/config.hpp"
#include "engine/config/value_text.hpp"

namespace mayfly::engine {
namespace {

// Properties of a setting, added up.
constexpr unsigned kOwn = 1;      // Setting::is_own
constexpr unsigned kCommon = 2;   // Setting::is_common
constexpr unsigned kRepeats = 4;  // Setting::repeats

Setting make_setting(const char* name, SettingKind kind,
                     std::function<Result<void>(JobConfig&, std::string_view)> set,
                     std::function<std::string(const JobConfig&)> get, const char* help,
                     unsigned properties = 0) {
  Setting setting;
  setting.name = name;
  setting.help = help;
  setting.kind = kind;
  setting.is_switch = kind == SettingKind::kSwitch;
  setting.set = std::move(set);
  setting.get = std::move(get);
  setting.is_own = (properties & kOwn) != 0;
  setting.is_common = (properties & kCommon) != 0;
  setting.repeats = (properties & kRepeats) != 0;
  return setting;
}

/// A setting that is the text of one field.
template <typename T>
Setting make(const char* name, T JobConfig::*field, const char* help, unsigned properties = 0) {
  constexpr SettingKind kKind = std::is_same_v<T, bool>          ? SettingKind::kSwitch
                                : std::is_same_v<T, double>      ? SettingKind::kReal
                                : std::is_same_v<T, std::string> ? SettingKind::kText
                                                                 : SettingKind::kWhole;
  return make_setting(
      name, kKind,
      [field](JobConfig& config, std::string_view text) {
        return parse_value(config.*field, text);
      },
      [field](const JobConfig& config) { return value_text(config.*field); }, help, properties);
}

constexpr const char* kColocated = "colocated";

Result<void> set_servers(JobConfig& config, std::string_view text) {
  std::uint32_t servers = 0;
  if (text != kColocated && (!parse_value(servers, text).ok() || servers == 0)) {
    return unexpected_value("a number of servers, or colocated", text);
  }
  config.ps = servers;
  return {};
}

std::string servers_text(const JobConfig& config) {
  return config.ps == 0 ? kColocated : std::to_string(config.ps);
}

/// A command may have arguments of several lines, such as a script after `python3 -c`.
Result<void> set_program(JobConfig& config, std::string_view text) {
  config.cloud_program = text;
  return {};
}

std::string program_text(const JobConfig& config) {
  return config.cloud_program;
}

std::vector<Setting> job_settings() {
  using C = JobConfig;
  return {
      make("epochs", &C::epochs, "passes over the training set; see --steps", kCommon),
      make("steps", &C::steps, "optimizer steps of the job; 0 = as many as --epochs needs",
           kCommon),
      make("global_batch", &C::global_batch, "samples per step, of all workers", kCommon),
      make("microbatch", &C::microbatch,
           "samples that one compute thread processes at once; batch norm uses their statistics"),
      make("lr", &C::lr, "learning rate after warm-up", kCommon),
      make("lr_schedule", &C::lr_schedule, "cosine, step or constant"),
      make("warmup_epochs", &C::warmup_epochs, "epochs of linear warm-up; at most 1/5 of all"),
      make("momentum", &C::momentum, "momentum of SGD"),
      make("weight_decay", &C::weight_decay, "L2 penalty on all parameters"),
      make("label_smoothing", &C::label_smoothing,
           "share of the label that is spread over all classes; 0 = none"),
      make("reduction", &C::reduction, "gradient sum: exact (same bits for any workers) or fp32"),
      make("wire", &C::wire,
           "format of gradients in the all-reduce: auto = 32 bits; int16 (with exact), bf16 or "
           "fp16 (with fp32) halve the bytes"),
      make("bucket_kib", &C::bucket_kib,
           "least size of an all-reduce bucket in KiB; auto = measured in the first steps"),
      make("seed", &C::seed, "random seed of initial weights, sample order and augmentation",
           kCommon),
      make("data_seed", &C::data_seed, "seed of sample order and augmentation; 0 = --seed"),
      make("resume", &C::resume,
           "continue from a checkpoint folder, or from the latest checkpoint of a run directory",
           kOwn | kCommon),
      make("audit_every", &C::audit_every,
           "steps between audits, in which a second worker computes one microbatch too; 0 = none"),
  };
}

std::vector<Setting> data_settings() {
  using C = JobConfig;
  return {
      make("data", &C::data,
           "folder with CIFAR binaries or images, a tar of images, or procedural[:SAMPLES]",
           kCommon),
      make("data_from", &C::data_from,
           "source of the data set for workers without --data: 'coordinator', a folder or tar, the "
           "URL of a tar, or a command that fills {}: 'aws s3 sync s3://b/d {}'"),
      make("augment", &C::augment, "crop and flip training images at random"),
      make("image_size", &C::image_size,
           "input resolution in pixels; 0 = the images' own size if all are equal and small, else "
           "32 or 224 depending on the model"),
      make("skip_corrupt", &C::skip_corrupt, "skip unusable images and count them"),
      make("cache_dir", &C::cache_dir,
           "folder for decoded images; empty = .cache beside the run directory", kOwn),
      make("store", &C::store,
           "memory for encoded training images of a host, such as 8GiB; empty = none", kOwn),
      make("store_peers", &C::store_peers, "get images from the stores of other hosts", kOwn),
      make("prepared_store", &C::prepared_store,
           "memory for prepared images that jobs of a host share, such as 1GiB", kOwn),
      make("loader_threads", &C::loader_threads,
           "threads per worker that prepare data; 0 = 1, for JPEGs as many as compute", kOwn),
  };
}

std::vector<Setting> model_settings() {
  using C = JobConfig;
  return {
      make("model", &C::model,
           "network: resnet20, 32, 44, 56 or 110 (CIFAR), resnet18, 34 or 50 (ImageNet)", kCommon),
      make("init_from", &C::init_from,
           "initial weights: a safetensors file, a checkpoint or a run directory; ignored with "
           "--resume",
           kCommon),
      make("dtype", &C::dtype,
           "activations: fp32, bf16 (a CPU needs AVX512-BF16) or fp16 (GPUs, with a loss scale); "
           "weights stay fp32"),
      make("conv_kernels", &C::conv_kernels,
           "convolution kernels: auto (the faster one for each layer), direct or winograd"),
  };
}

std::vector<Setting> workers_settings() {
  using C = JobConfig;
  return {
      make("workers", &C::workers,
           "local workers to start (train), or workers to wait for (coordinator)", kOwn | kCommon),
      make("threads", &C::threads, "compute threads per worker; 0 = cores / workers, at least 1",
           kOwn | kCommon),
      make("device", &C::device,
           "device that computes: cpu; cuda = one GPU per worker; cuda:N = that GPU", kCommon),
      make("hosts", &C::hosts,
           "hosts on which train and run start workers over ssh: a,b or a:2,b:4", kOwn | kCommon),
      make("hostfile", &C::hostfile,
           "file with one host per line instead, as for mpirun: NAME slots=N", kOwn),
      make("ssh", &C::ssh, "the ssh program and its options", kOwn),
      make("remote_dir", &C::remote_dir,
           "folder for the program and its workers on these hosts, relative to the home directory",
           kOwn),
      make("remote_program", &C::remote_program,
           "path of mayfly on these hosts; empty = this program is copied there", kOwn),
      make("backend", &C::backend,
           "transport of the all-reduce: tcp, gloo, mpi (under mpirun) or nccl (GPUs)"),
      make("isa", &C::isa, "instruction set: auto, avx512, avx2 or portable (slow, for checks)"),
      make("bind_host", &C::bind_host,
           "address or network interface on which this process listens; auto = the address of its "
           "connection to the coordinator (workers), the interface of the default route "
           "(coordinator), or 127.0.0.1 if all processes are on one host; 0.0.0.0 or :: (all) only "
           "for `mayfly coordinator`",
           kOwn),
      make("coordinator", &C::coordinator,
           "HOST:PORT of a running coordinator, then of its standbys, separated by commas; empty = "
           "start one",
           kOwn),
      make("coordinator_timeout", &C::coordinator_timeout,
           "seconds that a worker waits for a coordinator that does not answer; at most 60 for its "
           "first answer",
           kOwn),
      make("port", &C::port, "port of the coordinator; 0 = any free port", kOwn),
      make("token_file", &C::token_file,
           "file with the job's secret; empty = token in the run directory, made if missing", kOwn),
      make("tls", &C::tls,
           "encrypt control messages, checkpoints, data and copies of the state; gradients are not "
           "encrypted",
           kOwn),
      make("worker_number", &C::worker_number,
           "for `mayfly worker`: its number for --inject and --ps colocated, from 0; set by "
           "launchers",
           kOwn),
      make("launched", &C::launched, "set by launchers for the workers they start", kOwn),
      make("resident_mib", &C::resident_mib,
           "unused memory that each worker holds, for benchmarks of recovery", kOwn),
  };
}

std::vector<Setting> elasticity_settings() {
  using C = JobConfig;
  return {
      make("max_restarts", &C::max_restarts,
           "number of local workers that are replaced after they died", kOwn | kCommon),
      make("min_workers", &C::min_workers, "the job waits while it has fewer workers", kOwn),
      make("spares", &C::spares,
           "number of workers that stay idle until another worker is lost or leaves", kOwn),
      make("min_workers_timeout", &C::min_workers_timeout,
           "seconds to wait for --min-workers before the job ends with exit code 4", kOwn),
      make("notice", &C::notice,
           "source of notices that the cloud will take this server away, upon which the worker "
           "leaves in time: gce, ec2, ec2-rebalance, azure or file:PATH; empty = signals only",
           kOwn),
      make("standby", &C::standby,
           "for `mayfly coordinator`: take over the job if its coordinator dies", kOwn),
      make("quorum", &C::quorum,
           "for `mayfly coordinator`: the job has standbys, so an unplanned change needs a "
           "majority of the last view",
           kOwn),
      make("silence_max_ms", &C::silence_max_ms,
           "evict a worker that is silent for longer; more if its heartbeats are irregular"),
      make("starved_max_ms", &C::starved_max_ms,
           "the same for a worker whose machine answers and whose process is not stopped"),
      make("hang_max_ms", &C::hang_max_ms,
           "evict a worker whose trainer makes no progress for longer; more if work is slow, less "
           "(2 s) by default while work is regular; 0 = only report it"),
      make("rebalance", &C::rebalance,
           "move microbatches to faster workers when measured speeds change"),
      make("evict_stragglers", &C::evict_stragglers,
           "evict a worker that is this many times slower than the others' median; 0 = never"),
      make("evict_stragglers_after", &C::evict_stragglers_after,
           "seconds for which a worker must have been so slow"),
      make("observe_from_mib", &C::observe_from_mib,
           "a joining worker receives a state of at least this size in the background; a smaller "
           "one is sent at a step boundary"),
      make("chaos", &C::chaos,
           "scripted faults of local workers (docs/HACKING.md): "
           "kill@step=200:worker=1,join@step=300",
           kOwn),
      make("reuse_images", &C::reuse_images,
           "train on the images of the first microbatches again and again, without reading or "
           "preparing others; for measurements (mayfly profile --difference)"),
      make("inject", &C::inject,
           "slow workers down, e.g. delay=30ms,worker=1,from=step100,to=step400; also slow=2.5x, "
           "stop=50%, fetch=2ms, storage=20MB/s or prep=3ms; several rules are separated by "
           "semicolons, or the flag is repeated",
           kRepeats),
  };
}

std::vector<Setting> cloud_settings() {
  using C = JobConfig;
  return {
      make("cloud_provider", &C::cloud_provider,
           "provider that starts workers, for coordinator and run: local, ssh, exec, slurm, gce "
           "or ec2; empty = none",
           kOwn | kCommon),
      make("cloud_offers", &C::cloud_offers,
           "servers to request, by commas: TYPE@ZONE:spot=PRICE*SPEED#MOST or :on_demand", kOwn),
      make("cloud_composition", &C::cloud_composition,
           "workers of each offer: '2 x TYPE@ZONE:MARKET + 1 x ...'; empty = by price", kOwn),
      make("evaluators", &C::evaluators,
           "with a cloud provider or --hosts: number of further servers, which measure the test "
           "accuracy of every checkpoint and are replaced like workers",
           kOwn | kCommon),
      make("evaluator_offers", &C::evaluator_offers,
           "servers that may be requested as evaluators, like --cloud-offers; empty = the same as "
           "for workers",
           kOwn),
      make("cloud_budget", &C::cloud_budget,
           "upper bound on the cost of the job, in the currency of the offers; 0 = no limit", kOwn),
      make("cloud_budget_per_hour", &C::cloud_budget_per_hour,
           "upper bound on the cost of all servers per hour; 0 = no limit", kOwn),
      make("price_per_hour", &C::price_per_hour,
           "price of an hour of one worker, for the records, where no offer has one; 0 = unknown",
           kOwn),
      make("cloud_max_workers", &C::cloud_max_workers,
           "upper bound for `mayfly scale`; 0 = --workers", kOwn),
      make("cloud_on_demand_floor", &C::cloud_on_demand_floor,
           "least number of workers on on-demand servers", kOwn),
      make("cloud_back_to_spot", &C::cloud_back_to_spot,
           "seconds without a refusal before a spot server replaces an on-demand one; 0 = never",
           kOwn),
      make("cloud_replan", &C::cloud_replan,
           "off, propose or act: whether other servers are compared with the present ones", kOwn),
      make("cloud_replan_every", &C::cloud_replan_every, "seconds between two comparisons", kOwn),
      make("cloud_lifetime_hours", &C::cloud_lifetime_hours,
           "hours after which a server ends by itself; 0 = never", kOwn),
      make("cloud_start_timeout", &C::cloud_start_timeout,
           "seconds for a server to start, and then for its worker to join", kOwn),
      make("cloud_job", &C::cloud_job,
           "label of the job's servers; empty = the name of the run directory", kOwn),
      make("cloud_command", &C::cloud_command, "for exec: the program and its arguments", kOwn),
      make("cloud_sbatch", &C::cloud_sbatch, "for slurm: more options for sbatch", kOwn),
      make("cloud_options", &C::cloud_options,
           "for gce and ec2: words KEY=VALUE, such as project=P or image=I", kOwn),
      make("cloud_worker_args", &C::cloud_worker_args,
           "more arguments for `mayfly worker` on the servers", kOwn),
      make_setting("cloud_program", SettingKind::kText, set_program, program_text,
                   "program of yours, with arguments, for the servers; `mayfly run` sets it", kOwn),
      make("cloud_startup", &C::cloud_startup,
           "file with the start script of a new server; empty = generated", kOwn),
      make("cloud_bundle", &C::cloud_bundle,
           "archive of `mayfly bundle` that new servers fetch from the coordinator, with their "
           "start script; empty = none",
           kOwn),
      make("cloud_bundle_port", &C::cloud_bundle_port,
           "port on which the coordinator serves the bundle; 0 = any free port", kOwn),
      make("cloud_coordinators", &C::cloud_coordinators,
           "HOST:PORT of each coordinator of a job with standbys, separated by commas, for workers "
           "on its servers; empty = this one",
           kOwn),
      make("cloud_dry_run", &C::cloud_dry_run, "print what would be requested, and end", kOwn),
      make("server", &C::server, "for a worker: the cloud provider's name for its server", kOwn),
      make("evaluator", &C::evaluator,
           "for a worker: measures checkpoints instead of training; set by `mayfly evaluator` and "
           "the coordinator",
           kOwn),
  };
}

std::vector<Setting> parameter_server_settings() {
  using C = JobConfig;
  return {
      make("sync", &C::sync,
           "parameter servers instead of all-reduce: bsp, asp, ssp:S or backup:N-of-M", kCommon),
      make_setting("ps", SettingKind::kWhole, set_servers, servers_text,
                   "number of parameter servers; colocated = one in the process of each worker"),
      make("phases", &C::phases,
           "policies of --sync, one after the other: bsp:6.25%,asp; lengths also as 400steps or "
           "51200samples; each with settings of its own in braces, e.g. "
           "asp{lr=0.5x,checkpoint-every=500}: lr, lr-rule, momentum, weight-decay, "
           "checkpoint-every, batch"),
      make("switch_order", &C::switch_order,
           "phases in the notation of Sync-Switch, with --train-steps: 1 = bsp, 0 = asp"),
      make("train_steps", &C::train_steps,
           "with --switch-order: the global step at which each phase ends, e.g. 400,61200"),
      make("ps_replicas", &C::ps_replicas,
           "1 = each shard has a follower on the next server, so a server may be lost"),
      make("shards", &C::shards, "parts of the parameters on each server, 1 to 4"),
      make("slices", &C::slices, "parts of a step for parameter servers; 0 = as many as workers"),
      make("lr_rule", &C::lr_rule,
           "learning rate of updates from less than a global batch: times its share (linear), the "
           "square root of that (sqrt) or 1 (fixed); or by the number of live workers "
           "(live-linear, live-sqrt)"),
      make("asp_warm_up", &C::asp_warm_up,
           "how asp and ssp begin: bsp:AMOUNT = with that much of bsp at the start of the job, "
           "ramp:AMOUNT = with a rising learning rate in each such phase"),
      make("on_divergence", &C::on_divergence,
           "if asp or ssp diverges: fail, or bsp = return to the last good state and continue with "
           "bsp"),
      make("divergence_factor", &C::divergence_factor,
           "with --on-divergence: a loss this many times its running median counts as divergence"),
      make("divergence_windows", &C::divergence_windows,
           "with --on-divergence: number of consecutive means of the loss that must be so high"),
      make("ps_hashes", &C::ps_hashes,
           "verify a hash of all gradients and parameters after each transfer"),
      make("ps_index", &C::ps_index, "for `mayfly ps-server`: index of this server, from 0", kOwn),
      make("ps_server", &C::ps_server, "set by `mayfly ps-server`", kOwn),
      make("straggler", &C::straggler,
           "in bsp, while a worker is much slower than the others: none, greedy = updates as in "
           "asp, elastic = it receives no slices"),
      make("straggler_factor", &C::straggler_factor,
           "a straggler takes this many times the others' median"),
      make("straggler_windows", &C::straggler_windows,
           "consecutive measurements that make a worker a straggler, or no longer one"),
  };
}

std::vector<Setting> output_settings() {
  using C = JobConfig;
  return {
      make("run_dir", &C::run_dir, "directory of this run; empty = runs/<model>-<date>-<time>",
           kOwn | kCommon),
      make("checkpoint_minutes", &C::checkpoint_minutes,
           "minutes between checkpoints; 0 = not by time, as with parameter servers", kCommon),
      make("checkpoint_every", &C::checkpoint_every,
           "steps between checkpoints; 0 = only by time and at the end"),
      make("keep_checkpoints", &C::keep_checkpoints, "number of newest checkpoints that are kept"),
      make("checkpoint_to", &C::checkpoint_to,
           "folder to which each checkpoint is copied as well, or a command with {} for its folder "
           "and {name} for that folder's name: 'rclone copy {} remote:runs/a/{name}'",
           kOwn),
      make("eval_every_epochs", &C::eval_every_epochs,
           "epochs between test evaluations; 0 = only at the end"),
      make("evaluate", &C::evaluate, "measure test accuracy at the end"),
      make("digest_every", &C::digest_every, "steps between state digests in metrics.jsonl"),
      make("ledger", &C::ledger, "record which samples each worker computed"),
      make("tensorboard", &C::tensorboard, "write TensorBoard event files"),
      make("trace", &C::trace,
           "file for a timeline of every thread, for Perfetto; auto = trace.json in the run "
           "directory, empty = none",
           kOwn),
      make("trace_steps", &C::trace_steps, "steps of each view that are in the trace: FIRST:END",
           kOwn),
      make("quiet", &C::quiet, "show no progress line", kOwn),
      make("dashboard", &C::dashboard,
           "[HOST:]PORT on which the coordinator serves a page of the run while it lasts; port 0 = "
           "any free one, empty = no page",
           kOwn | kCommon),
      make("report", &C::report, "file for the page of the run with all numbers, at its end", kOwn),
      make(
          "plan", &C::plan,
          "file of the plan that the job is started from, as `mayfly plan --write` makes it beside "
          "the job file; the run directory keeps a copy; empty = none",
          kOwn),
  };
}

}  // namespace

const std::vector<Setting>& settings() {
  static const std::vector<Setting> list = [] {
    std::vector<Setting> all;
    for (const auto& [heading, group] :
         {std::pair("Job", job_settings()), std::pair("Data", data_settings()),
          std::pair("Model", model_settings()), std::pair("Workers", workers_settings()),
          std::pair("Elasticity", elasticity_settings()), std::pair("Cloud", cloud_settings()),
          std::pair("Parameter servers", parameter_server_settings()),
          std::pair("Output", output_settings())}) {
      for (Setting setting : group) {
        setting.group = heading;
        all.push_back(std::move(setting));
      }
    }
    return all;
  }();
  return list;
}

}  // namespace mayfly::engine
