#include <algorithm>

#include "tests/sim/sim_world.hpp"

// Who knows better when what somebody holds is wrong.

namespace mayfly::sim {

using namespace elastic;

std::size_t SimWorld::healthy_members() const {
  return static_cast<std::size_t>(
      std::count_if(last_members_.begin(), last_members_.end(), [this](MemberId id) {
        const SimWorker& worker = *workers_[worker_of_.at(id)];
        return worker.alive() && !worker.observes() && !corruption_checker_.is_wrong(id);
      }));
}

/// A right observer could not object, and does not answer for the sum if it leaves before it has
/// got that; meanwhile it may have taken its state and look like one that works.
bool SimWorld::is_anyone_right(std::uint64_t step, const View& view, MemberId but) {
  const SimGroup& group = group_of(view);
  return std::any_of(view.members.begin(), view.members.end(), [&](const ViewMember& member) {
    return member.id != but && group.has_compared(member.id, step) &&
           !corruption_checker_.is_wrong(member.id);
  });
}

void SimWorld::on_wrong_commit(MemberId member, std::uint64_t step, const View& view) {
  if (is_anyone_right(step, view, member)) {
    corruption_checker_.on_wrong_commit(member);
  }
}

bool SimWorld::comes_from_wrong(const ToySum& sum, std::uint64_t step, const View& view,
                                MemberId observer) {
  const ToyState right = commit_checker_.expected(step - 1);
  return corruption_checker_.any() && !is_anyone_right(step, view, observer) &&
         update(right, sum) != commit_checker_.expected(step);
}

}  // namespace mayfly::sim
