#pragma once

// One validated description of a job. Every setting has one name, used as flag (--global-batch),
// environment variable (MAYFLY_GLOBAL_BATCH) and TOML key (global_batch); precedence: flag >
// environment > file > default. Nothing else in the engine reads the environment.

#include <cstdint>
#include <functional>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.hpp"

namespace mayfly::engine {

struct JobConfig {
  // The model and the data.
  std::string model = "resnet20";
  std::string data = "procedural";  ///< see datasets/dataset.hpp
  std::string data_from;  ///< source of missing data; see engine/processes/data_source.hpp
  /// Height = width in pixels of the network's input; 0 = that of the images if all have the same
  /// small size, else the model's usual one (32 or 224).
  std::uint32_t image_size = 0;
  bool skip_corrupt = false;
  std::string cache_dir;       ///< of decoded images; empty = .cache beside the run directory
  std::string store;           ///< memory for encoded images of a host, such as 8GiB; empty = none
  bool store_peers = false;    ///< hosts ask each other for images of their stores
  std::string prepared_store;  ///< memory for prepared images that jobs share; empty = none
  std::uint64_t seed = 1;
  std::uint64_t data_seed = 0;  ///< of sample order and augmentation; 0 = seed
  /// Fine-tuning: a weight file (nn/weight_file.hpp), checkpoint folder or run directory whose
  /// weights and statistics the job starts with; ignored with `resume`, which has its own.
  std::string init_from;

  // The optimisation.
  double epochs = 10;                ///< passes over the training set; ignored if steps > 0
  std::uint64_t steps = 0;           ///< total optimizer steps of the job
  std::uint32_t global_batch = 128;  ///< samples per step, with any number of workers
  std::uint32_t microbatch = 16;     ///< samples that one compute thread runs as a whole
  double lr = 0.1;
  std::string lr_schedule = "cosine";  ///< cosine, step or constant
  double warmup_epochs = 1;            ///< linear warm-up; capped at a fifth of the job
  double momentum = 0.9;
  double weight_decay = 1e-4;
  double label_smoothing = 0;
  bool augment = true;

  // The workers, and the exchange of gradients.
  std::uint32_t workers = 1;  ///< local workers to start (train), or to wait for (coordinator)
  std::uint32_t threads = 0;  ///< compute threads per worker; 0 = cores / workers, at least 1
  /// Threads per worker that prepare data; 0 = 1, or as many as compute threads if images are
  /// decoded while training.
  std::uint32_t loader_threads = 0;
  std::string backend = "tcp";      ///< tcp, gloo, mpi or nccl
  std::string reduction = "exact";  ///< exact or fp32
  /// The format of gradients on the wire: auto (32 bits), int32 or int16 in exact reduction, fp32,
  /// bf16 or fp16 in fp32 reduction.
  std::string wire = "auto";
  std::string bucket_kib = "512";  ///< of gradients in one message at least; auto = tuned at start
  std::string device = "cpu";      ///< cpu, cuda, cuda:N
  std::string isa = "auto";        ///< auto, avx512, avx2, portable
  std::string dtype = "fp32";      ///< of activations: fp32, bf16, fp16; see nn/dtype.hpp
  std::string conv_kernels = "auto";  ///< auto, direct, winograd; see nn/cpu/conv_kernel.hpp
  std::string bind_host = "auto";     ///< address on which this process listens

  // Parameter servers instead of all-reduce (docs/parameter_server.md).
  std::string sync;                    ///< bsp, asp, ssp:S or backup:N-of-M; empty = all-reduce
  std::string phases;                  ///< instead of `sync`: "bsp:6.25%,asp{lr=0.5x}"
  std::string switch_order;            ///< of phases, as Sync-Switch spells it: 10 = bsp, then asp
  std::string train_steps;             ///< with it: global steps at which the phases end
  std::uint32_t ps = 1;                ///< servers; 0: each worker carries one (colocated)
  std::uint32_t shards = 1;            ///< of each server, with a thread each
  std::uint32_t ps_replicas = 0;       ///< 1: each shard has a follower on the next server
  std::uint32_t slices = 0;            ///< that a step is cut into; 0 = as many as workers
  std::string lr_rule = "linear";      ///< for updates of less than a global batch
  std::string asp_warm_up;             ///< of phases without rounds: "bsp:2%" or "ramp:2%"
  std::string on_divergence = "fail";  ///< in such a phase: fail, or bsp from an earlier state
  double divergence_factor = 2;        ///< a loss of this many times its running median ...
  std::uint32_t divergence_windows = 3;  ///< ... in this many means in a row
  bool ps_hashes = false;                ///< of gradients and parameters on the wire
  std::uint32_t ps_index = 0;            ///< of `mayfly ps-server`: the number of this server
  bool ps_server = false;                ///< set by `mayfly ps-server`
  std::string straggler = "none";        ///< reaction to much slower workers: none, greedy, elastic
  double straggler_factor = 1.3;         ///< this many times slower than the others' median
  std::uint32_t straggler_windows = 3;   ///< in this many windows in a row

