#include "tests/sim/sim_worker.hpp"

#include <algorithm>

#include "base/check.hpp"
#include "elastic/core/view.hpp"
#include "tests/sim/sim_world.hpp"

namespace mayfly::sim {

using namespace elastic;

template <typename Then>
void SimWorker::in_view_after(Duration delay, Then then) {
  world_.at_worker(*id_, delay, [generation = generation_, then](SimWorker& worker) {
    if (worker.generation_ == generation) {
      then(worker);
    }
  });
}

// --- the process

void SimWorker::die(bool silently) {
  if (!alive_) {
    return;
  }
  alive_ = false;
  ++generation_;
  if (view_) {
    if (silently) {
      group().vanish(*id_);
    } else {
      group().leave(*id_);
    }
  }
  world_.worker_died(index_, silently);
}

bool SimWorker::fails_alone() {
  const bool has_view = view_.has_value();
  if (has_view) {
    stop_trainer(true, std::nullopt);
  }
  return has_view;
}

void SimWorker::heartbeat() {
  world_.to_coordinator(index_, Heartbeat{});
}

void SimWorker::on_message(const Message& message) {
  if (const auto* welcome = std::get_if<Welcome>(&message)) {
    id_ = welcome->member;
    member_.emplace(*welcome);
    world_.commit_checker().on_loaded(*id_, committed_, state_);
    world_.at_worker(*id_, world_.draw_delay(milliseconds(60)), [](SimWorker& worker) {
      worker.give(
          member_event::Loaded{Step{worker.committed_}, worker.world_.scenario().state_bytes});
    });
    return;
  }
  if (member_) {
    give(member_event::Received{message});
  }
}

void SimWorker::on_connection_closed() {
  if (member_) {
    give(member_event::CoordinatorLost{});
    if (alive_) {
      give(member_event::CoordinatorGivenUp{});
    }
  }
}

void SimWorker::on_leave_asked() {
  if (member_) {
    give(member_event::LeaveAsked{"notice"});
  }
}

void SimWorker::give(const MemberEvent& event) {
  for (const MemberEffect& effect : member_->handle(event)) {
    if (alive_) {
      std::visit([this](const auto& e) { carry_out(e); }, effect);
    }
  }
}

// --- effects of the member machine

void SimWorker::carry_out(const member_effect::Send& send) {
  world_.to_coordinator(index_, send.message);
}

void SimWorker::carry_out(const member_effect::RunView& run) {
  ENSURE(!view_, "the member machine runs one view at a time");
  world_.view_checker().on_run(*id_, run.view);
  view_ = run.view;
  ++generation_;
  boundary_asked_ = stays_ = end_is_known_ = false;
  has_reported_progress_ = false;
  begin_observing();
  work_ahead();
  is_first_step_ = true;
  world_.group_of(*view_).enter(*id_);
}

void SimWorker::carry_out(const member_effect::AbortGroup& abort) {
  if (!runs(abort.view)) {
    return;
  }
  // A trainer that waits for an all-reduce wakes up, but a microbatch in progress is not
  // interrupted. Until the trainer notices the Stop it goes on, and may even commit.
  const Duration notices = world_.draw_delay(is_reducing_ ? milliseconds(2) : microbatch_time_);
  if (world_.scenario().sabotage == Sabotage::kStopsBeforeCancelling) {
    const Stopped report{
        view_->id, Step{committed_}, held_for_next_step(), false, false, std::nullopt, ""};
    world_.at_worker(*id_, notices * 20, [view = *view_](SimWorker& worker) {
      worker.world_.group_of(view).leave(*worker.id_);
    });
    ++generation_;
    awaits_work_ = false;
    view_.reset();
    give(member_event::TrainerStopped{report});
    return;
  }
  in_view_after(notices, [](SimWorker& w) { w.stop_trainer(false, std::nullopt); });
}

void SimWorker::carry_out(const member_effect::AskForBoundary& ask) {
  if (view_ && view_->id == ask.view) {
    boundary_asked_ = true;
    stays_ = ask.stays;
  }
}

void SimWorker::carry_out(const member_effect::Leave& leave) {
  has_left_ = true;
  die(false);
  if (leave.may_rejoin && !has_worked_) {  // a real worker would also join again if it has worked
    world_.add_worker();
  }
}

// --- the trainer

const ViewMember& SimWorker::self_in_view() const {
  ENSURE(view_, "the trainer runs a view");
  return *std::find_if(view_->members.begin(), view_->members.end(),
                       [this](const ViewMember& m) { return m.id == *id_; });
}

SimGroup& SimWorker::group() {
  return world_.group_of(*view_);
}

void SimWorker::on_group_formed(ViewId view) {
  if (!runs(view)) {
    return;
  }
  give(member_event::GroupFormed{view});
  sync_or_start();
}

void SimWorker::sync_or_start() {
  if (observes_) {
    start_observing();
    return;
  }
  if (committed_ == value(view_->committed)) {
    start_computing();
    return;
  }
  in_view_after(world_.draw_delay(milliseconds(20)), [](SimWorker& w) { w.take_state(); });
}

void SimWorker::take_state() {
  const MemberId source = view_->members[value(view_->source)].id;
  const auto state = world_.state_of(source, value(view_->committed));
  if (!state) {  // the source died or left meanwhile, which breaks the group
    in_view_after(milliseconds(5), [](SimWorker& w) { w.take_state(); });
    return;
  }
  const Sabotage sabotage = world_.scenario().sabotage;
  committed_ = value(view_->committed);
  deep_state_ = world_.worker_at(source).deep_state();
  world_.corruption_checker().on_copy(*id_, source);
  if (sabotage != Sabotage::kSkipsSync) {
    state_ = *state;
  }
  if (sabotage != Sabotage::kKeepsStaleSums && sabotage != Sabotage::kWorksOnOldWeights) {
    discard_work();
  }
  if (!world_.corruption_checker().is_wrong(*id_)) {
    world_.commit_checker().on_sync(*id_, committed_, state_);
  } else {
    world_.commit_checker().on_wrong(*id_, committed_);
  }
  start_computing();
}

void SimWorker::start_computing() {
  position_ = committed_;
  has_worked_ = true;
  give(member_event::StateSynced{view_->id});
  if (committed_ == world_.scenario().steps) {
    do_the_rest();
    return;
  }
  const ViewMember& self = self_in_view();
  const bool usual =
      world_.scenario().sabotage == Sabotage::kIgnoresFirstStep && value(*id_) % 2 == 0;
  begin_step(usual ? MicrobatchSet::range(self.first, self.count) : self.first_step);
}

void SimWorker::contribute() {
  awaits_work_ = false;
  is_reducing_ = true;
  group().contribute(*id_, committed_ + 1, {held_, held_sum_, state_check(), boundary_asked_});
}

void SimWorker::on_reduced(ViewId view, std::uint64_t step, const ToySum& sum, bool boundary,
                           std::optional<std::uint64_t> agreed) {
  if (!runs(view) || step != position_ + 1) {
    return;
  }
  is_reducing_ = false;
  if (!agreed && world_.scenario().sabotage != Sabotage::kIgnoresDifferences) {
    stop_trainer(true, std::nullopt, Dispute::kState);
    return;
  }
  is_first_step_ = false;
  const bool observed = observes_;
  take_state_if_caught_up();
  if (observed && world_.comes_from_wrong(sum, step, *view_, *id_)) {
    doubt_state();
  }
  if (observes_) {
    observe(sum, agreed.value_or(0));
  } else {
    commit(sum);
  }
  if (!has_reported_progress_ || step % 4 == 0) {
    report_progress();
  }
  if (ends_together() && position_ == world_.scenario().steps) {  // even if it was told to stop
    do_the_rest();
    return;
  }
  if (has_finished() || boundary) {
    work_on();
    stop_trainer(false, std::nullopt);
    return;
  }
  if (observes_) {
    contribute_nothing();
    return;
  }
  const ViewMember& self = self_in_view();
  begin_step(MicrobatchSet::range(self.first, self.count));
}

void SimWorker::flip_a_bit() {
  const std::uint64_t bit = world_.next_bit_to_flip();
  const bool deep = world_.draw_below(2) == 0;
  if (observer_) {
    observer_->flip(bit, deep);
  } else if (!copies_.empty() && world_.draw_below(2) == 0) {
    StateCopy& copy = copies_.begin()->second;
    (deep ? copy.deep : copy.state) ^= bit;
  } else {
    (deep ? deep_state_ : state_) ^= bit;
    world_.corruption_checker().on_wrong(*id_);
  }
}

/// In the first step of a view and once in kRounds steps, the check of the whole state. Otherwise
/// the check of the part from which gradients are computed.
std::uint64_t SimWorker::state_check() const {
  const bool whole = is_first_step_ || committed_ % CorruptionChecker::kRounds == 0;
  return check_of({state_, whole ? deep_state_ : 0});
}

void SimWorker::report_progress() {
  has_reported_progress_ = true;
  const double mean_ms = computed_ == 0 ? 0 : to_ms(computing_time_) / computed_;
  world_.to_coordinator(
      index_, Progress{view_->id, Step{position_}, static_cast<float>(mean_ms), computed_});
  computing_time_ = {};
  computed_ = 0;
}

void SimWorker::commit(const ToySum& sum) {
  state_ = update(state_, sum);
  position_ = ++committed_;
  discard_work();
  if (!world_.corruption_checker().is_wrong(*id_)) {
    world_.commit_checker().on_commit(*id_, committed_, state_);
  } else {
    world_.commit_checker().on_wrong(*id_, committed_);
    world_.on_wrong_commit(*id_, committed_, *view_);
  }
  world_.sample_checker().on_commit(*id_, committed_, sum.samples);
}

void SimWorker::on_group_broken(ViewId view, MemberId culprit) {
  if (runs(view)) {
    stop_trainer(true, culprit);
  }
}

/// After the last step the members evaluate, compare their states and write a checkpoint; then they
/// are done. An observer has no state to write. It is done when another member is done, and never
/// if all other members die first. If this work takes time (end_takes), all members are done at
/// once.
bool SimWorker::has_finished() const {
  const bool is_sure = !observes_ && !ends_together();
  return position_ == world_.scenario().steps && (is_sure || end_is_known_);
}

bool SimWorker::ends_together() const {
  return world_.scenario().faults.end_takes > Duration::zero();
}

/// The work after the last step. Observers do it, too, as in the product.
void SimWorker::do_the_rest() {
  if (!ends_together()) {
    stop_trainer(false, std::nullopt);
    return;
  }
  in_view_after(world_.draw_delay(world_.scenario().faults.end_takes),
                [](SimWorker& w) { w.group().at_end(*w.id_); });
}

void SimWorker::on_all_at_end(ViewId view) {
  if (runs(view)) {
    end_is_known_ = true;
    group().heard_of_end(*id_);
    stop_trainer(false, std::nullopt);
  }
}

void SimWorker::tell_end() {
  for (const ViewMember& other : view_->members) {
    if (other.is_observer()) {
      world_.at_worker(other.id, world_.draw_delay(milliseconds(2)),
                       [view = view_->id](SimWorker& worker) { worker.on_end(view); });
    }
  }
}

void SimWorker::on_end(ViewId view) {
  if (!runs(view)) {
    return;
  }
  end_is_known_ = true;
  if (observes_ && has_finished()) {
    stop_trainer(false, std::nullopt);
  }
}

void SimWorker::stop_trainer(bool failed, std::optional<MemberId> culprit, Dispute dispute) {
  take_state_if_caught_up();
  const ViewId view = view_->id;
  const bool finished = has_finished();
  if (finished && !observes_ && !ends_together()) {
    tell_end();
  }
  const bool unanswered = failed && culprit && group().is_cut(*id_, *culprit);
  group().leave(*id_);
  ++generation_;
  is_reducing_ = awaits_work_ = false;
  view_.reset();
  Stopped report{view, Step{committed_}, held_for_next_step(), finished, failed, culprit, ""};
  report.unanswered = unanswered;
  if (observes_ && observer_) {
    report.observed = Step{observer_->observed()};
  }
  report.dispute = dispute;
  if (dispute != Dispute::kNone && !observes_) {
    report.hashes = {state_, deep_state_};
  }
  in_view_after(Duration::zero(), [report = std::move(report)](SimWorker& w) {
    w.give(member_event::TrainerStopped{report});
  });
}

std::optional<ToyState> SimWorker::state_after(std::uint64_t step) const {
  return alive_ && committed_ == step ? std::optional(state_) : std::nullopt;
}

// The compute thread of a simulated worker. As in the product it outlives views, and computes
// microbatches also while one group ends and the next one forms.

void SimWorker::begin_step(const MicrobatchSet& share) {
  compute_share(committed_ + 1, share);
  awaits_work_ = true;
  if (!is_busy_) {
    contribute();
  }
}

/// Begins work while the group forms.
void SimWorker::work_ahead() {
  const Sabotage sabotage = world_.scenario().sabotage;
  if ((observes_ || committed_ != value(view_->committed)) &&
      sabotage != Sabotage::kKeepsStaleSums) {
    discard_work();
  }
  // With this defect a member that is behind does not wait for the state.
  const bool too_soon = sabotage == Sabotage::kWorksOnOldWeights && !observes_;
  const ViewMember& self = self_in_view();
  const MicrobatchSet share =
      work_before_group(*view_, self, too_soon ? view_->committed : Step{committed_});
  if (!share.empty() && value(view_->committed) < world_.scenario().steps) {
    world_.count_kept(held_.minus(held_.minus(share)).count());
    compute_share(value(view_->committed) + 1, share);
  }
}

/// Goes on with work after the boundary at which the view ends.
void SimWorker::work_on() {
  const MicrobatchSet share = work_at_boundary(self_in_view(), !observes_ && stays_, 1);
  if (!share.empty() && position_ < world_.scenario().steps) {
    compute_share(position_ + 1, share);
  }
}

void SimWorker::compute_share(std::uint64_t step, const MicrobatchSet& share) {
  const bool keep = computing_ == step && held_.minus(share).empty();
  if (!keep && world_.scenario().sabotage != Sabotage::kKeepsStaleSums) {
    discard_work();
  }
  computing_ = step;
  for (const std::uint32_t microbatch : share.minus(held_).list()) {
    queue_.push_back(microbatch);
  }
  held_ = share;
  if (!is_busy_) {
    compute_next();
  }
}

void SimWorker::compute_next() {
  if (queue_.empty()) {
    if (awaits_work_) {
      contribute();
    }
    return;
  }
  is_busy_ = true;
  turned_to_ = world_.now();
  const std::uint32_t microbatch = queue_.front();
  queue_.pop_front();
  world_.at_worker(*id_, microbatch_time_, [microbatch, until = discarded_](SimWorker& w) {
    if (w.discarded_ != until) {
      return;
    }
    w.is_busy_ = false;
    w.computing_time_ += w.world_.clock_of(w.index_).shown(w.world_.now() - w.turned_to_);
    ++w.computed_;
    w.held_sum_ += w.world_.sum_of(w.state_, w.computing_, microbatch);
    w.compute_next();
  });
}

/// Discards work for another step than the next one, or from other weights.
void SimWorker::discard_work() {
  ++discarded_;
  queue_.clear();
  is_busy_ = false;
  computing_ = 0;
  held_ = {};
  held_sum_ = {};
}

MicrobatchSet SimWorker::held_for_next_step() const {
  return computing_ == committed_ + 1 ? held_ : MicrobatchSet{};
}

}  // namespace mayfly::sim
