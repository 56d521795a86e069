#include "engine/training/trainer.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "base/check.hpp"
#include "base/log.hpp"
#include "base/try_assign.hpp"
#include "elastic/core/view.hpp"
#include "elastic/net/member_client.hpp"
#include "engine/training/evaluation.hpp"
#include "engine/training/worker_link.hpp"

namespace mayfly::engine {
namespace {

// A last resort, like kStepTimeout.
constexpr Duration kFormTimeout = seconds(30);
constexpr Duration kReportTimeout = seconds(60);
// The members wait so long for the reporter's upload of the last state, which may take longer than
// any step: the reporter's activity shows progress, and the coordinator ends the view without it.
constexpr Duration kLastBarrierTimeout = seconds(24 * 3600);
// Buckets of 128 KiB to 32 MiB.
constexpr std::size_t kTunedElementsMin = std::size_t{32} << 10;
constexpr std::size_t kTunedElementsMax = std::size_t{8} << 20;

Rank rank_of(MemberId self, const elastic::View& view) {
  for (std::size_t r = 0; r < view.members.size(); ++r) {
    if (view.members[r].id == self) {
      return static_cast<Rank>(r);
    }
  }
  UNREACHABLE("a member is only ordered into views it belongs to");
}

/// Bucket sizes, in elements, that cut the network differently; the configured one first.
std::vector<std::size_t> candidate_sizes(const BucketSize& size, const ReductionLayout& layout) {
  std::vector<std::size_t> sizes = {size.elements};
  if (!size.tuned) {
    return sizes;
  }
  ReductionLayout cut = layout;  // a copy: an earlier membership may have cut `layout` otherwise
  cut.cut_buckets(size.elements);
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

Trainer::Trainer(TrainerParts parts)
    : parts_(parts),
      state_(parts.state),
      activity_(parts.trace, parts.board, part_, state_),
      buckets_(parts.layout, parts.job.wire, parts.job.microbatches, parts.trace, &parts.board,
               parts.device_sums),
      tuner_(candidate_sizes(parts.job.bucket_size, parts.layout)),
      work_(parts.job, parts.layout, parts.feed, parts.computer),
      checks_(parts.job, parts.computer, state_, work_, part_, activity_),
      schedule_(parts.job, state_.committed()),
      reports_(parts.job, parts.client, parts.feed, parts.computer, state_, clock_,
               parts.recent_records),
      exchange_({.job = parts.job,
                 .layout = parts.layout,
                 .token = parts.token,
                 .client = parts.client,
                 .computer = parts.computer,
                 .state = state_,
                 .work = work_,
                 .buckets = buckets_,
                 .tuner = tuner_,
                 .part = part_,
                 .activity = activity_}) {
  part_.position = state_.committed();
}

elastic::member_effect::Leave Trainer::run() {
  while (true) {
    activity_.turn_to(elastic::Activity::kIdle);
    const WorkerLink::Order order = parts_.link.next_order();
    if (const auto* leave = std::get_if<elastic::member_effect::Leave>(&order)) {
      parts_.computer.discard();
      elastic::member_effect::Leave left = *leave;
      left.write_checkpoint = left.write_checkpoint && !part_.observes;  // it lacks the state
      if (left.write_checkpoint) {
        save_before_leaving();
      }
      exchange_.wait_until_copied();  // the last view may just have begun
      return left;
    }
    const auto& view = std::get<elastic::View>(order);
    const ViewEnd end = run_view(view);
    if (!end.failure && !end.finished) {
      work_on(view);
    }
    report_stopped(view.id, end);
  }
}

void Trainer::save_before_leaving() {
  activity_.turn_to(elastic::Activity::kCheckpoint);
  state_.draw_weights();
  if (parts_.checkpoints.write_now(state_.committed(), state_.checkpoint())) {
    log::info(fmt::format("the state of step {} is in {}/checkpoints", value(state_.committed()),
                          parts_.job.config.run_dir));
  }
}

Trainer::ViewEnd Trainer::run_view(const elastic::View& view) {
  parts_.computer.clear_interrupt();
  part_.has_contributed = value(view.committed) >= parts_.job.total_steps;
  exchange_.wait_until_copied();
  checks_.begin_view();  // first: a report of this view must not contain disputes of earlier views
  if (parts_.link.is_over(view.id)) {
    return {false, Error{Errc::kAborted, "the view was over before it began"}};
  }
  collectives::GroupSpec spec = begin_view(view);
  RendezvousOverControl store(parts_.client, view.id);
  spec.store = &store;
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

collectives::GroupSpec Trainer::begin_view(const elastic::View& view) {
  part_.rank = rank_of(parts_.client.id(), view);
  part_.is_reporter = part_.rank == elastic::reporter_of(view);
  part_.steps = 0;
  evaluated_.reset();
  peers_.clear();
  if (parts_.trace != nullptr) {
    parts_.trace->at_step(0);
  }
  collectives::GroupSpec spec;
  spec.view = view.id;
  spec.rank = part_.rank;
  spec.key = view.key;
  for (const elastic::ViewMember& member : view.members) {
    spec.peers.push_back({member.id, member.address});
    if (member.id != parts_.client.id()) {
      peers_.push_back(member.address);
    }
  }
  clock_.begin_view();
  work_.begin_view();
  exchange_.begin_view(view);
  const auto holders = std::ranges::count_if(
      view.members, [](const elastic::ViewMember& member) { return !member.is_observer(); });
  has_shared_state_ = has_shared_state_ || holders > 1;
  part_.is_last_holder = has_shared_state_ && holders == 1 && !part_.observes;
  if (part_.observes) {
    reports_.forget_recent();  // members with the state report these steps
  } else if (state_.committed() == view.committed) {
    state_.draw_weights();
  }
  return spec;
}

/// Lets the compute threads begin with the view's first step while this thread forms the group,
/// which they do not need, and compares states. Microbatches of another step that are still queued
/// are dropped.
void Trainer::work_ahead(const elastic::View& view) {
  if (part_.observes || state_.committed() != view.committed) {
    work_.drop_queued();  // they are of a step that other members have committed
  }
  const elastic::MicrobatchSet share =
      elastic::work_before_group(view, view.members[value(part_.rank)], state_.committed());
  if (share.empty() || value(view.committed) >= parts_.job.total_steps) {
    return;
  }
  part_.position = view.committed;
  if (work_.may_begin(next(part_.position), share)) {
    compute(share);
  }
}

/// The view has ended at a boundary. Until the next one is announced, the compute threads work on
/// the microbatches that they would have begun with in another step of this view.
void Trainer::work_on(const elastic::View& ended) {
  const elastic::MicrobatchSet share = elastic::work_at_boundary(
      ended.members[value(part_.rank)], !part_.observes && parts_.link.stays_after(ended.id),
      static_cast<std::uint32_t>(parts_.computer.thread_count()));
  if (!share.empty() && value(part_.position) < parts_.job.total_steps &&
      work_.may_begin(next(part_.position), share)) {
    compute(share);
  }
}

Result<std::unique_ptr<collectives::Group>> Trainer::form(const collectives::GroupSpec& spec) {
  const TraceSpan traced =
      activity_.span("form view", {"view", static_cast<std::int64_t>(value(spec.view))});
  activity_.turn_to(elastic::Activity::kForm);
  return parts_.transport.form(spec, monotonic_now() + kFormTimeout);
}

Result<void> Trainer::enter(const elastic::View& view, collectives::Group& group) {
  parts_.client.post(elastic::member_event::GroupFormed{view.id});
  TRY(exchange_.agree(view, group, over_->fd(), monotonic_now() + kStepTimeout));
  part_.position = view.committed;
  if (!part_.observes) {
    parts_.client.post(elastic::member_event::StateSynced{view.id});
    reports_.repeat(view, part_);
  }
  // The members have not agreed on this step's exponents or buckets: it begins again.
  if (work_.has_other_exponents() || work_.has_other_buckets(tuner_.elements())) {
    work_.discard();
  }
  return {};
}

void Trainer::report_stopped(ViewId view, const ViewEnd& end) {
  exchange_.take_state_if_caught_up();
  elastic::Stopped stopped;
  stopped.view = view;
  stopped.committed = state_.committed();
  stopped.finished = end.finished;
  stopped.contributed = part_.has_contributed;
  stopped.held = work_.held_for(next(state_.committed()));
  stopped.observed = exchange_.observed();
  checks_.put_into(stopped);
  if (end.failure.has_value()) {
    stopped.failed = end.failure->code != Errc::kAborted;
    stopped.culprit = end.failure->culprit;
    stopped.unanswered = end.failure->code == Errc::kUnreachable;
    stopped.detail = end.failure->detail;
    log::info(fmt::format("view {} ended after step {}: {}", value(view), value(state_.committed()),
                          end.failure->detail));
  }
  parts_.client.post(elastic::member_event::TrainerStopped{std::move(stopped)});
}

Trainer::ViewEnd Trainer::run_steps(const elastic::View& view, collectives::Group& group) {
  const elastic::ViewMember& self = view.members[value(part_.rank)];
  const auto later = elastic::MicrobatchSet::range(self.first, self.count);
  while (value(part_.position) < parts_.job.total_steps) {
    const std::uint64_t every = parts_.job.evaluate_every_steps;
    if (every > 0 && part_.position != Step{} && value(part_.position) % every == 0 &&
        evaluated_ != part_.position) {
      if (Result<void> done = evaluate(view, group); !done.ok()) {
        return {false, done.error()};
      }
    }
    const Result<bool> boundary =
        run_step(view, group, part_.is_first_step() ? self.first_step : later, later);
    if (!boundary.ok()) {
      return {false, boundary.error()};
    }
    if (parts_.trace != nullptr) {
      parts_.trace->at_step(part_.steps);
    }
    if (boundary.value() && value(part_.position) < parts_.job.total_steps) {
      return {};  // not after the last step: then the job ends, whatever was requested
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
  const TraceSpan traced = activity_.span("step");
  while (true) {
    compute(share);
    work_.prefetch(next(next(part_.position)), next_share);
    TRY_ASSIGN(const ReducedStep step, reduce(view, group));
    if (!step.states_agree) {
      return checks_.states_differ();
    }
    if (!step.results_agree) {
      return checks_.results_differ();
    }
    write_checkpoint_if_due();
    if (!goes_on_after(step)) {
      if (part_.is_reporter) {
        reports_.fatal(
            fmt::format("the loss or a gradient became infinite or NaN in step {}; a "
                        "lower learning rate or a longer warm-up may help",
                        value(next(part_.position))));
      }
      return Error{Errc::kDiverged, "the loss is not finite"};
    }
    if (step.totals.overflows == 0 || step.skips_update()) {
      commit(view, step);
      return step.boundary;
    }
    work_.try_again(buckets_.raised_exponents(work_.exponents()));
  }
}

void Trainer::compute(const elastic::MicrobatchSet& share) {
  work_.compute(next(part_.position), share, exchange_.exponents(), tuner_.elements());
}

Result<ReducedStep> Trainer::reduce(const elastic::View& view, collectives::Group& group) {
  const std::optional<std::uint64_t> rest = checks_.rest_of_state();  // while threads are busy
  const bool on_device = state_.is_on_device();
  std::optional<std::uint32_t> check;
  const std::size_t bucket_count = parts_.layout.buckets().size();
  for (std::size_t b = 0; b < bucket_count; ++b) {
    if (on_device && b + 1 == bucket_count) {
      // Meanwhile the device computes the last bucket and reduces earlier ones.
      const TraceSpan traced = activity_.span("check state");
      check = checks_.state_check(rest);
    }
    if (!wait_until_computed(b)) {
      group.abort();
      (void)buckets_.finish(work_.exponents(), monotonic_now());
      TRY(check_computer());
      return Error{Errc::kAborted, "the view is over"};
    }
    const TraceSpan traced =
        activity_.span("start all-reduce", {"bucket", static_cast<std::int64_t>(b)});
    buckets_.start(group, b, parts_.computer.sums());
  }
  if (!on_device) {
    check = checks_.state_check(rest);
  }
  MemberWaits waits = reports_.waited();
  waits.members = group.time_waited();
  part_.has_contributed = true;  // no step is complete without the signals of every member
  buckets_.start_signals(group, parts_.computer.sums(),
                         {parts_.link.boundary_requested(view.id), reports_.previous_step_us(part_),
                          check, checks_.audit_check(view),
                          clock_.ready(monotonic_now(), waits, part_.rank, part_.is_first_step())});
  const TraceSpan traced = activity_.span("wait for all-reduce");
  TRY_ASSIGN(ReducedStep reduced, buckets_.finish(work_.exponents(), monotonic_now() + kStepTimeout,
                                                  value(next(part_.position))));
  clock_.reduced(monotonic_now(), reduced.ready, group.time_waited());
  return reduced;
}

bool Trainer::wait_until_computed(std::size_t bucket) {
  const TraceSpan traced =
      activity_.span("wait for compute", {"bucket", static_cast<std::int64_t>(bucket)});
  activity_.turn_to(elastic::Activity::kCompute, static_cast<std::uint32_t>(bucket));
  return parts_.computer.wait_for_bucket(bucket);
}

bool Trainer::goes_on_after(const ReducedStep& reduced) const {
  const std::optional<nn::LossScale> scale = exchange_.loss_scale();
  return !reduced.skips_update() || (scale.has_value() && scale->after_step(true).has_value());
}

/// To be called when the reduction has shown that all members began this step with the same state.
void Trainer::write_checkpoint_if_due() {
  const bool is_leaving = parts_.is_leaving && parts_.is_leaving();
  const Instant begun = monotonic_now();
  if (!part_.observes && schedule_.take(state_.committed(), part_, begun, is_leaving) &&
      part_.is_reporter) {
    parts_.checkpoints.set_urgent(is_leaving || part_.is_last_holder);
    parts_.checkpoints.write_later(state_.committed(), state_.checkpoint());
    clock_.copied_state(monotonic_now() - begun);
  }
}

void Trainer::commit(const elastic::View& view, const ReducedStep& reduced) {
  const TraceSpan traced = activity_.span("commit");
  activity_.turn_to(elastic::Activity::kCommit);
  exchange_.before_commit();
  StepFacts facts;
  facts.scale = exchange_.loss_scale();
  facts.loss = part_.observes ? exchange_.observe(reduced)
                              : state_.apply(buckets_, work_.exponents(), reduced.skips_update());
  part_.position = next(part_.position);
  tune_buckets(reduced);
  facts.attempts = work_.finish();
  reports_.committed(view, part_, reduced, facts);
  if (parts_.after_commit && !part_.observes) {
    parts_.after_commit();
  }
  reports_.send_progress(view, part_);
  ++part_.steps;
}

void Trainer::tune_buckets(const ReducedStep& reduced) {
  if (tuner_.decided()) {
    return;
  }
  tuner_.step_committed(reduced.previous_step_us);
  if (tuner_.decided()) {
    log::info(fmt::format("buckets of {} KiB from step {} on: {:.2f} ms a step when tried",
                          tuner_.elements() * sizeof(float) / 1024, value(next(part_.position)),
                          tuner_.typical_us() / 1e3));
  }
}

Result<void> Trainer::check_computer() {
  if (const std::optional<Error> failure = parts_.computer.failure()) {
    reports_.fatal(failure->detail);  // no other member knows the reason
    return *failure;
  }
  return {};
}

Result<void> Trainer::evaluate(const elastic::View& view, collectives::Group& group) {
  const TraceSpan traced = activity_.span("evaluate");
  activity_.turn_to(elastic::Activity::kEvaluate);
  const Instant begun = monotonic_now();
  const std::vector<std::uint32_t> own =
      evaluation_chunks(view, part_.rank, parts_.computer.test_chunks());
  if (work_.is_under_way() && !parts_.computer.wait_for_step()) {  // the sums of the previous view
    TRY(check_computer());
    return Error{Errc::kAborted, "the view is over"};
  }
  const EvaluationSums sums = parts_.computer.evaluate(own);
  TRY(check_computer());
  activity_.turn_to(elastic::Activity::kExchange);
  TRY_ASSIGN(const auto all, sum_of_members(group, sums, monotonic_now() + kStepTimeout));
  const Duration took = monotonic_now() - begun;
  clock_.evaluated(took);
  evaluated_ = part_.position;
  reports_.evaluated(part_, all, took);
  parts_.computer.evaluated_by_all(all);
  return {};
}

Result<void> Trainer::finish_job(const elastic::View& view, collectives::Group& group) {
  if (parts_.job.config.evaluate) {
    TRY(evaluate(view, group));
  }
  activity_.turn_to(elastic::Activity::kExchange);
  TRY(checks_.compare_last_state(group, monotonic_now() + kStepTimeout));
  if (part_.is_reporter) {
    activity_.turn_to(elastic::Activity::kCheckpoint);
    parts_.checkpoints.write_now(state_.committed(), state_.checkpoint());
    TRY(wait_for_upload(view));
    TRY(wait_for_reports(view));
  }
  activity_.turn_to(elastic::Activity::kExchange);
  // No member reports "finished" before the results are on record: if the reporter dies here, the
  // next view repeats this part.
  return group.wait_or_abort(*group.barrier(), monotonic_now() + kLastBarrierTimeout);
}

/// Waits until the coordinator has the last checkpoint: the worker's machine may be taken away with
/// its disk as soon as the worker has finished. If the coordinator cannot store the checkpoint, it
/// reports that itself, and this is not a failure.
Result<void> Trainer::wait_for_upload(const elastic::View& view) {
  const Result<void> uploaded = parts_.checkpoints.wait_until_uploaded(kReportTimeout, [&] {
    // Shows the coordinator that the upload, which may take minutes, makes progress. The wait has a
    // limit of its own.
    activity_.turn_to(elastic::Activity::kCheckpoint);
    return parts_.link.is_over(view.id);
  });
  return !uploaded.ok() && uploaded.error().code == Errc::kAborted ? uploaded : Result<void>();
}

/// Waits until the coordinator has all reports of this member, while the other members wait in a
/// barrier. Without a coordinator the wait ends after a while, because the reports are kept.
Result<void> Trainer::wait_for_reports(const elastic::View& view) {
  activity_.turn_to(elastic::Activity::kIdle);
  const std::chrono::duration<double> configured(parts_.job.config.coordinator_timeout);
  const Duration patience =
      std::min(kReportTimeout, std::chrono::duration_cast<Duration>(configured));
  Result<void> taken;
  do {
    taken = elastic::wait_for_reports(parts_.client, view.id, monotonic_now() + patience);
  } while (taken.ok() && reports_.repeat_to_coordinator_that_was_away(view, part_));
  if (!taken.ok() && taken.error().code == Errc::kDeadline) {
    return {};
  }
  return taken;
}

}  // namespace mayfly::engine
