#include <algorithm>

#include "base/check.hpp"
#include "tests/sim/failover_parts.hpp"

// Observers: members of a view that lack its state. They receive a copy in the background, and the
// sums of the steps since.

namespace mayfly::sim {

using namespace elastic;

namespace {

constexpr Duration kPatience = milliseconds(300);  // of an observer that cannot receive the state

}  // namespace

/// The newest step of its view that the worker knows.
std::uint64_t FailoverWorld::position(const Worker& worker) const {
  return worker.is_observer ? worker.observed : worker.committed;
}

/// At the beginning of a view. A coordinator lets an observer go on only if it has every sum.
void FailoverWorld::begin_to_observe(std::size_t index) {
  Worker& worker = *workers_[index];
  const View& view = *worker.view;
  const ViewMember& self = *member_of(view, worker.member->id());
  worker.is_observer = self.is_observer();
  worker.has_state = !worker.is_observer;
  worker.observed = value(view.committed);
  if (!worker.is_observer) {
    worker.copy.reset();
    return;
  }
  if (self.observes == view.id) {
    worker.copy.emplace();
    worker.copy->since = view.id;
    worker.copy->arrives = queue_.now() + draw(scenario_.copy_takes);
    for (const Rank donor : donors_of(view)) {
      worker.copy->donors.insert(view.members[value(donor)].id);
    }
  } else {
    const bool has_all = worker.copy && worker.copy->since == self.observes &&
                         !worker.copy->is_broken && worker.copy->observed >= value(view.committed);
    violations_.expect(has_all, [] {
      return std::string("an observer is to go on with a copy that it does not have");
    });
    if (!has_all) {
      return;
    }
    ++result_.gone_on;
  }
  worker.copy->observed = value(view.committed);
}

/// After a step of its view.
void FailoverWorld::observe(std::size_t index) {
  Worker& worker = *workers_[index];
  if (!worker.is_observer) {
    return;
  }
  if (worker.copy) {
    worker.copy->observed = worker.observed;
  }
  take_copy(index);
  if (worker.is_observer && worker.copy && worker.copy->is_broken) {
    worker.copy.reset();
    in_view(index, kPatience, [this, index] {
      if (workers_[index]->is_observer) {
        give_member(index, member_event::LeaveAsked{"the state cannot be received"});
      }
    });
  }
}

/// If the copy has arrived, the worker has the state and commits each further step.
void FailoverWorld::take_copy(std::size_t index) {
  Worker& worker = *workers_[index];
  if (!worker.is_observer || !worker.copy || worker.copy->is_broken) {
    return;
  }
  if (worker.copy->arrives > queue_.now()) {
    worker.copy->is_broken = std::ranges::any_of(worker.copy->donors, [this](MemberId donor) {
      return !workers_[worker_of_.at(donor)]->alive;
    });
    return;
  }
  ++result_.observed;
  worker.committed = worker.observed;
  worker.is_observer = false;
  worker.has_state = true;
  worker.copy.reset();
  give_member(index, member_event::StateCaughtUp{worker.view->id, Step{worker.committed}});
}

/// A member has done the last step, so observers that know of that step are done as well.
void FailoverWorld::end_observers(const Group& group) {
  for (const ViewMember& member : group.view.members) {
    const std::size_t each = worker_of_.at(member.id);
    const Worker& other = *workers_[each];
    if (other.alive && other.view && other.view->id == group.view.id && other.is_observer) {
      in_view(each, draw(milliseconds(2)), [this, each] {
        workers_[each]->has_finished = position(*workers_[each]) >= scenario_.steps;
        if (workers_[each]->has_finished) {
          stop_trainer(each, false, std::nullopt);
        }
      });
    }
  }
}

}  // namespace mayfly::sim
