
#include "tests/sim/failover_parts.hpp"

// The gradient group of a view. A step is complete when every member has contributed. Each member
// learns that after a separate random delay, or never.

namespace mayfly::sim {

using namespace elastic;

namespace {

constexpr Duration kSilence = milliseconds(300);  // until a cut link is noticed
constexpr Duration kLastWord = milliseconds(30);  // until a member learns that all are done

}  // namespace

FailoverWorld::Group& FailoverWorld::group_of(const View& view) {
  auto& group = groups_[{view.id, view.key}];
  if (!group) {
    group = std::make_unique<Group>();
    group->view = view;
  }
  return *group;
}

/// A member of the group that another one cannot reach, if there is one.
std::optional<MemberId> FailoverWorld::unreachable(const Group& group) const {
  for (const ViewMember& one : group.view.members) {
    for (const ViewMember& other : group.view.members) {
      if (is_cut(node_of_worker(worker_of_.at(one.id)), node_of_worker(worker_of_.at(other.id)))) {
        return other.id;
      }
    }
  }
  return std::nullopt;
}

void FailoverWorld::tell_broken(Group& group, MemberId member, MemberId culprit, Duration delay) {
  const ViewId view = group.view.id;
  const std::size_t index = worker_of_.at(member);
  after(delay + draw(milliseconds(5)), [this, index, view, culprit] {
    const Worker& worker = *workers_[index];
    if (worker.alive && worker.view && worker.view->id == view) {
      stop_trainer(index, true, culprit);
    }
  });
}

void FailoverWorld::enter(std::size_t index) {
  const MemberId self = workers_[index]->member->id();
  Group& group = group_of(*workers_[index]->view);
  group.entered.insert(self);
  if (!group.left.empty()) {
    tell_broken(group, self, *group.left.begin(), Duration::zero());
    return;
  }
  if (group.entered.size() < group.view.members.size()) {
    const ViewId view = group.view.id;
    after(seconds(3), [this, index, &group, view] {  // forming has a deadline
      const Worker& worker = *workers_[index];
      const bool is_forming = group.entered.size() < group.view.members.size();
      if (is_forming && worker.alive && worker.view && worker.view->id == view) {
        stop_trainer(index, true, std::nullopt);
      }
    });
    return;
  }
  const auto culprit = unreachable(group);
  for (const ViewMember& member : group.view.members) {
    const std::size_t each = worker_of_.at(member.id);
    if (culprit) {
      tell_broken(group, member.id, *culprit, kSilence);
    } else {
      in_view(each, draw(milliseconds(3)), [this, each] { formed(each); });
    }
  }
}

void FailoverWorld::contribute(std::size_t index) {
  Worker& worker = *workers_[index];
  Group& group = group_of(*worker.view);
  const std::uint64_t step = position(worker) + 1;
  worker.contributed = true;
  auto& parts = group.parts[step];
  parts[worker.member->id()] = worker.held;
  if (worker.boundary) {
    group.boundaries.insert(step);
  }
  if (!group.left.empty() || parts.size() < group.view.members.size()) {
    return;
  }
  if (const auto culprit = unreachable(group)) {
    for (const ViewMember& member : group.view.members) {
      tell_broken(group, member.id, *culprit, kSilence);
    }
    return;
  }
  incarnations_.on_reduced(group.view.id, step);
  violations_.expect(!is_paused_, [&] {
    return "step " + std::to_string(step) + " is committed though the job is paused";
  });
  MicrobatchSet all;
  std::uint32_t total = 0;
  for (const auto& [id, part] : parts) {
    all.add_all(part);
    total += part.count();
  }
  violations_.expect(total == 8 && all.count() == 8,
                     [&] { return std::string("a step counts each microbatch once"); });
  const bool is_boundary = group.boundaries.contains(step);
  for (const ViewMember& member : group.view.members) {
    const std::size_t each = worker_of_.at(member.id);
    in_view(each, draw(milliseconds(4)), [this, each, step, is_boundary] {
      Worker& done = *workers_[each];
      (done.is_observer ? done.observed : done.committed) = step;
      done.held = {};
      observe(each);
      if (queue_.now() - done.last_progress >= scenario_.progress_every) {
        done.last_progress = queue_.now();
        give_member(each, member_event::Progressed{done.view->id, Step{step}, 3, 1});
      }
      done.boundary = done.boundary || is_boundary;
      if (is_boundary && step < scenario_.steps) {
        stop_trainer(each, false, std::nullopt);
      } else {
        begin_step(each);
      }
    });
  }
}

/// After the last step the members evaluate and write a checkpoint. They are done when all members
/// have finished this work. Each learns that after a separate delay, unless the group breaks first.
/// A member may die at that moment.
void FailoverWorld::do_the_rest(std::size_t index) {
  const auto finish = [this](std::size_t each) {
    workers_[each]->has_finished = true;
    stop_trainer(each, false, std::nullopt);
  };
  if (scenario_.end_takes == Duration::zero()) {
    if (!workers_[index]->is_observer) {  // others wait until a member is done
      end_observers(group_of(*workers_[index]->view));
      finish(index);
    }
    return;
  }
  in_view(index, draw(scenario_.end_takes), [this, index, finish] {
    Group& group = group_of(*workers_[index]->view);
    group.at_the_end.insert(workers_[index]->member->id());
    if (!group.left.empty() || group.at_the_end.size() < group.view.members.size()) {
      return;
    }
    const auto culprit = unreachable(group);
    for (const ViewMember& member : group.view.members) {
      const std::size_t each = worker_of_.at(member.id);
      if (culprit) {
        tell_broken(group, member.id, *culprit, kSilence);
      } else {
        in_view(each, draw(kLastWord), [each, finish] { finish(each); });
      }
    }
    if (scenario_.worker_crash_every > Duration::zero() && !is_calm_ && chance(2)) {
      after(draw(kLastWord), [this] { kill_somebody(); });
    }
  });
}

void FailoverWorld::leave(std::size_t index, Duration grace) {
  const Worker& worker = *workers_[index];
  const MemberId self = worker.member->id();
  Group& group = group_of(*worker.view);
  group.left.insert(self);
  for (const MemberId other : group.entered) {
    if (!group.left.contains(other)) {
      const bool is_silent = is_cut(node_of_worker(index), node_of_worker(worker_of_.at(other)));
      tell_broken(group, other, self, is_silent ? grace + kSilence : grace);
    }
  }
}

}  // namespace mayfly::sim
