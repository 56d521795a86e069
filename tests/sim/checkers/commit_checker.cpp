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
  holders_.insert(member);
  highest_ = std::max(highest_, step);
  highest_right_ = std::max(highest_right_, step);
}

void CommitChecker::on_sync(MemberId member, std::uint64_t step, ToyState state) {
  on_loaded(member, step, state);
  holders_.insert(member);
}

void CommitChecker::on_loaded(MemberId member, std::uint64_t step, ToyState state) {
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
  holders_.insert(member);
  of_member_[member] = step;
  highest_ = std::max(highest_, step);
}

void CommitChecker::on_view(const elastic::View& view) {
  const auto is_member = [&view](MemberId id) {
    return std::any_of(view.members.begin(), view.members.end(),
                       [id](const elastic::ViewMember& member) { return member.id == id; });
  };
  for (const auto& [id, own] : of_member_) {
    // The state of a member that has not worked yet is known only once the member is ready.
    const bool is_there = !dead_.contains(id) && !given_up_.contains(id);
    const bool counts = (is_there && holders_.contains(id)) || is_member(id);
    violations_.expect(!counts || own <= value(view.committed), [&] {
      return name(id, own) + ": undone by view " + std::to_string(value(view.id));
    });
  }
}

void CommitChecker::on_left(MemberId member) {
  given_up_.insert(member);
  if (!holders_.contains(member)) {
    return;
  }
  const std::uint64_t own = of_member_.at(member);
  const bool others_have_it = std::any_of(
      of_member_.begin(), of_member_.end(),
      [&](const auto& other) { return !given_up_.contains(other.first) && other.second >= own; });
  violations_.expect(others_have_it, [&] {
    return name(member, own) + ": may leave although nobody else holds that step";
  });
}

void CommitChecker::on_end(std::uint64_t last_step) {
  violations_.expect(highest_ == last_step, [&] {
    return "the job is done after step " + std::to_string(highest_) + " of " +
           std::to_string(last_step);
  });
}

}  // namespace mayfly::sim
