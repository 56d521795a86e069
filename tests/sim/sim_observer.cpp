#include "tests/sim/sim_observer.hpp"

#include <algorithm>
#include <utility>

#include "base/check.hpp"
#include "tests/sim/sim_world.hpp"

namespace mayfly::sim {

using namespace elastic;

namespace {

constexpr Duration kReplayTime = milliseconds(1);  // for one sum
constexpr Duration kPatience = milliseconds(300);
constexpr std::size_t kQueueMax = 40;

}  // namespace

SimObserver::SimObserver(const View& view) : since_(view.id), last_(value(view.committed)) {
  for (const Rank donor : donors_of(view)) {
    donors_.push_back(view.members[value(donor)].id);
  }
  missing_.insert(donors_.begin(), donors_.end());
}

void SimObserver::receive(MemberId donor, const StateCopy& part) {
  const auto place = std::find(donors_.begin(), donors_.end(), donor);
  ENSURE(place != donors_.end(), "parts come from donors");
  if (missing_.erase(donor) == 0) {
    return;
  }
  for (auto bit = static_cast<std::size_t>(place - donors_.begin()); bit < 64;
       bit += donors_.size()) {
    const std::uint64_t mask = std::uint64_t{1} << bit;
    state_.state |= part.state & mask;
    state_.deep |= part.deep & mask;
  }
}

bool SimObserver::compare() {
  if (failed_ || has_state_ || !missing_.empty() || !knows_) {
    return false;
  }
  failed_ = expected_ && check_of(state_) != *expected_;
  has_state_ = !failed_;
  return has_state_;
}

void SimObserver::flip(std::uint64_t bit, bool deep) {
  (deep ? state_.deep : state_.state) ^= bit;
  is_doubtful_ = is_doubtful_ || has_state_;
}

void SimObserver::add(const ToySum& sum) {
  queue_.push_back(sum);
  ++last_;
}

void SimObserver::resume_after(std::uint64_t committed) {
  if (failed_ || last_ <= committed) {
    return;
  }
  ENSURE(last_ == committed + 1 && !queue_.empty(), "only the newest sum may not be committed");
  queue_.pop_back();
  last_ = committed;
}

ToySum SimObserver::apply_one(bool applies) {
  ENSURE(has_state() && !queue_.empty(), "there is a sum for the state");
  const ToySum sum = queue_.front();
  queue_.pop_front();
  if (applies) {
    state_.state = update(state_.state, sum);
  }
  return sum;
}

// --- the worker's side

void SimWorker::begin_observing() {
  std::set<ViewId> wanted;
  bool copies = false;
  for (const ViewMember& member : view_->members) {
    wanted.insert(member.observes);
    copies = copies || member.observes == view_->id;
  }
  std::erase_if(copies_, [&wanted](const auto& copy) { return !wanted.contains(copy.first); });
  const ViewMember& self = self_in_view();
  observes_ = self.is_observer();
  if (observer_ && (!observes_ || observer_->since() != self.observes)) {
    observer_.reset();
  }
  if (observes_) {
    position_ = value(view_->committed);
  }
  if (observer_) {
    observer_->resume_after(value(view_->committed));
  }
  if (copies && !observes_) {
    copies_[view_->id] = {state_, deep_state_};
  }
}

void SimWorker::start_observing() {
  const ViewMember& self = self_in_view();
  if (self.observes == view_->id) {
    observer_.emplace(*view_);
    expects_check_ = true;
    const bool comes = world_.draw_below(16) != 0;
    for (const Rank rank : donors_of(*view_)) {
      fetch_from(view_->members[value(rank)].id, comes);
    }
    if (!comes) {  // as if a connection broke or a hash was wrong
      observer_->fail();
    }
  }
  contribute_nothing();
}

/// Requests a part of the state from a donor, and receives it after two delays of the network.
void SimWorker::fetch_from(MemberId donor, bool comes) {
  const Duration there = world_.draw_delay(milliseconds(40));
  const Duration back = world_.draw_delay(milliseconds(40));
  world_.at_worker(
      donor, there, [&world = world_, back, comes, self = *id_, since = view_->id](SimWorker& w) {
        const auto copy = w.copies_.find(since);
        if (copy == w.copies_.end() || !comes) {
          return;
        }
        world.at_worker(self, back, [donor_id = *w.id_, since, part = copy->second](SimWorker& o) {
          o.on_part(donor_id, since, part);
        });
      });
}

void SimWorker::on_part(MemberId donor, ViewId since, const StateCopy& part) {
  if (observer_ && observer_->since() == since && !observer_->failed()) {
    observer_->receive(donor, part);
    replay_if_right();
  }
}

void SimWorker::replay_if_right() {
  if (observer_->compare()) {
    check_observed();
    replay(observer_->since());
  }
}

/// The sum comes from members with wrong states, and no member could detect that.
void SimWorker::doubt_state() {
  if (!observes_) {
    world_.corruption_checker().on_wrong(*id_);
  } else if (observer_) {
    observer_->doubt();
  }
}

/// A received state that was compared must be right, unless a bit of it has flipped since then or
/// the states of all other members are wrong.
void SimWorker::check_observed() {
  if (!observer_->is_doubtful()) {
    world_.commit_checker().on_observed(*id_, observer_->applied(), observer_->state().state);
  }
}

/// Applies sums one after the other, also between views.
void SimWorker::replay(ViewId since) {
  if (!observer_ || observer_->since() != since || observer_->failed()) {
    return;
  }
  if (observer_->caught_up()) {
    say_caught_up();
    return;
  }
  apply_observed();
  world_.at_worker(*id_, kReplayTime, [since](SimWorker& w) { w.replay(since); });
}

void SimWorker::say_caught_up() {
  if (view_) {
    give(member_event::StateCaughtUp{view_->id, Step{position_}});
  }
}

void SimWorker::apply_observed() {
  const bool skips =
      world_.scenario().sabotage == Sabotage::kSkipsAnObservedSum && observer_->applied() % 4 == 3;
  const ToySum sum = observer_->apply_one(!skips);
  check_observed();
  world_.sample_checker().on_commit(*id_, observer_->applied(), sum.samples);
}

void SimWorker::take_state_if_caught_up() {
  if (!observes_ || !observer_ || observer_->failed() || !observer_->caught_up()) {
    return;
  }
  state_ = observer_->state().state;
  deep_state_ = observer_->state().deep;
  committed_ = observer_->applied();
  const bool is_right = state_ == world_.commit_checker().expected(committed_) && deep_state_ == 0;
  world_.corruption_checker().on_taken(*id_, is_right || !observer_->is_doubtful());
  if (observer_->is_doubtful()) {
    world_.commit_checker().on_wrong(*id_, committed_);
  } else {
    world_.commit_checker().on_sync(*id_, committed_, state_);
  }
  while (observer_->waiting() > 0) {  // the newest sum: no other member may have it yet
    const ToySum sum = observer_->apply_one(true);
    if (observer_->is_doubtful() &&
        update(state_, sum) != world_.commit_checker().expected(committed_ + 1)) {
      world_.corruption_checker().on_wrong(*id_);
    }
    commit(sum);
  }
  ENSURE(committed_ == position_, "a caught-up state is that of the view");
  observer_.reset();
  observes_ = false;
  say_caught_up();
}

/// The other members have committed the step.
void SimWorker::observe(const ToySum& sum, std::uint64_t agreed) {
  ++position_;
  if (observer_ && !observer_->failed()) {
    if (std::exchange(expects_check_, false)) {
      const ToyState right = world_.commit_checker().expected(position_ - 1);
      const bool believes = world_.scenario().sabotage == Sabotage::kBelievesCopies;
      observer_->expect(believes ? std::nullopt : std::optional(agreed),
                        agreed == check_of({right, 0}));
    }
    observer_->add(sum);
    replay_if_right();
    if (observer_->waiting() > kQueueMax) {
      observer_->fail();
    }
  }
  if (!observer_ || observer_->failed()) {
    world_.at_worker(*id_, kPatience, [generation = generation_](SimWorker& w) {
      const bool still = w.generation_ == generation && w.observes_;
      if (still && (!w.observer_ || w.observer_->failed())) {
        w.world_.on_state_given_up();
        w.on_leave_asked();
      }
    });
  }
}

void SimWorker::contribute_nothing() {
  if (position_ == world_.scenario().steps) {
    if (ends_together()) {
      do_the_rest();
    } else if (has_finished()) {
      stop_trainer(false, std::nullopt);
    }
    return;
  }
  is_reducing_ = true;
  group().contribute(*id_, position_ + 1, {{}, {}, std::nullopt, boundary_asked_});
}

}  // namespace mayfly::sim
