#include "tests/sim/checkers/commit_checker.hpp"

#include <algorithm>

namespace mayfly::sim {
namespace {

std::string name(MemberId member, std::uint64_t step) {
  return "member " + std::to_string(value(member)) + " at step " + std::to_string(step);
}

}  // namespace

ToyState CommitChecker::expected(std::uint64_t step) {
  while (undisturbed_.size() <= step) {
    undisturbed_.push_back(next_state(undisturbed_.back(), undisturbed_.size(), microbatches_));
  }
  return undisturbed_[step];
}

void CommitChecker::on_commit(MemberId member, std::uint64_t step, ToyState state) {
  violations_.expect(step <= highest_ + 1,
                     [&] { return name(member, step) + ": the step before is missing"; });
  const auto before = of_member_.find(member);
  violations_.expect(before != of_member_.end() && step == before->second + 1,
                     [&] { return name(member, step) + ": not the step after its own last one"; });
  violations_.expect(state == expected(step),
                     [&] { return name(member, step) + ": committed another state"; });
  of_member_[member] = step;
  highest_ = std::max(highest_, step);
  highest_right_ = std::max(highest_right_, step);
}

void CommitChecker::on_sync(MemberId member, std::uint64_t step, ToyState state) {
  violations_.expect(step <= highest_,
                     [&] { return name(member, step) + ": took a state nobody committed"; });
  violations_.expect(state == expected(step),
                     [&] { return name(member, step) + ": took another state"; });
  of_member_[member] = step;
}

void CommitChecker::on_observed(MemberId member, std::uint64_t step, ToyState state) {
  violations_.expect(step <= highest_,
                     [&] { return name(member, step) + ": observes a state nobody committed"; });
  violations_.expect(state == expected(step),
                     [&] { return name(member, step) + ": observes another state"; });
}

void CommitChecker::on_wrong(MemberId member, std::uint64_t step) {
  of_member_[member] = step;
  highest_ = std::max(highest_, step);
}

void CommitChecker::on_view(const elastic::View& view) {
  for (const elastic::ViewMember& member : view.members) {
    const std::uint64_t own = of_member_[member.id];
    violations_.expect(own <= value(view.committed), [&] {
      return name(member.id, own) + ": undone by view " + std::to_string(value(view.id));
    });
  }
}

void CommitChecker::on_end(std::uint64_t last_step) {
  violations_.expect(highest_ == last_step, [&] {
    return "the job is done after step " + std::to_string(highest_) + " of " +
           std::to_string(last_step);
  });
}

}  // namespace mayfly::sim
