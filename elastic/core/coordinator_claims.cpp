#include <algorithm>

#include "base/check.hpp"
#include "elastic/core/coordinator.hpp"

// What members say of themselves, held against what they can have: a worker that knows the token is
// trusted with its numbers, but not with the machine. Whoever contradicts itself, the view or the
// others is evicted, with a note that says why; nothing it says can stop the job.

namespace mayfly::elastic {
namespace {

// Where links break again and again at the end of a job, honest members have needed four.
constexpr std::uint32_t kUnfinishedViewsMax = 8;

}  // namespace
namespace {

std::string step_text(Step step) {
  return "step " + std::to_string(value(step));
}

}  // namespace

/// Why this report of a member of the present view cannot be true, whatever the others say.
std::optional<std::string> Coordinator::inconsistency_in(MemberId id, const Peer& peer,
                                                         const Stopped& stopped) const {
  if (peer.observes != ViewId{}) {
    return std::nullopt;  // it holds no state of its own yet, and no sums
  }
  if (stopped.committed < peer.committed) {
    return "says that it has committed " + step_text(stopped.committed) + ", and said " +
           step_text(peer.committed) + " before";
  }
  if (stopped.committed < membership_.view()->committed) {
    return std::nullopt;  // it does not have the view's state yet; what it holds does not count
  }
  const auto self =
      std::find_if(membership_.view()->members.begin(), membership_.view()->members.end(),
                   [id](const ViewMember& member) { return member.id == id; });
  ENSURE(self != membership_.view()->members.end(), "only members of the view stop in it");
  MicrobatchSet possible = MicrobatchSet::range(self->first, self->count);
  if (stopped.committed == membership_.view()->committed) {
    possible = self->first_step;
    possible.add_all(peer.stopped.held);  // what it held before and need not hold any more
  }
  const std::vector<std::uint32_t> strange = stopped.held.minus(possible).list();
  if (!strange.empty()) {
    return "says that it holds microbatch " + std::to_string(strange.front()) +
           ", which is not among its own";
  }
  return std::nullopt;
}

/// Every living member of the view has said what it committed. A step needs all of them, so these
/// differ by one step at most; if not, those outside the pair of steps that most are in are wrong,
/// the higher ones if equally many: going on from an earlier step costs time, never correctness.
void Coordinator::judge_claims() {
  if (phase_ != Phase::kStopping || !options_.steps_need_everybody) {
    return;
  }
  std::map<Step, std::size_t> claims;
  for (const auto& [id, peer] : membership_.peers()) {
    if (peer.is_claimant()) {
      ++claims[std::max(peer.committed, membership_.view()->committed)];
    }
  }
  if (claims.empty()) {
    return;
  }
  Step lower = claims.begin()->first;
  std::size_t most = 0;
  for (const auto& [step, count] : claims) {
    const auto above = claims.find(next(step));
    const std::size_t in_pair = count + (above == claims.end() ? 0 : above->second);
    if (in_pair > most) {
      most = in_pair;
      lower = step;
    }
  }
  evict_liars(lower);
  judge_finish();
}

void Coordinator::evict_liars(Step lower) {
  const Step upper = next(lower);
  std::vector<std::pair<MemberId, std::string>> liars;
  for (const auto& [id, peer] : membership_.peers()) {
    const Step claim = std::max(peer.committed, membership_.view()->committed);
    const bool is_outside = peer.is_claimant() && (claim < lower || claim > upper);
    // A worker that comes new may have the checkpoint of one that was lost just after its commit,
    // or from before everybody was lost.
    const bool is_ahead =
        peer.phase == Peer::Phase::kReady &&
        peer.committed > next(std::max({upper, membership_.committed(), membership_.undone()}));
    // One that observed may have caught up, and even have been the only one to commit.
    const bool saw_too_much =
        peer.phase == Peer::Phase::kStopped && peer.observes != ViewId{} && peer.committed > upper;
    if (is_outside || is_ahead || saw_too_much) {
      liars.emplace_back(id, "says that it has committed " + step_text(peer.committed) +
                                 ", while the others are at " + step_text(lower));
    }
  }
  // An honest worker that went on alone, or was with those that the job has lost, is ahead as well.
  // It is welcome without that state, and would be evicted with it again and again.
  evict_all(liars, DismissReason::kCorrupted);
}

/// Before they say that they have finished, the members of a view do what follows the last step
/// together. Who is kept from it, because a member died or a group broke in the middle, says truly
/// that it has not finished, beside others that have; the next view brings them together again. So
/// only who says that the job is over before its last step is wrong for sure, and who never gets
/// there although most of the others do, view after view.
void Coordinator::judge_finish() {
  if (!options_.last_step) {
    return;
  }
  const Step last = *options_.last_step;
  std::vector<std::pair<MemberId, std::string>> liars;
  std::vector<MemberId> unfinished;
  std::size_t finished = 0;
  for (const auto& [id, peer] : membership_.peers()) {
    if (!peer.is_claimant()) {
      continue;
    }
    if (peer.stopped.finished && peer.committed < last) {
      liars.emplace_back(id, "says that " + step_text(peer.committed) +
                                 " is the last one; the job's last is " + step_text(last));
    } else if (peer.stopped.finished) {
      ++finished;
    } else if (peer.committed >= last) {
      unfinished.push_back(id);
    }
  }
  if (finished > unfinished.size()) {
    for (const MemberId id : unfinished) {
      if (++unfinished_views_[id] == kUnfinishedViewsMax) {
        liars.emplace_back(id, "has not finished in " + std::to_string(kUnfinishedViewsMax) +
                                   " views in which most of the others have");
      }
    }
  }
  evict_all(liars, DismissReason::kEvicted);
}

void Coordinator::evict_all(const std::vector<std::pair<MemberId, std::string>>& liars,
                            DismissReason told) {
  for (const auto& [id, reason] : liars) {
    evict(id, reason, told);
  }
  if (!liars.empty()) {
    membership_.forget_claims();
  }
}

}  // namespace mayfly::elastic
