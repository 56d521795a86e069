#include "engine/training/member_checks.hpp"

#include <fmt/format.h>

#include <array>
#include <vector>

#include "base/random.hpp"
#include "engine/training/step_reports.hpp"

namespace mayfly::engine {

void MemberChecks::begin_view() {
  dispute_ = elastic::Dispute::kNone;
  hashes_.clear();
  contradicts_itself_ = false;
}

std::optional<std::uint64_t> MemberChecks::rest_of_state() {
  // Members share the view and the step, so they all take the same branch.
  const bool whole = part_.is_first_step() || is_compared_step(job_, part_.position);
  return whole && !part_.observes ? std::optional(state_.rest_hash()) : std::nullopt;
}

std::optional<std::uint32_t> MemberChecks::state_check(std::optional<std::uint64_t> rest) {
  return part_.observes ? std::nullopt : std::optional(state_.check(rest));
}

std::optional<std::uint32_t> MemberChecks::audit_check(const elastic::View& view) {
  const std::optional<std::uint32_t> microbatch = work_.audited();
  audited_hash_.reset();
  if (!microbatch.has_value()) {
    return std::nullopt;
  }
  audited_hash_ = computer_.audited_hash();
  if (!audited_hash_ &&
      auditor_of(view, *microbatch, work_.step(), part_.is_first_step()) == part_.rank) {
    const TraceSpan traced = activity_.span("audit", {"microbatch", *microbatch});
    activity_.turn_to(elastic::Activity::kCompute);
    if (computer_.wait_for_step()) {
      audited_hash_ = computer_.recompute(*microbatch);
    }
  }
  return audited_hash_ ? std::optional(static_cast<std::uint32_t>(*audited_hash_)) : std::nullopt;
}

Result<void> MemberChecks::compare_last_state(collectives::Group& group, Instant deadline) {
  std::array<std::int32_t, 2> lanes = {INT32_MIN, INT32_MIN};  // an observer has no state to hash
  if (!part_.observes) {
    const auto check = static_cast<std::int32_t>(state_.digest().low & 0x7fffffffU);
    lanes = {check, -check};
  }
  TRY(group.all_reduce_blocking(lanes.data(), lanes.size(), collectives::DataType::kInt32,
                                collectives::ReduceOp::kMax, deadline));
  return lanes[0] == -lanes[1] ? Result<void>() : Result<void>(states_differ());
}

Error MemberChecks::states_differ() {
  dispute_ = elastic::Dispute::kState;
  if (!part_.observes) {
    hashes_ = state_.part_hashes();
  }
  return {Errc::kDiverged,
          fmt::format("the members' states differ before step {}", value(next(part_.position)))};
}

Error MemberChecks::results_differ() {
  const std::optional<std::uint32_t> microbatch = work_.audited();
  if (part_.observes) {
    dispute_ = elastic::Dispute::kMicrobatch;
  } else if (microbatch.has_value()) {
    activity_.turn_to(elastic::Activity::kCompute);
    const std::optional<std::uint64_t> hash = computer_.recompute(*microbatch);
    if (hash.has_value()) {
      dispute_ = elastic::Dispute::kMicrobatch;
      hashes_ = {*hash};
      contradicts_itself_ = audited_hash_.has_value() && audited_hash_ != hash;
    }
  }
  return {Errc::kDiverged, fmt::format("two members get different results for microbatch {} of "
                                       "step {}",
                                       microbatch.value_or(0), value(work_.step()))};
}

void MemberChecks::put_into(elastic::Stopped& report) const {
  report.dispute = dispute_;
  report.hashes = hashes_;
  report.contradicts_itself = contradicts_itself_;
}

std::optional<std::uint32_t> audited_microbatch(Step step, std::uint64_t every, std::uint64_t seed,
                                                std::uint32_t microbatches) {
  if (every == 0 || value(step) % every != 0) {
    return std::nullopt;
  }
  return static_cast<std::uint32_t>(mix64(mix64(seed) ^ value(step)) % microbatches);
}

std::optional<Rank> auditor_of(const elastic::View& view, std::uint32_t microbatch, Step step,
                               bool in_first_step) {
  std::vector<Rank> others;
  for (std::size_t r = 0; r < view.members.size(); ++r) {
    const elastic::ViewMember& member = view.members[r];
    const bool is_own = in_first_step ? member.first_step.contains(microbatch)
                                      : microbatch - member.first < member.count;
    if (!member.is_observer() && !is_own) {
      others.push_back(static_cast<Rank>(r));
    }
  }
  if (others.empty()) {
    return std::nullopt;
  }
  return others[value(step) % others.size()];
}

}  // namespace mayfly::engine
