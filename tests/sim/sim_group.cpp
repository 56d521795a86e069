#include "tests/sim/sim_group.hpp"

#include "tests/sim/sim_world.hpp"

namespace mayfly::sim {
namespace {

constexpr Duration kBadLinkTimeout = milliseconds(100);

}  // namespace

void SimGroup::enter(MemberId member) {
  entered_.insert(member);
  if (!gone_.empty()) {
    tell_broken(member, *gone_.begin(), Duration::zero());
    return;
  }
  if (entered_.size() < view_.members.size()) {
    return;
  }
  for (const elastic::ViewMember& m : view_.members) {
    if (const auto partner = world_.bad_partner(m.id, view_)) {
      tell_broken(m.id, *partner, kBadLinkTimeout);
    }
    world_.at_worker(m.id, world_.draw_delay(milliseconds(3)),
                     [id = view_.id](SimWorker& worker) { worker.on_group_formed(id); });
  }
}

std::size_t SimGroup::contributions_needed() const {
  const bool early = world_.scenario().sabotage == Sabotage::kReducesTooEarly;
  const std::size_t all = view_.members.size();
  return early && all > 1 ? all - 1 : all;
}

void SimGroup::contribute(MemberId member, std::uint64_t step, Contribution contribution) {
  steps_[step][member] = std::move(contribution);
  if (gone_.empty() && silent_.empty() && steps_[step].size() == contributions_needed()) {
    reduce(step);
  }
}

void SimGroup::reduce(std::uint64_t step) {
  std::uint64_t sum = 0;
  bool boundary = false;
  std::vector<elastic::MicrobatchSet> parts;
  for (const auto& [member, part] : steps_[step]) {
    sum += part.sum;
    boundary = boundary || part.boundary;
    parts.push_back(part.microbatches);
  }
  world_.microbatch_checker().on_reduced(view_.id, step, parts);
  for (const elastic::ViewMember& member : view_.members) {
    world_.at_worker(member.id, world_.draw_delay(milliseconds(4)),
                     [id = view_.id, step, sum, boundary](SimWorker& worker) {
                       worker.on_reduced(id, step, sum, boundary);
                     });
  }
}

void SimGroup::leave(MemberId member, Duration grace) {
  if (!gone_.insert(member).second || silent_.contains(member)) {
    return;
  }
  for (const MemberId other : entered_) {
    if (!gone_.contains(other)) {
      tell_broken(other, member, grace);
    }
  }
}

void SimGroup::tell_broken(MemberId member, MemberId culprit, Duration grace) {
  const Duration delay = grace + world_.draw_delay(world_.scenario().faults.break_delay_max);
  world_.at_worker(member, delay, [id = view_.id, culprit](SimWorker& worker) {
    worker.on_group_broken(id, culprit);
  });
}

}  // namespace mayfly::sim
