// The one list of settings, from which flags, environment names, TOML keys and help are made.

#include <algorithm>
#include <array>
#include <utility>

#include "base/check.hpp"
#include "engine/config/config.hpp"
#include "engine/config/setting_kinds.hpp"

namespace mayfly::engine {
namespace {

using setting_kinds::make;

Setting own(Setting setting) {
  setting.is_own = true;
  return setting;
}

void append_training(std::vector<Setting>& list) {
  using C = JobConfig;
  list.push_back(
      make("model", &C::model,
           "network: resnet20, 32, 44, 56 or 110 (CIFAR), resnet18, 34 or 50 (ImageNet)"));
  list.push_back(make("data", &C::data,
                      "folder with CIFAR binaries or images, a tar of images, or "
                      "procedural[:SAMPLES]"));
  list.push_back(make("data_from", &C::data_from,
                      "where a worker that has no --data gets it: 'coordinator', a folder or tar, "
                      "the URL of a tar, or a command that fills {}: 'aws s3 sync s3://b/d {}'"));
  list.push_back(
      make("image_size", &C::image_size,
           "input resolution in pixels; 0 = the images' own size if all are small and equal, "
           "else 32 or 224 by the model"));
  list.push_back(
      make("skip_corrupt", &C::skip_corrupt, "leave unusable images out and count them"));
  list.push_back(own(make("cache_dir", &C::cache_dir,
                          "folder for decoded images and images' sizes; empty = .cache beside the "
                          "run directory")));
  list.push_back(
      make("seed", &C::seed, "random seed of initial weights, sample order and augmentation"));
  list.push_back(make("init_from", &C::init_from,
                      "start with these weights: a safetensors file, a checkpoint or a run "
                      "directory; ignored with --resume"));
  list.push_back(make("epochs", &C::epochs, "passes over the training set; see --steps"));
  list.push_back(make("steps", &C::steps, "optimizer steps of the job; 0 = as --epochs says"));
  list.push_back(
      make("global_batch", &C::global_batch, "samples per step, for any number of workers"));
  list.push_back(
      make("microbatch", &C::microbatch,
           "samples that one compute thread processes at once; batch norm is over these"));
  list.push_back(make("lr", &C::lr, "learning rate after warm-up"));
  list.push_back(make("lr_schedule", &C::lr_schedule, "cosine, step or constant"));
  list.push_back(make("warmup_epochs", &C::warmup_epochs,
                      "linear warm-up, in epochs; at most a fifth of the job"));
  list.push_back(make("momentum", &C::momentum, "momentum of SGD"));
  list.push_back(make("weight_decay", &C::weight_decay, "L2 penalty on all parameters"));
  list.push_back(make("label_smoothing", &C::label_smoothing,
                      "share of the label that is spread over all classes; 0 = none"));
  list.push_back(make("augment", &C::augment, "crop and flip training images at random"));
}

void append_computing(std::vector<Setting>& list) {
  using C = JobConfig;
  list.push_back(own(make("workers", &C::workers,
                          "local workers to start (train), or to wait for (coordinator)")));
  list.push_back(own(
      make("threads", &C::threads, "compute threads per worker; 0 = cores / workers, at least 1")));
  list.push_back(
      own(make("loader_threads", &C::loader_threads,
               "threads per worker that prepare data; 0 = 1, or as many as compute threads "
               "if images are decoded while training")));
  list.push_back(make("backend", &C::backend,
                      "transport of the all-reduce: tcp, gloo, mpi (under mpirun) or nccl (GPUs)"));
  list.push_back(
      make("reduction", &C::reduction, "gradient sum: exact (same bits for any workers) or fp32"));
  list.push_back(
      make("wire", &C::wire,
           "format of gradients in the all-reduce: auto = 32 bits; int16 (with exact), bf16 "
           "or fp16 (with fp32) halve the bytes"));
  list.push_back(
      make("bucket_kib", &C::bucket_kib,
           "least size of an all-reduce bucket in KiB; auto = measured in the first steps"));
  list.push_back(make("device", &C::device,
                      "device that computes: cpu; cuda = one GPU per worker; cuda:N = that GPU"));
  list.push_back(
      make("isa", &C::isa, "instruction set: auto, avx512, avx2 or portable (slow, for checks)"));
  list.push_back(
      make("dtype", &C::dtype,
           "activations: fp32, bf16 (a CPU needs AVX512-BF16) or fp16 (GPUs, with a loss "
           "scale); weights stay fp32"));
  list.push_back(make("conv_kernels", &C::conv_kernels,
                      "convolutions: auto (the faster by layer), direct or winograd"));
  list.push_back(
      own(make("bind_host", &C::bind_host,
               "address, or network interface, on which this process listens; auto = where its "
               "connection to the coordinator comes from (workers), the interface of the "
               "default route (coordinator), or 127.0.0.1 if all are on one host; 0.0.0.0 or "
               ":: (all) for `mayfly coordinator` only")));
}

constexpr const char* kColocated = "colocated";

Result<void> set_servers(JobConfig& config, std::string_view text) {
  std::uint32_t servers = 0;
  if (text != kColocated && (!setting_kinds::parse_whole(servers, text).ok() || servers == 0)) {
    return setting_kinds::wrong("a number of servers, or colocated", text);
  }
  config.ps = servers;
  return {};
}

std::string servers_text(const JobConfig& config) {
  return config.ps == 0 ? kColocated : std::to_string(config.ps);
}

void append_parameter_servers(std::vector<Setting>& list) {
  using C = JobConfig;
  list.push_back(make("sync", &C::sync,
                      "parameter servers instead of all-reduce: bsp, asp, ssp:S or backup:N-of-M"));
  list.push_back(make("phases", &C::phases,
                      "several of them, one after the other, e.g. bsp:6.25%,asp; amounts also as "
                      "400steps or 51200samples; each with settings of its own in braces, e.g. "
                      "asp{lr=0.5x,checkpoint-every=500}: lr, lr-rule, momentum, weight-decay, "
                      "checkpoint-every, batch"));
  list.push_back(make("switch_order", &C::switch_order,
                      "phases as Sync-Switch spells them, with train_steps: 1 = bsp, 0 = asp"));
  list.push_back(make("train_steps", &C::train_steps,
                      "of switch_order: the global step at which each phase ends, e.g. 400,61200"));
  list.push_back({"ps", "parameter servers; colocated = one in the process of each worker",
                  SettingKind::kWhole, false, set_servers, servers_text});
  list.push_back(make("ps_replicas", &C::ps_replicas,
                      "1: each shard has a follower on the next server, and a server may be lost"));
  list.push_back(make("shards", &C::shards, "parts of the parameters on each server, 1 to 4"));
  list.push_back(
      make("slices", &C::slices, "parts of a step for parameter servers; 0 = as many as workers"));
  list.push_back(make("lr_rule", &C::lr_rule,
                      "learning rate of updates from less than a global batch: times its share "
                      "(linear), the root of that (sqrt) or 1 (fixed); or by the number of live "
                      "workers (live-linear, live-sqrt)"));
  list.push_back(make("asp_warm_up", &C::asp_warm_up,
                      "how asp and ssp begin: bsp:AMOUNT = the job with so much of bsp, "
                      "ramp:AMOUNT = each such phase with a rising learning rate"));
  list.push_back(make("on_divergence", &C::on_divergence,
                      "of asp and ssp: fail, or bsp = go back to the last good state and on with "
                      "bsp"));
  list.push_back(
      make("divergence_factor", &C::divergence_factor,
           "with --on-divergence: a loss this many times its running median counts as divergence"));
  list.push_back(make("divergence_windows", &C::divergence_windows,
                      "with --on-divergence: for this many consecutive means of the loss"));
  list.push_back(make("ps_hashes", &C::ps_hashes,
                      "check a hash of all gradients and parameters on their way"));
  list.push_back(own(make("ps_index", &C::ps_index,
                          "of `mayfly ps-server`: which one of the servers it is, from 0")));
  list.push_back(own(make("ps_server", &C::ps_server, "set by `mayfly ps-server`")));
  list.push_back(make("straggler", &C::straggler,
                      "while a worker is much slower than the others, in bsp: none, greedy = "
                      "updates as in asp, elastic = it gets no slices"));
  list.push_back(make("straggler_factor", &C::straggler_factor,
                      "a straggler takes this many times the others' median"));
  list.push_back(make("straggler_windows", &C::straggler_windows,
                      "consecutive measurements that make a worker a straggler, or no longer one"));
}

void append_membership(std::vector<Setting>& list) {
  using C = JobConfig;
  list.push_back(own(make("coordinator", &C::coordinator,
                          "HOST:PORT of a running coordinator, then those of its standbys, with "
                          "commas; empty = start one")));
  list.push_back(
      own(make("coordinator_timeout", &C::coordinator_timeout,
               "seconds that a worker with nothing to do waits for a coordinator that is "
               "away")));
  list.push_back(own(make("standby", &C::standby,
                          "of `mayfly coordinator`: takes over the job if its coordinator dies")));
  list.push_back(
      own(make("quorum", &C::quorum,
               "of `mayfly coordinator`: the job has standbys, so an unplanned change needs "
               "a majority of the last view")));
  list.push_back(own(make("port", &C::port, "of our own coordinator; 0 = any free port")));
  list.push_back(
      own(make("token_file", &C::token_file,
               "the job's secret; empty = token in the run directory, made if missing")));
  list.push_back(
      own(make("tls", &C::tls,
               "encrypt control messages, checkpoints, data and states of joiners; gradients stay "
               "in plain")));
  list.push_back(own(make("min_workers", &C::min_workers,
                          "the job waits while there are fewer workers than this")));
  list.push_back(
      own(make("spares", &C::spares,
               "this many of the workers stay idle until another one is lost or leaves")));
  list.push_back(own(make("min_workers_timeout", &C::min_workers_timeout,
                          "seconds to wait for min-workers before the job ends (exit code 4)")));
  list.push_back(own(make("max_restarts", &C::max_restarts,
                          "how many local workers that died `mayfly train` replaces")));
  list.push_back(make("silence_max_ms", &C::silence_max_ms,
                      "a worker silent for longer is evicted (adaptive upwards)"));
  list.push_back(
      make("starved_max_ms", &C::starved_max_ms,
           "the same for a worker whose machine answers and whose process is not stopped"));
  list.push_back(make("hang_max_ms", &C::hang_max_ms,
                      "a worker that stands still for longer is evicted (adaptive upwards); 0 = "
                      "only reported"));
  list.push_back(make("rebalance", &C::rebalance,
                      "move microbatches to faster workers when measured speeds change"));
  list.push_back(make("evict_stragglers", &C::evict_stragglers,
                      "a worker so many times slower than the others' median leaves; 0 = never"));
  list.push_back(make("evict_stragglers_after", &C::evict_stragglers_after,
                      "seconds for which it must have been so slow"));
  list.push_back(make("observe_from_mib", &C::observe_from_mib,
                      "a joiner takes a state of so many MiB while the others go on; a smaller one "
                      "is sent to it at a step boundary"));
  list.push_back(
      own(make("resident_mib", &C::resident_mib,
               "memory that each worker holds for nothing, for benchmarks of recovery")));
  list.push_back(
      own(make("notice", &C::notice,
               "a worker leaves in time when its cloud says that it takes the server: gce, "
               "ec2, ec2-rebalance, azure or file:PATH; empty = none but signals")));
  list.push_back(own(make("chaos", &C::chaos,
                          "scripted faults for local workers, e.g. "
                          "kill@step=200:worker=1,join@step=300")));
  list.push_back(make("inject", &C::inject,
                      "slow workers down, e.g. delay=30ms,worker=1,from=step100,to=step400; also "
                      "slow=2.5x, stop=50%; several: again, or with semicolons"));
  list.back().repeats = true;
  list.push_back(
      own(make("worker_number", &C::worker_number,
               "of `mayfly worker`: which worker it is to --inject and --ps colocated, from 0; "
               "launchers set it")));
}

void append_hosts(std::vector<Setting>& list) {
  using C = JobConfig;
  list.push_back(
      own(make("hosts", &C::hosts,
               "hosts on which `mayfly train` starts workers over ssh: a,b or a:2,b:4")));
  list.push_back(own(make("hostfile", &C::hostfile,
                          "file with a host per line instead, as mpirun reads it: NAME slots=N")));
  list.push_back(own(make("ssh", &C::ssh, "the program ssh and its options")));
  list.push_back(own(make("remote_dir", &C::remote_dir,
                          "folder on the hosts for the program and its workers, from the home "
                          "directory")));
  list.push_back(own(make("remote_program", &C::remote_program,
                          "path of mayfly on the hosts; empty = this program is copied there")));
}

void append_cloud(std::vector<Setting>& list) {
  using C = JobConfig;
  list.push_back(
      own(make("server", &C::server,
               "of a worker: the name of what it runs on, as the cloud provider knows it")));
  list.push_back(
      own(make("cloud_provider", &C::cloud_provider,
               "of `mayfly coordinator`: who starts workers: local, ssh, exec, slurm, gce "
               "or ec2; empty = nobody")));
  list.push_back(own(make("cloud_offers", &C::cloud_offers,
                          "what may be asked for: TYPE@ZONE:spot=PRICE*SPEED or :on_demand, with "
                          "commas")));
  list.push_back(own(make("evaluators", &C::evaluators,
                          "with a cloud provider or --hosts: so many more servers, which measure "
                          "the test accuracy of every checkpoint and are replaced like workers")));
  list.push_back(own(make("evaluator_offers", &C::evaluator_offers,
                          "what may be asked for as evaluators, like --cloud-offers; empty = the "
                          "same as for workers")));
  list.push_back(own(make("evaluator", &C::evaluator,
                          "of a worker: measures checkpoints instead of training; set by "
                          "`mayfly evaluator` and the coordinator")));
  list.push_back(own(make("cloud_max_workers", &C::cloud_max_workers,
                          "`mayfly scale` goes no higher; 0 = as --workers says")));
  list.push_back(own(make("cloud_on_demand_floor", &C::cloud_on_demand_floor,
                          "at least this many workers on on-demand servers")));
  list.push_back(
      own(make("cloud_budget", &C::cloud_budget,
               "most that the job may cost, in the currency of the offers; 0 = no limit")));
  list.push_back(own(make("cloud_budget_per_hour", &C::cloud_budget_per_hour,
                          "most that all servers together may cost per hour; 0 = no limit")));
  list.push_back(own(make("cloud_lifetime_hours", &C::cloud_lifetime_hours,
                          "hours after which a server ends by itself; 0 = never")));
  list.push_back(own(make("cloud_start_timeout", &C::cloud_start_timeout,
                          "seconds for a server to start, and then for its worker to join")));
  list.push_back(
      own(make("cloud_back_to_spot", &C::cloud_back_to_spot,
               "seconds without a refusal before a spot server takes the place of one on "
               "demand; 0 = never")));
  list.push_back(own(make("cloud_job", &C::cloud_job,
                          "label of the job's servers; empty = the name of the run directory")));
  list.push_back(
      own(make("cloud_command", &C::cloud_command, "of exec: the program and its arguments")));
  list.push_back(own(make("cloud_sbatch", &C::cloud_sbatch, "of slurm: more options for sbatch")));
  list.push_back(own(make("cloud_options", &C::cloud_options,
                          "of gce and ec2: words KEY=VALUE, such as project=P or image=I")));
  list.push_back(own(make("cloud_worker_args", &C::cloud_worker_args,
                          "more arguments for `mayfly worker` on the servers")));
  list.push_back(own(make("cloud_startup", &C::cloud_startup,
                          "file with the script that a new server runs; empty = made by us, for a "
                          "shared file system or the bundle")));
  list.push_back(own(make("cloud_bundle", &C::cloud_bundle,
                          "archive of `mayfly bundle` that new servers get from the coordinator, "
                          "with their start script; empty = none")));
  list.push_back(own(make("cloud_bundle_port", &C::cloud_bundle_port,
                          "on which the coordinator serves it; 0 = any free port")));
  list.push_back(
      own(make("cloud_coordinators", &C::cloud_coordinators,
               "HOST:PORT of each coordinator of a job with standbys, with commas, for the "
               "workers on its servers; empty = this one")));
  list.push_back(
      own(make("cloud_dry_run", &C::cloud_dry_run, "print what would be asked for, and end")));
}

void append_records(std::vector<Setting>& list) {
  using C = JobConfig;
  list.push_back(
      own(make("run_dir", &C::run_dir, "folder of this run; empty = runs/<model>-<date>-<time>")));
  list.push_back(make("checkpoint_every", &C::checkpoint_every,
                      "a checkpoint every so many steps; 0 = only by time and at the end"));
  list.push_back(make("checkpoint_minutes", &C::checkpoint_minutes,
                      "a checkpoint when the last one is this old; 0 = not by time"));
  list.push_back(
      make("keep_checkpoints", &C::keep_checkpoints, "how many of the newest checkpoints stay"));
  list.push_back(own(
      make("checkpoint_to", &C::checkpoint_to,
           "a folder to which each checkpoint goes as well, or a command with {} for its folder "
           "and {name} for that folder's name: 'rclone copy {} remote:runs/a/{name}'")));
  list.push_back(
      own(make("resume", &C::resume, "a checkpoint folder, or a run directory (its latest)")));
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
  list.push_back(own(make("trace", &C::trace,
                          "write where time goes to this file, for Perfetto; auto = trace.json in "
                          "the run directory, empty = do not")));
  list.push_back(
      own(make("trace_steps", &C::trace_steps, "steps of each view that are traced: FIRST:END")));
  list.push_back(own(make("quiet", &C::quiet, "no progress line")));
  list.push_back(
      own(make("launched", &C::launched, "set by launchers for the workers they start")));
}

struct Group {
  const char* name;
  std::vector<const char*> settings;
};

/// The headings of the help, in their order.
const std::vector<Group>& groups() {
  static const std::vector<Group> list = {
      {"Job",
       {"epochs", "steps", "global_batch", "microbatch", "lr", "lr_schedule", "warmup_epochs",
        "momentum", "weight_decay", "label_smoothing", "reduction", "wire", "bucket_kib", "seed",
        "resume", "audit_every"}},
      {"Data",
       {"data", "data_from", "augment", "image_size", "skip_corrupt", "cache_dir",
        "loader_threads"}},
      {"Model", {"model", "init_from", "dtype", "conv_kernels"}},
      {"Workers",
       {"workers", "threads", "device", "hosts", "hostfile", "ssh", "remote_dir", "remote_program",
        "backend", "isa", "bind_host", "coordinator", "coordinator_timeout", "port", "token_file",
        "tls", "worker_number", "launched", "resident_mib"}},
      {"Elasticity",
       {"max_restarts", "min_workers", "spares", "min_workers_timeout", "notice", "standby",
        "quorum", "silence_max_ms", "starved_max_ms", "hang_max_ms", "rebalance",
        "evict_stragglers", "evict_stragglers_after", "observe_from_mib", "chaos", "inject"}},
      {"Cloud",
       {"cloud_provider",
        "cloud_offers",
        "evaluators",
        "evaluator_offers",
        "cloud_budget",
        "cloud_budget_per_hour",
        "cloud_max_workers",
        "cloud_on_demand_floor",
        "cloud_back_to_spot",
        "cloud_lifetime_hours",
        "cloud_start_timeout",
        "cloud_job",
        "cloud_command",
        "cloud_sbatch",
        "cloud_options",
        "cloud_worker_args",
        "cloud_startup",
        "cloud_bundle",
        "cloud_bundle_port",
        "cloud_coordinators",
        "cloud_dry_run",
        "server",
        "evaluator"}},
      {"Parameter servers",
       {"sync", "ps", "phases", "switch_order", "train_steps", "ps_replicas", "shards", "slices",
        "lr_rule", "asp_warm_up", "on_divergence", "divergence_factor", "divergence_windows",
        "ps_hashes", "ps_index", "ps_server", "straggler", "straggler_factor",
        "straggler_windows"}},
      {"Output",
       {"run_dir", "checkpoint_minutes", "checkpoint_every", "keep_checkpoints", "checkpoint_to",
        "eval_every_epochs", "evaluate", "digest_every", "ledger", "tensorboard", "trace",
        "trace_steps", "quiet"}}};
  return list;
}

constexpr std::array kCommon = {
    "epochs",        "global_batch", "lr",           "resume",  "data",
    "model",         "init_from",    "workers",      "threads", "device",
    "hosts",         "tls",          "max_restarts", "notice",  "cloud_provider",
    "evaluators",    "sync",         "ps",           "run_dir", "checkpoint_minutes",
    "checkpoint_to", "quiet"};

/// In the order of the groups.
std::vector<Setting> grouped(std::vector<Setting> all) {
  std::vector<Setting> ordered;
  for (const Group& group : groups()) {
    for (const std::string name : group.settings) {
      const auto place = std::ranges::find(all, name, &Setting::name);
      ENSURE(place != all.end(), "a group has settings that there are");
      place->group = group.name;
      place->is_common = std::ranges::find(kCommon, name) != kCommon.end();
      ordered.push_back(*place);
    }
  }
  ENSURE(ordered.size() == all.size(), "each setting is in one group");
  return ordered;
}

}  // namespace

const std::vector<Setting>& settings() {
  static const std::vector<Setting> list = [] {
    std::vector<Setting> all;
    append_training(all);
    append_computing(all);
    append_parameter_servers(all);
    append_membership(all);
    append_hosts(all);
    append_cloud(all);
    append_records(all);
    return grouped(std::move(all));
  }();
  return list;
}

}  // namespace mayfly::engine
