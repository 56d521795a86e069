#include "engine/job/derive_job.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "base/try_assign.hpp"
#include "engine/config/derived_settings.hpp"

namespace mayfly::engine {
namespace {

std::uint64_t steps_for_epochs(double epochs, const Job& job) {
  const double samples = epochs * static_cast<double>(job.facts.train_samples);
  return static_cast<std::uint64_t>(std::llround(samples / job.config.global_batch));
}

/// Everything on which the bits of a program's result depend.
Fingerprint fingerprint_of_program(const Job& job) {
  Fingerprint fingerprint = common_fingerprint(job);
  fingerprint.insert(fingerprint.end(),
                     {{"samples", fmt::format("{}", job.facts.train_samples)},
                      {"evaluation", fmt::format("{}/{}", job.facts.program.test_samples,
                                                 job.evaluate_every_steps)}});
  for (const auto& [name, text] : job.facts.program.equals) {
    fingerprint.emplace_back("program: " + name, text);
  }
  return fingerprint;
}

}  // namespace

Fingerprint common_fingerprint(const Job& job) {
  const JobConfig& c = job.config;
  return {{"version", kVersion},
          {"model", c.model},
          {"seed", describe_seeds(c)},
          {"steps", fmt::format("{}", job.total_steps)},
          {"global_batch", fmt::format("{}", c.global_batch)},
          {"microbatch", fmt::format("{}", c.microbatch)},
          {"checkpoint_every", fmt::format("{}", c.checkpoint_every)},
          {"digest_every", fmt::format("{}", c.digest_every)},
          {"audit_every", fmt::format("{}", c.audit_every)},
          {"reduction", c.reduction},
          {"wire", name_of(job.wire)},
          {"bucket_kib", c.bucket_kib},
          {"backend", c.backend},
          {"standby coordinators", has_standbys(c) ? "yes" : "no"}};
}

Result<void> derive_exchange(Job& job) {
  TRY_ASSIGN(job.wire, parse_wire(job.config.wire, job.config.reduction));
  TRY_ASSIGN(job.bucket_size, parse_bucket_kib(job.config.bucket_kib));
  return {};
}

void derive_steps(Job& job) {
  const JobConfig& config = job.config;
  job.total_steps = config.steps > 0
                        ? config.steps
                        : std::max<std::uint64_t>(1, steps_for_epochs(config.epochs, job));
  job.evaluate_every_steps =
      config.eval_every_epochs > 0
          ? std::max<std::uint64_t>(1, steps_for_epochs(config.eval_every_epochs, job))
          : 0;
  job.schedule.base = config.lr;
  job.schedule.total_steps = job.total_steps;
  job.schedule.warmup_steps =
      std::min(steps_for_epochs(config.warmup_epochs, job), job.total_steps / 5);
}

Result<void> derive_program(Job& job) {
  const ProgramFacts& program = job.facts.program;
  JobConfig& config = job.config;
  config.steps = program.steps;
  config.global_batch = program.global_batch;
  config.microbatch = program.microbatch;
  config.evaluate = config.evaluate && program.test_samples > 0;
  TRY(validate(config));
  job.microbatches = config.global_batch / config.microbatch;
  derive_steps(job);
  job.evaluate_every_steps = program.test_samples > 0 ? job.evaluate_every_steps : 0;
  job.schedule = {};
  job.fingerprint = fingerprint_of_program(job);
  return {};
}

Result<std::unique_ptr<Job>> begin_program(const JobConfig& config) {
  auto job = std::make_unique<Job>();
  job->config = config;
  TRY(derive_exchange(*job));
  return job;
}

}  // namespace mayfly::engine
