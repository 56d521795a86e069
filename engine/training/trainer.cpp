#include "engine/training/trainer.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <utility>

#include "base/check.hpp"
#include "base/log.hpp"
#include "engine/run/network_interface.hpp"
#include "engine/training/rendezvous.hpp"

namespace mayfly::engine {
namespace {

// A backstop, as kStepTimeout.
constexpr Duration kFormTimeout = seconds(30);
// Buckets of 128 KiB to 32 MiB.
constexpr std::size_t kTunedElementsMin = std::size_t{32} << 10;
constexpr std::size_t kTunedElementsMax = std::size_t{8} << 20;
constexpr Duration kProgressInterval = milliseconds(100);

Rank rank_of(MemberId self, const elastic::View& view) {
  for (std::size_t r = 0; r < view.members.size(); ++r) {
    if (view.members[r].id == self) {
      return static_cast<Rank>(r);
    }
  }
  UNREACHABLE("a member is only ordered into views it belongs to");
}

/// It has been found before: the transport listens there.
std::string host_of(const JobConfig& config) {
  const Result<std::string> host = listening_host(config.bind_host);
  return host.ok() ? host.value() : config.bind_host;
}

/// Sizes worth trying, the usual one first: those that cut the network differently.
std::vector<std::size_t> candidate_sizes(const BucketSize& size, const ReductionLayout& layout) {
  std::vector<std::size_t> sizes = {size.elements};
  if (!size.tuned) {
    return sizes;
  }
  ReductionLayout cut = layout;
  std::vector<std::size_t> counts = {cut.buckets().size()};
  for (std::size_t elements = kTunedElementsMin; elements <= kTunedElementsMax; elements *= 4) {
    cut.cut_buckets(elements);
    if (std::find(counts.begin(), counts.end(), cut.buckets().size()) == counts.end()) {
      counts.push_back(cut.buckets().size());
      sizes.push_back(elements);
    }
  }
  return sizes;
}

}  // namespace

Trainer::Trainer(TrainerParts parts, nn::ModelState initial)
    : parts_(parts),
      state_(std::move(initial)),
      host_copy_(state_, parts.pool),
      lane_(lane_of(parts.trace, "trainer")),
      buckets_(parts.layout, parts.job.wire, parts.job.microbatches, parts.trace, &parts.board,
               parts.device_sums),
      tuner_(candidate_sizes(parts.job.bucket_size, parts.layout)),
      committer_(parts.job, parts.layout),
      state_parts_(parts.job.model),
      saved_(state_.committed),
      donor_(host_of(parts.job.config), StateDonor::Priority::kLow, parts.token),
      sender_(host_of(parts.job.config), StateDonor::Priority::kUsual, parts.token) {
  position_ = state_.committed;
  host_copy_.replaced();  // the pool may know another trainer's
}

elastic::member_effect::Leave Trainer::run() {
  while (true) {
    turn_to(elastic::Activity::kIdle);
    const WorkerLink::Order order = parts_.link.next_order();
    if (const auto* leave = std::get_if<elastic::member_effect::Leave>(&order)) {
      parts_.pool.discard();
      if (leave->write_checkpoint) {
        turn_to(elastic::Activity::kCheckpoint);
        draw_weights();
        if (parts_.checkpoints.write_now(state_here())) {
          log::info(fmt::format("the state of step {} is in {}/checkpoints",
                                value(state_.committed), parts_.job.config.run_dir));
        }
      }
      return *leave;
    }
    const auto& view = std::get<elastic::View>(order);
    const ViewEnd end = run_view(view);
    if (!end.failure && !end.finished) {
      work_on(view);
    }
    report_stopped(view.id, end);
  }
}

nn::ModelState Trainer::take_state() {
  donor_.wait_until_copied();  // whose threads read it; the last view may just have begun
  sender_.wait_until_copied();
  return std::move(state_here());
}

Trainer::ViewEnd Trainer::run_view(const elastic::View& view) {
  parts_.pool.clear_interrupt();
  donor_.wait_until_copied();
  sender_.wait_until_copied();
  if (parts_.link.is_over(view.id)) {
    return {false, Error{Errc::kAborted, "the view was over before it began"}};
  }
  rank_ = rank_of(parts_.client.id(), view);
  is_reporter_ = rank_ == elastic::reporter_of(view);
  first_step_of_view_ = true;
  steps_of_view_ = 0;
  peers_.clear();
  if (parts_.trace != nullptr) {
    parts_.trace->at_step(0);
  }
  evaluated_.reset();
  dispute_ = elastic::Dispute::kNone;
  disputed_.clear();
  is_unsound_ = false;
  prefetched_ = 0;
  parts_.loader.cancel_requests();

  collectives::GroupSpec spec;
  spec.view = view.id;
  spec.rank = rank_;
  spec.key = view.key;
  for (const elastic::ViewMember& member : view.members) {
    spec.peers.push_back({member.id, member.address});
    if (member.id != parts_.client.id()) {
      peers_.push_back(member.address);
    }
  }
  RendezvousOverControl store(parts_.client, view.id);
  spec.store = &store;
  begin_observing(view);
  if (!observes_ && state_.committed == view.committed) {
    draw_weights();
  }
  work_ahead(view);
  Result<std::unique_ptr<collectives::Group>> formed = form(spec);
  if (!formed.ok()) {
    return {false, formed.error()};
  }
  const std::unique_ptr<collectives::Group> group = std::move(formed).value();
  over_.emplace();
  parts_.link.attach(*group, *over_);
  buckets_.begin_view(static_cast<std::uint32_t>(view.members.size()));
  ViewEnd end;
  if (Result<void> entered = enter(view, *group); entered.ok()) {
    end = run_steps(view, *group);
  } else {
    end.failure = entered.error();
  }
  parts_.link.detach();
  if (parts_.trace != nullptr) {
    parts_.trace->flush();
  }
  return end;
}

Result<std::unique_ptr<collectives::Group>> Trainer::form(const collectives::GroupSpec& spec) {
  const TraceSpan traced = span("form view", {"view", static_cast<std::int64_t>(value(spec.view))});
  turn_to(elastic::Activity::kForm);
  return parts_.transport.form(spec, monotonic_now() + kFormTimeout);
}

Trainer::ViewEnd Trainer::run_steps(const elastic::View& view, collectives::Group& group) {
  const elastic::ViewMember& self = view.members[value(rank_)];
  const auto later = elastic::MicrobatchSet::range(self.first, self.count);
  while (value(position_) < parts_.job.total_steps) {
    const std::uint64_t every = parts_.job.evaluate_every_steps;
    if (every > 0 && position_ != Step{} && value(position_) % every == 0 &&
        evaluated_ != position_) {
      if (Result<void> done = evaluate(view, group); !done.ok()) {
        return {false, done.error()};
      }
    }
    Result<bool> boundary =
        run_step(view, group, first_step_of_view_ ? self.first_step : later, later);
    if (!boundary.ok()) {
      return {false, boundary.error()};
    }
    if (parts_.trace != nullptr) {
      parts_.trace->at_step(steps_of_view_);
    }
    if (boundary.value() && value(position_) < parts_.job.total_steps) {
      return {};  // after the last step nothing is left but its end, whatever was asked for
    }
  }
  if (Result<void> done = finish_job(view, group); !done.ok()) {
    return {false, done.error()};
  }
  return {true, std::nullopt};
}

Result<bool> Trainer::run_step(const elastic::View& view, collectives::Group& group,
                               const elastic::MicrobatchSet& share,
                               const elastic::MicrobatchSet& next_share) {
  const TraceSpan traced = span("step");
  while (true) {
    compute_share(share);
    prefetch(value(position_) + 2, next_share);
    Result<ReducedStep> reduced = reduce(view, group);
    if (!reduced.ok()) {
      return std::move(reduced).error();
    }
    const ReducedStep& step = reduced.value();
    if (!step.states_agree) {
      return states_differ();
    }
    if (!step.results_agree) {
      return results_differ();
    }
    states_agreed();
    if (!goes_on_after(step)) {
      report_fatal(
          fmt::format("the loss or a gradient became infinite or NaN in step {}; a lower "
                      "--lr or a longer warm-up may help",
                      value(next(position_))));
      return Error{Errc::kDiverged, "the loss is not finite"};
    }
    if (step.totals.overflows == 0 || step.skips_update()) {
      commit(view, step);
      return step.boundary;
    }
    exponents_ = buckets_.raised_exponents(exponents_);
    ++attempt_;
    begin_computing();
    held_ = {};
  }
}

bool Trainer::goes_on_after(const ReducedStep& reduced) const {
  const std::optional<nn::LossScale>& scale = scale_of_position();
  return !reduced.skips_update() || (scale.has_value() && scale->after_step(true).has_value());
}

void Trainer::begin_computing() {
  parts_.pool.begin_step(value(computing_), state_, exponents_, audited());
}

void Trainer::compute_share(const elastic::MicrobatchSet& share) {
  const Step step = next(position_);
  const bool keep = computing_ == step && held_.minus(share).empty();
  if (!keep) {
    parts_.pool.discard();
    computing_ = step;
    attempt_ = 0;
    held_ = {};
    exponents_ = exponents_of_position();
    parts_.layout.cut_buckets(tuner_.elements());  // nobody reads it: the pool is idle
    begin_computing();
  }
  const std::vector<std::uint32_t> missing = share.minus(held_).list();
  if (prefetched_ < value(step)) {
    parts_.loader.request(value(step), missing);
    prefetched_ = value(step);
  }
  parts_.pool.add_microbatches(missing);
  held_ = share;
}

void Trainer::prefetch(std::uint64_t step, const elastic::MicrobatchSet& share) {
  if (prefetched_ < step && step <= parts_.job.total_steps) {
    parts_.loader.request(step, share.list());
    prefetched_ = step;
  }
}

Result<ReducedStep> Trainer::reduce(const elastic::View& view, collectives::Group& group) {
  const std::optional<std::uint64_t> rest = rest_of_state();  // while the compute threads are busy
  const bool on_device = parts_.pool.updates_on_device();
  std::optional<std::uint32_t> check;
  const std::size_t bucket_count = parts_.layout.buckets().size();
  for (std::size_t b = 0; b < bucket_count; ++b) {
    if (on_device && b + 1 == bucket_count) {
      // The device still computes, and reduces what came before.
      const TraceSpan traced = span("check state");
      check = state_check(rest);
    }
    if (!computed(b)) {
      group.abort();
      (void)buckets_.finish(exponents_, monotonic_now());
      TRY(check_pool());
      return Error{Errc::kAborted, "the view is over"};
    }
    const TraceSpan traced = span("start all-reduce", {"bucket", static_cast<std::int64_t>(b)});
    buckets_.start(group, b, parts_.pool.sums());
  }
  if (!on_device) {
    check = state_check(rest);
  }
  buckets_.start_signals(
      group, parts_.pool.sums(),
      {parts_.link.boundary_asked(view.id), previous_step_us(), check, audit_check(view)});
  const TraceSpan traced = span("wait for all-reduce");
  return buckets_.finish(exponents_, monotonic_now() + kStepTimeout, value(next(position_)));
}

bool Trainer::computed(std::size_t bucket) {
  const TraceSpan traced = span("wait for compute", {"bucket", static_cast<std::int64_t>(bucket)});
  turn_to(elastic::Activity::kCompute, static_cast<std::uint32_t>(bucket));
  return parts_.pool.wait_for_bucket(bucket);
}

std::uint32_t Trainer::previous_step_us() const {
  // The members enter a view together, so in its first step nobody has a time.
  const auto us = std::chrono::duration_cast<std::chrono::microseconds>(last_step_).count();
  return steps_of_view_ == 0 ? 0
                             : static_cast<std::uint32_t>(std::clamp<std::int64_t>(us, 1, 1 << 30));
}

void Trainer::tune_buckets(const ReducedStep& reduced) {
  if (tuner_.decided()) {
    return;
  }
  tuner_.step_committed(reduced.previous_step_us);
  if (tuner_.decided()) {
    log::info(fmt::format("buckets of {} KiB from step {} on: {:.2f} ms a step when tried",
                          tuner_.elements() * sizeof(float) / 1024, value(next(position_)),
                          tuner_.typical_us() / 1e3));
  }
}

/// The commit of a member that has the state; returns the loss.
double Trainer::apply(const ReducedStep& reduced) {
  if (reduced.skips_update()) {
    host_copy_.step_kept();
    return committer_.skip(buckets_, exponents_, parts_.pool, state_);
  }
  const double loss = committer_.commit(buckets_, exponents_, parts_.pool, state_);
  if (parts_.pool.updates_on_device()) {
    host_copy_.leave_behind();
  }
  return loss;
}

void Trainer::commit(const elastic::View& view, const ReducedStep& reduced) {
  const TraceSpan traced = span("commit");
  turn_to(elastic::Activity::kCommit);
  if (donor_.copy_count() + sender_.copy_count() > 0) {
    const TraceSpan waiting = span("wait for state copy");
    donor_.wait_until_copied();
    sender_.wait_until_copied();
    sender_.keep_only({});  // who was behind has taken part in this step
  }
  take_state_if_caught_up();
  const std::optional<nn::LossScale> scale = scale_of_position();
  const double loss = observes_ ? observe(reduced) : apply(reduced);
  position_ = next(position_);
  tune_buckets(reduced);
  computing_ = {};
  held_ = {};
  record(view, reduced, {loss, scale, std::exchange(attempt_, 0) + 1});
  if (parts_.faults != nullptr && !observes_ && parts_.faults->due(state_.committed)) {
    parts_.faults->after_commit(state_here());
    host_copy_.replaced();
  }
  const Instant now = monotonic_now();
  if (first_step_of_view_ || now - last_progress_ >= kProgressInterval) {
    const ComputeSpeed speed = parts_.pool.take_speed();
    parts_.client.send_progress(
        {view.id, position_, static_cast<float>(speed.microbatch_ms), speed.microbatches});
    last_progress_ = now;
  }
  first_step_of_view_ = false;
  ++steps_of_view_;
}

Result<void> Trainer::check_pool() {
  if (const std::optional<Error> failure = parts_.pool.failure()) {
    report_fatal(failure->detail, true);
    return *failure;
  }
  return {};
}

}  // namespace mayfly::engine
