#include "elastic/core/speed_judge.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <vector>

#include "base/check.hpp"

namespace mayfly::elastic {
namespace {

constexpr int kJudgementsPerSample = 5;  // nothing changes more often

std::string describe(const Rebalance& change, const std::vector<Load>& loads) {
  std::string text =
      fmt::format("{:.1f} ms of the slowest become {:.1f}", change.before_ms, change.after_ms);
  text += "; microbatches";
  for (const Load& load : loads) {
    text += ' ' + std::to_string(load.count);
  }
  text += " become";
  for (const std::uint32_t count : change.counts) {
    text += ' ' + std::to_string(count);
  }
  return text;
}

}  // namespace

SpeedJudge::SpeedJudge(const CoordinatorOptions& options)
    : speed_sample_(options.speed_sample),
      workers_min_(std::max<std::size_t>(options.min_workers, 1)),
      rebalancer_(options.rebalance),
      stragglers_(options.stragglers) {}

SpeedJudge::Verdict SpeedJudge::judge(Instant now, const Membership& membership) {
  ENSURE(membership.view(), "speeds are judged while a view runs");
  if (now < next_judgement_) {
    return {};
  }
  next_judgement_ = now + speed_sample_ / kJudgementsPerSample;
  std::vector<Load> loads;
  std::vector<Runner> runners;
  for (const ViewMember& member : membership.view()->members) {
    const Peer* peer = membership.find(member.id);
    if (member.is_observer() || peer == nullptr) {
      continue;
    }
    loads.push_back({peer->speed.settled_ms(), member.count});
    if (!peer->leaving) {
      runners.push_back({member.id, peer->host, peer->speed.settled_ms()});
    }
  }
  Verdict verdict;
  verdict.straggler = find_straggler(now, runners, membership);
  if (!verdict.straggler) {
    if (const std::optional<Rebalance> change = rebalancer_.judge(now, loads)) {
      verdict.rebalance = describe(*change, loads);
    }
  }
  return verdict;
}

std::optional<SpeedJudge::Straggler> SpeedJudge::find_straggler(Instant now,
                                                                const std::vector<Runner>& runners,
                                                                const Membership& membership) {
  const std::optional<MemberId> slow = stragglers_.judge(now, runners);
  const std::size_t others = runners.size() + membership.count(Peer::Phase::kReady);
  if (!slow || others <= workers_min_ || !membership.leaves_somebody(*slow)) {
    return std::nullopt;
  }
  const Peer& peer = membership.at(*slow);
  stragglers_.drained({*slow, peer.host, peer.speed.settled_ms()});
  return Straggler{*slow,
                   fmt::format("straggler: {:.1f} ms a microbatch", peer.speed.settled_ms())};
}

}  // namespace mayfly::elastic