  // Membership.
  /// HOST:PORT of a running coordinator, then of its standbys, with commas; empty = embedded.
  std::string coordinator;
  double coordinator_timeout = 600;  ///< seconds that a worker waits for it
  bool standby = false;    ///< of `mayfly coordinator`: takes over a job whose coordinator dies
  bool quorum = false;     ///< the job has standbys; see docs/failover.md
  std::uint16_t port = 0;  ///< of the coordinator in this process; 0 = any free
  std::string token_file;  ///< empty = <run-dir>/token, made if missing
  bool tls = false;        ///< encrypt connections; a generated token contains this choice
  std::uint32_t min_workers = 1;
  std::uint32_t spares = 0;          ///< of `workers`, idle until another is lost or leaves
  double min_workers_timeout = 600;  ///< seconds
  std::uint32_t max_restarts = 0;    ///< local workers to start in place of dead ones
  double silence_max_ms = 300;       ///< a worker silent for longer is evicted (adaptive upwards)
  double starved_max_ms = 1000;  ///< the same if its machine answers and its process is not stopped
  /// A worker whose trainer makes no progress for longer is evicted (adaptive upwards); 0 = only
  /// reported.
  std::uint32_t hang_max_ms = 5000;
  bool rebalance = true;  ///< distribute microbatches anew when measured speeds change
  /// A worker leaves if its microbatches take this many times the median of the other workers; 0 =
  /// never.
  double evict_stragglers = 0;
  double evict_stragglers_after = 30;  ///< seconds for which it must be so slow
  /// A joining worker receives a state of at least this size (MiB) in the background (ADR 16); 0 =
  /// always.
  double observe_from_mib = 8;
  std::string server;  ///< of a worker: its provider's name for its server; see docs/cloud.md

  // Workers on hosts that are reached by ssh; see docs/hosts.md.
  std::string hosts;     ///< NAME or NAME:SLOTS, with commas; empty = none
  std::string hostfile;  ///< file with a host per line instead
  std::string ssh = "ssh -o BatchMode=yes -o ConnectTimeout=5";  ///< the program and its options
  std::string remote_dir = ".cache/mayfly";  ///< on the hosts, for the program and the workers
  std::string remote_program;  ///< path of mayfly on the hosts; empty = this one is copied

