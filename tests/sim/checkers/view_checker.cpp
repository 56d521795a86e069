#include "tests/sim/checkers/view_checker.hpp"

#include <algorithm>

namespace mayfly::sim {
namespace {

std::string name(ViewId view) {
  return "view " + std::to_string(value(view));
}

}  // namespace

void ViewChecker::on_published(const elastic::View& view) {
  violations_.expect(value(view.id) == published_.size() + 1, [&] {
    return name(view.id) + " was published after " + std::to_string(published_.size()) + " others";
  });
  violations_.expect(published_.emplace(view.id, view).second,
                     [&] { return name(view.id) + " was published twice"; });
  for (std::size_t i = 1; i < view.members.size(); ++i) {
    violations_.expect(view.members[i - 1].id < view.members[i].id,
                       [&] { return name(view.id) + " is not in the order of ids"; });
  }
}

void ViewChecker::on_run(MemberId member, const elastic::View& view) {
  const auto place = published_.find(view.id);
  violations_.expect(place != published_.end() && place->second == view,
                     [&] { return name(view.id) + " is run but was not published so"; });
  violations_.expect(std::any_of(view.members.begin(), view.members.end(),
                                 [member](const auto& m) { return m.id == member; }),
                     [&] { return name(view.id) + " is run by a member that is not in it"; });
  violations_.expect(last_run_[member] < view.id, [&] { return name(view.id) + " is run again"; });
  last_run_[member] = view.id;
}

void MicrobatchChecker::on_reduced(ViewId view, std::uint64_t step,
                                   const std::vector<elastic::MicrobatchSet>& parts) {
  const auto where = [step, view] {
    return "step " + std::to_string(step) + " of view " + std::to_string(value(view));
  };
  elastic::MicrobatchSet seen;
  for (const elastic::MicrobatchSet& part : parts) {
    violations_.expect(part.minus(seen) == part,
                       [&] { return where() + " counts a microbatch twice"; });
    seen.add_all(part);
  }
  violations_.expect(seen == elastic::MicrobatchSet::range(0, microbatches_), [&] {
    return where() + " counts " + std::to_string(seen.count()) + " of " +
           std::to_string(microbatches_) + " microbatches";
  });
}

}  // namespace mayfly::sim
