#include "observe/core/members.hpp"

#include <algorithm>
#include <set>

namespace mayfly::observe {

const char* name_of(MemberPhase phase) {
  switch (phase) {
    case MemberPhase::kLoading: return "loading";
    case MemberPhase::kReady: return "ready";
    case MemberPhase::kObserving: return "observing";
    case MemberPhase::kActive: return "active";
  }
  return "unknown";
}

MemberLane& Members::lane(double t, std::uint64_t member, const std::string& host) {
  const auto [place, is_new] = open_.try_emplace(member, lanes_.size());
  if (is_new) {
    lanes_.push_back({member, host, {{t, std::nullopt, MemberPhase::kLoading}}, "", "", 0, {}});
  }
  MemberLane& lane = lanes_[place->second];
  if (lane.host.empty()) {
    lane.host = host;
  }
  return lane;
}

void Members::go_on(MemberLane& lane, double t, MemberPhase phase) {
  if (lane.spans.back().phase == phase) {
    return;
  }
  if (lane.spans.back().from >= t) {
    lane.spans.back().phase = phase;
    return;
  }
  lane.spans.back().to = t;
  lane.spans.push_back({t, std::nullopt, phase});
}

void Members::connected(double t, std::uint64_t member, const std::string& host) {
  (void)lane(t, member, host);
}

void Members::ready(double t, std::uint64_t member, const std::string& host) {
  go_on(lane(t, member, host), t, MemberPhase::kReady);
}

void Members::view(double t, std::uint64_t committed, const std::vector<std::uint64_t>& members,
                   const std::vector<std::string>& hosts) {
  for (const std::size_t ended : just_ended_) {
    lanes_[ended].end_step = committed;
  }
  just_ended_.clear();
  for (std::size_t i = 0; i < members.size(); ++i) {
    go_on(lane(t, members[i], i < hosts.size() ? hosts[i] : ""), t, MemberPhase::kActive);
  }
  const std::set<std::uint64_t> now(members.begin(), members.end());
  for (const std::uint64_t before : active_) {
    const auto place = open_.find(before);
    if (place != open_.end() && !now.contains(before)) {
      go_on(lanes_[place->second], t, MemberPhase::kReady);
    }
  }
  active_ = members;
}

void Members::observed(std::uint64_t member, double admitted, double promoted) {
  const auto place = open_.find(member);
  if (place == open_.end() || !(promoted > admitted)) {
    return;
  }
  std::vector<MemberSpan>& spans = lanes_[place->second].spans;
  const auto active = std::find_if(spans.begin(), spans.end(), [](const MemberSpan& span) {
    return span.phase == MemberPhase::kActive;
  });
  if (active == spans.end() || (active->to && *active->to < promoted)) {
    return;
  }
  const double from = std::min(admitted, active->from);
  if (active != spans.begin() && (active - 1)->from < from) {
    (active - 1)->to = from;
  }
  active->from = promoted;
  spans.insert(active, {from, promoted, MemberPhase::kObserving});
}

void Members::ended(double t, std::uint64_t member, const std::string& kind,
                    const std::string& detail) {
  const auto place = open_.find(member);
  if (place == open_.end()) {
    return;
  }
  MemberLane& lane = lanes_[place->second];
  lane.spans.back().to = std::max(t, lane.spans.back().from);
  lane.end = kind;
  lane.detail = detail;
  lane.end_t = t;
  just_ended_.push_back(place->second);
  open_.erase(place);
  std::erase(active_, member);
}

void Members::measured(std::uint64_t member, const MemberMeasure& measure) {
  measures_[member].push_back(measure);
}

/// The measure of a member's end is written right after the event, hence the slack. In another part
/// of the job, the same id may belong to another member.
std::vector<MemberMeasure> Members::measures_of(const MemberLane& lane) const {
  constexpr double kSlack = 0.5;
  std::vector<MemberMeasure> found;
  if (const auto place = measures_.find(lane.member); place != measures_.end()) {
    for (const MemberMeasure& measure : place->second) {
      const bool is_before = measure.t < lane.spans.front().from;
      if (!is_before && (lane.end.empty() || measure.t <= lane.end_t + kSlack)) {
        found.push_back(measure);
      }
    }
  }
  return found;
}

void Members::all_ended(double t) {
  while (!open_.empty()) {
    ended(t, open_.begin()->first, "ended", "");
  }
  active_.clear();
  just_ended_.clear();
}

}  // namespace mayfly::observe