  // Servers that `mayfly coordinator` requests; see docs/cloud.md and engine/cloud/cloud.hpp.
  std::string
      cloud_provider;  ///< local, exec, slurm, ...; empty = none: workers are started by users
  std::string cloud_offers;  ///< servers that may be requested; see engine/config/cloud_offers.hpp
  std::string cloud_composition;            ///< how many of each offer; empty = by price
  std::uint32_t evaluators = 0;             ///< servers that measure checkpoints, beside workers
  std::string evaluator_offers;             ///< their offers, as cloud_offers; empty = the same
  bool evaluator = false;                   ///< set for a worker process that is one of them
  std::uint32_t cloud_max_workers = 0;      ///< 0 = workers
  std::uint32_t cloud_on_demand_floor = 0;  ///< least number of workers on demand
  double cloud_budget = 0;                  ///< for the job, in the offers' currency; 0 = no limit
  double cloud_budget_per_hour = 0;         ///< for all servers together; 0 = no limit
  /// The price of a worker for which no offer has one, in any currency; 0 = unknown.
  double price_per_hour = 0;
  double cloud_lifetime_hours = 24;  ///< of a server; 0 = no limit
  double cloud_start_timeout = 600;  ///< seconds from request to running, then to joined
  double cloud_back_to_spot = 900;   ///< seconds without a refusal before spot returns; 0 = never
  /// "off", "propose" or "act": whether other servers are compared with the present ones.
  std::string cloud_replan = "off";
  double cloud_replan_every = 60;       ///< seconds between two comparisons
  std::string cloud_job;                ///< label of the servers; empty = the run directory's name
  std::string cloud_command;            ///< of exec: program and arguments
  std::string cloud_sbatch;             ///< of slurm: more options for sbatch
  std::string cloud_options;            ///< of gce and ec2: words KEY=VALUE, see docs/cloud.md
  std::string cloud_worker_args;        ///< more arguments for workers on servers
  std::string cloud_program;            ///< command that they run (`mayfly run`); empty = Mayfly
  std::string cloud_startup;            ///< file with a server's script; empty = Mayfly's own
  std::string cloud_bundle;             ///< archive that new servers download; empty = none
  std::uint16_t cloud_bundle_port = 0;  ///< of the bundle's server; 0 = any free
  std::string cloud_coordinators;       ///< of a job with standbys: all addresses, for workers
  bool cloud_dry_run = false;           ///< print the first requests, and end

  bool reuse_images = false;       ///< for measurements: prepare no images after the first step
  std::uint32_t resident_mib = 0;  ///< unused memory that each worker allocates, for benchmarks
  std::string notice;              ///< source of a worker's notices; see cloud_hooks/notice
  std::string chaos;   ///< scripted faults, local launcher only; see engine/faults/chaos_plan.hpp
  std::string inject;  ///< scripted slowness; see engine/faults/injection_plan.hpp
  std::uint32_t worker_number = 0;  ///< this worker's number, for `inject` and `ps colocated`

