#include "engine/processes/coordinator_options.hpp"

#include <algorithm>
#include <cstdint>

#include "base/time.hpp"
#include "elastic/net/coordinator_server.hpp"
#include "engine/config/ps_settings.hpp"
#include "engine/reduction/model_layout.hpp"
#include "engine/server_roles/ps_servers.hpp"
#include "engine/state/state_parts.hpp"

namespace mayfly::engine {

elastic::CoordinatorOptions core_options(const Job& job, Step first_step, bool is_standby) {
  const JobConfig& config = job.config;
  elastic::CoordinatorOptions core;
  core.microbatches = job.microbatches;
  core.initial_workers = std::max(config.workers - config.spares, config.min_workers);
  if (config.spares > 0) {
    core.view_max = config.workers - config.spares;
  }
  core.min_workers = config.min_workers;
  core.min_workers_timeout = Duration(static_cast<std::int64_t>(config.min_workers_timeout * 1e9));
  core.silence_max = Duration(static_cast<std::int64_t>(config.silence_max_ms * 1e6));
  core.state_part_names =
      is_program(config) ? job.facts.program.tensors : StateParts(job.model).names();
  core.rebalance.enabled = config.rebalance;
  core.stragglers.factor = config.evict_stragglers;
  core.stragglers.after = Duration(static_cast<std::int64_t>(config.evict_stragglers_after * 1e9));
  core.observe_from_bytes = static_cast<std::uint64_t>(config.observe_from_mib * (1 << 20));
  core.seed = config.seed ^ static_cast<std::uint64_t>(wall_clock_seconds() * 1e6);
  core.fingerprint = job.fingerprint;
  core.first_step = first_step;
  core.last_step = Step{job.total_steps};
  core.starved_max = Duration(static_cast<std::int64_t>(config.starved_max_ms * 1e6));
  core.stalls.evict_after(milliseconds(config.hang_max_ms),
                          config.hang_max_ms == JobConfig{}.hang_max_ms);
  if (is_program(config)) {
    core.observe_from_bytes = UINT64_MAX;  // the program can update only one state, its own
    // Work of the program between two steps cannot be interrupted when a view ends.
    core.stop_timeout = std::max<Duration>(core.stop_timeout, milliseconds(config.hang_max_ms));
  } else if (!job.bucket_size.tuned) {
    core.bucket_names = layout_of(job.model, job.bucket_size.elements).bucket_names();
  }
  if (uses_parameter_servers(config)) {  // servers are members too; microbatches have no owners
    if (!carries_servers(config)) {
      core.initial_workers += config.ps;
    }
    core.steps_need_all_members = false;
    core.last_step.reset();
    core.counts_as_worker = is_worker;  // workers report which updates are lost with a server
    core.initial_servers = server_count(config);
    core.counts_as_server = has_server;
    core.rebalance.enabled = false;
    core.observe_from_bytes = UINT64_MAX;
  }
  core.identity = elastic::make_identity();
  core.quorum = has_standbys(config);
  core.standby = is_standby;
  return core;
}

}  // namespace mayfly::engine
