#include <algorithm>

#include "elastic/core/history.hpp"
#include "tests/sim/sim_world.hpp"

// What the coordinator notes, and what the checkers make of it.

namespace mayfly::sim {

using namespace elastic;

void SimWorld::note(const coordinator_effect::Note& note) {
  result_.losses += note.kind == "lost" ? 1 : 0;
  if (note.kind == "lost" && note.detail.starts_with("silent")) {
    suspected(*note.member);
  }
  if (note.kind == "lost" || note.kind == "evicted" || note.kind == "corrupted") {
    commit_checker_.on_lost(*note.member);
  } else if (note.kind == "left") {
    commit_checker_.on_left(*note.member);
  }
  if (note.kind == "evicted") {
    evicted(*note.member, note.detail);
  }
  if (note.kind == "waiting" || note.kind == "resumed") {
    pace_checker_.on_fault(queue_.now());
  }
  result_.joins += note.kind == "joined" ? 1 : 0;
  result_.leaves += note.kind == "left" ? 1 : 0;
  result_.evictions += note.kind == "evicted" ? 1 : 0;
  if (note.kind == "corrupted") {
    ++result_.expelled;
    corruption_checker_.on_expelled(*note.member, healthy_members());
  }
  if (note.kind == "straggler") {
    budget_checker_.on_event();
  }
  if (note.kind == "rebalance") {
    ++result_.rebalances;
    budget_checker_.on_event();
    rebalance_checker_.on_rebalance();
  } else if (note.kind == "view") {
    rebalance_checker_.on_view();
  }
  result_.fingerprint =
      mix64(result_.fingerprint ^ static_cast<std::uint64_t>(queue_.now().ns) ^ note.kind.size());
  tell(note.kind, note.member, note.detail);
}

void SimWorld::tell(const std::string& what, std::optional<MemberId> member,
                    const std::string& detail) {
  result_.history.push_back(history_line(queue_.now() - Instant{}, what, member, detail));
}

void SimWorld::evicted(MemberId member, const std::string& reason) {
  // Where two members do not reach each other, those that find out first leave the group, and which
  // of the names that are named then is the culprit's cannot always be told.
  const auto is_member = [this](MemberId id) {
    return std::find(last_members_.begin(), last_members_.end(), id) != last_members_.end();
  };
  const bool has_bad_link = std::any_of(
      bad_links_.begin(), bad_links_.end(),
      [&](const auto& link) { return is_member(link.first) && is_member(link.second); });
  const bool has_failed_alone =
      std::any_of(last_members_.begin(), last_members_.end(),
                  [this](MemberId id) { return failed_alone_.contains(worker_of_.at(id)); });
  const SimWorker& worker = *workers_[worker_of_.at(member)];
  const bool stood_still = worker.frozen_until() > Instant{} || !worker.alive();
  eviction_checker_.on_evicted(member, reason,
                               {.links_broke = has_bad_link,
                                .failed_alone = has_failed_alone,
                                .stood_still = stood_still,
                                .brought_state = !commit_checker_.has_worked(member)});
}

/// By something else than workers that come and go as planned.
void SimWorld::disturbed() {
  budget_checker_.on_event();
  pace_checker_.on_fault(queue_.now());
}

bool SimWorld::misses_this_sum(MemberId observer) {
  if (!next_sum_is_missed_ || !worker_at(observer).observes()) {
    return false;
  }
  next_sum_is_missed_ = false;
  disturbed();
  tell("misses_sum", observer, "");
  return true;
}

}  // namespace mayfly::sim