  // Records.
  std::string run_dir;                 ///< empty = runs/<model>-<date>-<time>
  std::uint64_t checkpoint_every = 0;  ///< steps; 0 = by time alone, and at the end
  /// A checkpoint is written when the last one is this old, at the next step with a digest; 0 =
  /// never for this reason.
  double checkpoint_minutes = 5;
  std::uint32_t keep_checkpoints = 3;
  std::string checkpoint_to;  ///< place for copies; see engine/transfers/checkpoint_copier.hpp
  std::string resume;         ///< a checkpoint folder, or a run directory (its latest)
  std::uint64_t digest_every = 10;  ///< steps between digests in metrics.jsonl
  std::uint64_t audit_every = 0;    ///< steps between audits (ADR 18); 0 = none
  double eval_every_epochs = 0;     ///< 0 = only at the end
  bool evaluate = true;             ///< test accuracy at the end
  bool ledger = false;              ///< write which samples each worker computed (tests)
  bool tensorboard = true;
  std::string trace;  ///< file for trace events; auto = <run-dir>/trace.json, empty = none
  std::string trace_steps = "0:50";  ///< of each view, see engine/run/trace.hpp
  bool quiet = false;                ///< no progress line
  std::string dashboard;  ///< [HOST:]PORT of a page of the run, see docs/dashboard.md; empty = none
  std::string report;     ///< file for that page at the end; empty = none
  std::string plan;       ///< that the job is started from; see engine/run/plan_file.hpp
  bool tells_facts = false;  ///< the coordinator has no data set; see tell_facts()
  bool launched = false;     ///< a launcher's child: Ctrl-C is for the launcher to handle
};

/// The model of a job whose workers are programs of the user's own, which compute by a model that
/// the engine does not know (`mayfly run`, engine/program).
inline constexpr const char* kProgramModel = "program";
/// Environment variables of such a program: the file with the job's settings (set by the launcher
/// on the coordinator's host), the library (libmayfly.so) to load, and this executable, with which
/// the library starts the sentinel.
inline constexpr const char* kJobFileVariable = "MAYFLY_JOB_FILE";
inline constexpr const char* kLibraryVariable = "MAYFLY_LIBRARY";
inline constexpr const char* kProgramVariable = "MAYFLY_PROGRAM";
/// The folder from a bundle in which the program is started.
inline constexpr const char* kProgramDirVariable = "MAYFLY_PROGRAM_DIR";
[[nodiscard]] inline bool is_program(const JobConfig& config) {
  return config.model == kProgramModel;
}

/// The source of a setting's value, for error texts ("flag --lr", "environment MAYFLY_LR",
/// "job.toml line 7").
using SettingSource = std::string;

/// The form of a setting's text; decides the type of its TOML value.
enum class SettingKind : std::uint8_t { kText, kWhole, kReal, kSwitch };

/// The settings by name, each with a setter that parses a text and a getter that prints it; the one
/// list from which flags, environment names, TOML keys, help and the saved file are made.
struct Setting {
  std::string name;  ///< with underscores
  std::string help;
  SettingKind kind = SettingKind::kText;
  bool is_switch = false;  ///< a flag without value; --name true|false also works
  std::function<Result<void>(JobConfig&, std::string_view)> set;
  std::function<std::string(const JobConfig&)> get;
  bool repeats = false;  ///< a repeated flag appends its value, after a semicolon
  /// The setting concerns one process or its machine. All other settings are the job's, and a
  /// worker gets them from its coordinator (engine/membership/job_settings.hpp).
  bool is_own = false;
  const char* group = "";  ///< its heading in the help
  /// One of the few settings that most users need: listed in `--help`; the rest is in `--help-all`.
  bool is_common = false;
};
/// Grouped: settings of one heading are beside each other.
[[nodiscard]] const std::vector<Setting>& settings();

/// Applies the keys of a TOML text. Unknown keys and wrong types are kInvalidInput with file, line
/// and the nearest known name.
[[nodiscard]] Result<void> apply_toml(JobConfig& config, const std::string& text,
                                      const std::string& file_name);
/// Applies MAYFLY_... variables from a copy of the environment; unknown MAYFLY_ names are errors
/// except those of launchers, scripts and tests (MAYFLY_LAUNCHER_PID, MAYFLY_SLOT,
/// MAYFLY_CIFAR10_DIR, MAYFLY_SIM_SEEDS, MAYFLY_TEST_...), programs of the user's own, and services
/// of Kubernetes.
[[nodiscard]] Result<void> apply_environment(JobConfig& config,
                                             const std::map<std::string, std::string>& environment);
/// One setting by name, with the source for the error text.
[[nodiscard]] Result<void> apply_setting(JobConfig& config, std::string_view name,
                                         std::string_view value, const SettingSource& source);

/// The setting of that name (dashes count as underscores), or nullptr.
[[nodiscard]] const Setting* find_setting(std::string_view name);
/// "lr-schedule" for "lr_schedule".
[[nodiscard]] std::string flag_name(const Setting& setting);

/// Everything that can be checked without opening files: ranges, divisibility, known names.
[[nodiscard]] Result<void> validate(const JobConfig& config);

/// Whether config.workers without config.spares are enough. Not a part of validate(), because under
/// mpirun the number of workers is known only later.
[[nodiscard]] Result<void> check_spares(const JobConfig& config);

/// The seed of sample order and augmentation.
[[nodiscard]] constexpr std::uint64_t seed_of_samples(const JobConfig& config) {
  return config.data_seed != 0 ? config.data_seed : config.seed;
}
/// The seeds as a property that must be equal on all workers.
[[nodiscard]] std::string describe_seeds(const JobConfig& config);

/// The elements of config.coordinator, in order.
[[nodiscard]] std::vector<std::string> coordinator_endpoints(const JobConfig& config);
/// Whether this process belongs to a job with standby coordinators.
[[nodiscard]] bool has_standbys(const JobConfig& config);

/// The resolved configuration as TOML that apply_toml reads back to the same values.
[[nodiscard]] std::string to_toml(const JobConfig& config);
/// The same without the settings of a single process (Setting::is_own), except those in `also`,
/// which the processes of this job share.
[[nodiscard]] std::string job_settings_toml(const JobConfig& config,
                                            const std::vector<std::string>& also = {});

/// The known name nearest to `name` by edit distance (case and dashes do not count), or empty if
/// none is near.
[[nodiscard]] std::string nearest_name(std::string_view name,
                                       const std::vector<std::string>& known);

/// "; did you mean 'X'?" for the nearest known name, or empty if none is near.
[[nodiscard]] std::string suggestion(std::string_view name, const std::vector<std::string>& known);

}  // namespace mayfly::engine
