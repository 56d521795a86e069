#include <algorithm>
#include <optional>

#include "base/net/addresses.hpp"
#include "base/parse.hpp"
#include "base/text.hpp"
#include "cloud_hooks/notice/notice.hpp"
#include "elastic/core/view.hpp"
#include "elastic/net/sentinel.hpp"
#include "engine/config/cloud_offers.hpp"
#include "engine/config/config.hpp"
#include "engine/config/derived_settings.hpp"
#include "engine/config/ps_settings.hpp"
#include "engine/faults/injection_plan.hpp"
#include "nn/model.hpp"

namespace mayfly::engine {
namespace {

/// The first thing that is wrong, as one line, or nothing.
using Complaint = std::optional<std::string>;

Complaint unless(bool fine, const std::string& text) {
  return fine ? Complaint() : Complaint(text);
}

Complaint one_of(const std::string& name, const std::string& text,
                 const std::vector<std::string>& known) {
  if (std::find(known.begin(), known.end(), text) != known.end()) {
    return {};
  }
  std::string list;
  for (const std::string& candidate : known) {
    list += (list.empty() ? "" : ", ") + candidate;
  }
  return name + " '" + text + "' is not known" + suggestion(text, known) + " (known: " + list + ")";
}

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

/// Of a job whose workers are programs of the user's own.
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
           " is for the networks of mayfly; a program of your own moves its " +
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

/// One that can be connected to.
bool is_endpoint(const std::string& text) {
  const Result<Endpoint> endpoint = parse_endpoint(text);
  return endpoint.ok() && endpoint.value().port != 0;
}

/// What stands between commas.
std::vector<std::string> listed_endpoints(const std::string& list) {
  const std::vector<std::string_view> parts = split(list, ',');
  return {parts.begin(), parts.end()};
}

Complaint check_coordinators(const JobConfig& c) {
  constexpr std::size_t kEndpointCharactersMax = 255;
  const std::vector<std::string> endpoints = coordinator_endpoints(c);
  for (const std::string& endpoint : endpoints) {
    if (!is_endpoint(endpoint) || endpoint.size() > kEndpointCharactersMax) {
      return "coordinator '" + endpoint + "' is not HOST:PORT";
    }
  }
  if (endpoints.size() > elastic::kEndpointsMax) {
    return "coordinator names " + std::to_string(endpoints.size()) + " addresses, at most " +
           std::to_string(elastic::kEndpointsMax) + " are possible";
  }
  return std::nullopt;
}

/// Each becomes whole nanoseconds, of which 64 bits hold 292 years: "never" is a number, too.
Complaint check_times(const JobConfig& c) {
  struct Time {
    const char* name;
    double value;
    bool may_be_none;
    double most;
    const char* unit;
  };
  for (const Time& time :
       {Time{"coordinator_timeout", c.coordinator_timeout, false, 1e9, "seconds"},
        Time{"min_workers_timeout", c.min_workers_timeout, false, 1e9, "seconds"},
        Time{"evict_stragglers_after", c.evict_stragglers_after, true, 1e9, "seconds"},
        Time{"checkpoint_minutes", c.checkpoint_minutes, true, 1e7, "minutes"},
        Time{"cloud_lifetime_hours", c.cloud_lifetime_hours, true, 1e5, "hours"},
        Time{"cloud_back_to_spot", c.cloud_back_to_spot, true, 1e9, "seconds"}}) {
    const bool is_enough = time.value > 0 || (time.may_be_none && time.value == 0);
    if (!is_enough || !(time.value <= time.most)) {
      return std::string(time.name) + " " + shortest_text(time.value) + " is not " +
             (time.may_be_none ? "between 0 and " : "above 0 and at most ") +
             shortest_text(time.most) + " " + time.unit;
    }
  }
  return std::nullopt;
}

Complaint check_workers(const JobConfig& c) {
  if (c.workers < 1 || c.workers > elastic::kMembersMax) {
    return "workers " + std::to_string(c.workers) + " is not between 1 and " +
           std::to_string(elastic::kMembersMax);
  }
  if (c.min_workers < 1 || c.min_workers > elastic::kMembersMax) {
    return "min_workers " + std::to_string(c.min_workers) + " is not between 1 and " +
           std::to_string(elastic::kMembersMax);
  }
  constexpr double kDayMs = 86'400'000;
  if (!(c.silence_max_ms >= 150 && c.silence_max_ms <= kDayMs)) {
    return "silence_max_ms " + shortest_text(c.silence_max_ms) +
           " must be at least 150, as workers are heard from every 100 ms, and at most a day";
  }
  if (!(c.evict_stragglers == 0 || c.evict_stragglers > 1)) {
    return "evict_stragglers " + shortest_text(c.evict_stragglers) + " must be 0 or above 1";
  }
  if (!(c.observe_from_mib >= 0 && c.observe_from_mib <= 1 << 30)) {
    return "observe_from_mib " + shortest_text(c.observe_from_mib) + " is not between 0 and 2^30";
  }
  if (!(c.starved_max_ms >= 0 && c.starved_max_ms <= kDayMs)) {
    return "starved_max_ms " + shortest_text(c.starved_max_ms) + " is not between 0 and a day";
  }
  constexpr std::uint64_t kStoreMax = std::uint64_t{1} << 39;
  if (c.store_peers && (c.store.empty() || uses_parameter_servers(c))) {
    return c.store.empty() ? "store_peers needs store, the memory for images of this host"
                           : "store_peers works with all-reduce, not with parameter servers";
  }
  if (!c.store.empty() && !bytes_in(c.store, 1, kStoreMax)) {
    return "store " + c.store + " is no size from 1B to 512GiB, such as 8GiB";
  }
  if (!c.prepared_store.empty() && !bytes_in(c.prepared_store, 1, kStoreMax)) {
    return "prepared_store " + c.prepared_store + " is no size from 1B to 512GiB, such as 1GiB";
  }
  if (c.loader_threads > 1024) {
    return "loader_threads " + std::to_string(c.loader_threads) + " is not between 0 and 1024";
  }
  if (c.threads > 1024) {
    return "threads " + std::to_string(c.threads) + " is not between 0 and 1024";
  }
  if (c.bind_host.empty()) {
    return "bind_host must not be empty";
  }
  if (!c.coordinator.empty() && !c.chaos.empty() && !c.launched) {
    return "chaos is scripted by the process that starts the workers; it cannot be used with "
           "coordinator";
  }
  if (const auto notice = cloud_hooks::parse_notice_setting(c.notice); !notice.ok()) {
    return notice.error().detail;
  }
  return check_coordinators(c);
}

Complaint check_injections(const JobConfig& c) {
  const Result<std::vector<InjectionRule>> rules = parse_injections(c.inject);
  if (!rules.ok()) {
    return rules.error().detail;
  }
  const bool delays = std::any_of(rules.value().begin(), rules.value().end(),
                                  [](const InjectionRule& rule) { return rule.delay.count() > 0; });
  return unless(
      !delays || uses_parameter_servers(c) || c.backend == "tcp",
      "inject delay works with backend tcp and with parameter servers, not with backend " +
          c.backend + "; use slow or stop");
}

Complaint check_exchange(const JobConfig& c) {
  if (const Result<Wire> wire = parse_wire(c.wire, c.reduction); !wire.ok()) {
    return wire.error().detail;
  }
  const Result<BucketSize> size = parse_bucket_kib(c.bucket_kib);
  return unless(size.ok(), size.ok() ? "" : size.error().detail);
}

Complaint check_records(const JobConfig& c) {
  if (!(c.price_per_hour >= 0 && c.price_per_hour <= 1e9)) {
    return "price_per_hour " + shortest_text(c.price_per_hour) + " is not between 0 and 1e9";
  }
  if (c.price_per_hour > 0 && !c.cloud_offers.empty()) {
    return "price_per_hour is for workers without cloud_offers, which have prices of their own";
  }
  if (c.keep_checkpoints < 1) {
    return "keep_checkpoints must be at least 1";
  }
  if (c.digest_every < 1) {
    return "digest_every must be at least 1";
  }
  if (const Result<TraceWindow> window = parse_trace_window(c.trace_steps); !window.ok()) {
    return window.error().detail;
  }
  return unless(
      c.eval_every_epochs >= 0,
      "eval_every_epochs " + shortest_text(c.eval_every_epochs) + " must not be negative");
}

/// Empty if there is none. A server shows by its offer alone what it was requested for.
std::string fault_of_evaluator_offers(const JobConfig& c) {
  const auto own = parse_offers(c.evaluator_offers, "evaluator_offers");
  if (!own.ok()) {
    return own.error().detail;
  }
  const auto of_workers = parse_offers(c.cloud_offers);
  for (const cloud_hooks::OfferTerms& terms : own.value()) {
    if (std::ranges::any_of(of_workers.value(), [&](const cloud_hooks::OfferTerms& other) {
          return other.offer == terms.offer;
        })) {
      return "evaluator_offers: " + to_string(terms.offer) +
             " is one of cloud_offers too; evaluators use those if evaluator_offers is empty";
    }
  }
  if (!own.value().empty() && of_workers.value().empty()) {
    return "evaluator_offers need cloud_offers for the workers";
  }
  return {};
}

Complaint check_replan(const JobConfig& c) {
  if (!(c.cloud_replan_every >= 1 && c.cloud_replan_every <= 1e6)) {
    return "cloud_replan_every " + shortest_text(c.cloud_replan_every) +
           " is not between 1 and 1e6";
  }
  if (c.cloud_replan != "off" && uses_parameter_servers(c)) {
    return std::string(
        "cloud_replan is for jobs without parameter servers, whose speed is not that of their "
        "workers alone");
  }
  return one_of("cloud_replan", c.cloud_replan, {"off", "propose", "act"});
}

std::string fault_of_servers_with_standbys(const JobConfig& c) {
  const bool has_others = c.quorum || c.standby;
  return has_others && listed_endpoints(c.cloud_coordinators).size() < 2
             ? "a job with standbys that asks for servers needs cloud_coordinators: the HOST:PORT "
               "of every coordinator, for the workers on them"
         : has_others && c.cloud_job.empty()
             ? "a job with standbys that asks for servers needs cloud_job, one name for all "
               "coordinators, by which they find each other's servers"
             : "";
}

Complaint check_cloud(const JobConfig& c) {
  constexpr std::size_t kServerCharactersMax = 128;
  if (c.server.size() > kServerCharactersMax) {
    return "server is longer than " + std::to_string(kServerCharactersMax) + " characters";
  }
  for (const auto& [name, number] : {std::pair("cloud_budget", c.cloud_budget),
                                     std::pair("cloud_budget_per_hour", c.cloud_budget_per_hour)}) {
    if (!(number >= 0 && number <= 1e9)) {
      return std::string(name) + " " + shortest_text(number) + " is not between 0 and 1e9";
    }
  }
  if (!(c.cloud_start_timeout >= 1 && c.cloud_start_timeout <= 1e6)) {
    return "cloud_start_timeout " + shortest_text(c.cloud_start_timeout) +
           " is not between 1 and 1e6";
  }
  const auto offers = worker_offers(c);
  if (!offers.ok()) {
    return offers.error().detail;
  }
  if (servers_use_cuda(c) && names_cloud_machines(c)) {
    const bool rounds = c.reduction != "exact" && c.audit_every == 0 && !uses_parameter_servers(c);
    if (const Result<void> gpus = check_gpus(offers.value(), !rounds); !gpus.ok()) {
      return gpus.error().detail;
    }
  }
  if (!c.hosts.empty() && !c.hostfile.empty()) {
    return std::string("hosts and hostfile say the same; give one of them");
  }
  if (c.evaluators > 0 && c.cloud_provider.empty() && c.hosts.empty() && c.hostfile.empty()) {
    return std::string(
        "evaluators are servers of --cloud-provider or --hosts; for a run whose workers are "
        "started otherwise, start `mayfly evaluator --run-dir DIR`");
  }
  if (const std::string wrong = fault_of_evaluator_offers(c); !wrong.empty()) {
    return wrong;
  }
  if (c.cloud_provider.empty()) {
    return {};
  }
  if (c.cloud_max_workers != 0 && c.cloud_max_workers < c.workers) {
    return "cloud_max_workers " + std::to_string(c.cloud_max_workers) + " is below workers " +
           std::to_string(c.workers);
  }
  if (c.cloud_max_workers > elastic::kMembersMax) {
    return "cloud_max_workers is above " + std::to_string(elastic::kMembersMax);
  }
  if (c.cloud_provider == "ssh" && c.hosts.empty() && c.hostfile.empty()) {
    return std::string("cloud_provider ssh needs hosts or hostfile");
  }
  if (c.cloud_provider == "exec" && c.cloud_command.empty()) {
    return std::string("cloud_provider exec needs cloud_command");
  }
  if (c.cloud_provider == "local" && !c.cloud_bundle.empty()) {
    return std::string("cloud_bundle is for other machines; processes of this host need none");
  }
  if (const std::string wrong = fault_of_servers_with_standbys(c); !wrong.empty()) {
    return wrong;
  }
  for (const std::string& endpoint : listed_endpoints(c.cloud_coordinators)) {
    if (!is_endpoint(endpoint)) {
      return "cloud_coordinators: '" + endpoint + "' is not HOST:PORT";
    }
  }
  return one_of("cloud_provider", c.cloud_provider, cloud_provider_names());
}

}  // namespace

Result<void> check_spares(const JobConfig& config) {
  if (config.spares == 0) {
    return {};
  }
  if (config.spares >= config.workers) {
    return Error{Errc::kInvalidInput, "spares " + std::to_string(config.spares) + " of " +
                                          std::to_string(config.workers) +
                                          " workers leaves none to begin with"};
  }
  if (config.min_workers > config.workers - config.spares) {
    return Error{Errc::kInvalidInput, "min_workers " + std::to_string(config.min_workers) +
                                          " is more than the " +
                                          std::to_string(config.workers - config.spares) +
                                          " workers that are not spares"};
  }
  return {};
}

std::string describe_seeds(const JobConfig& config) {
  const std::string seed = std::to_string(config.seed);
  return config.data_seed == 0 ? seed : seed + ", of the data " + std::to_string(config.data_seed);
}

std::vector<std::string> coordinator_endpoints(const JobConfig& config) {
  return listed_endpoints(config.coordinator);
}

bool has_standbys(const JobConfig& config) {
  return config.quorum || config.standby || coordinator_endpoints(config).size() > 1;
}

Result<void> validate(const JobConfig& config) {
  TRY(check_batches(config) ? Result<void>() : check_parameter_servers(config));
  for (const auto& check :
       {check_batches, check_optimizer, check_names, check_exchange, check_workers, check_times,
        check_injections, check_cloud, check_replan, check_records}) {
    if (const Complaint complaint = check(config)) {
      return Error{Errc::kInvalidInput, *complaint};
    }
  }
  return {};
}

}  // namespace mayfly::engine
