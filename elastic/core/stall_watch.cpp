#include "elastic/core/stall_watch.hpp"

#include <algorithm>
#include <utility>

#include "base/check.hpp"

namespace mayfly::elastic {
namespace {

/// A disk or a file server may be slow for all members at once.
bool depends_on_storage(Activity activity) {
  return activity == Activity::kLoad || activity == Activity::kEvaluate ||
         activity == Activity::kCheckpoint;
}

// Without this limit a pause of the member's machine, or of the coordinator's, would count as a
// stall.
constexpr Duration kGapMax = milliseconds(250);
// The longest time seen is forgotten slowly: a slow start must not raise the limits for ever.
constexpr int kForgetting = 4096;

std::size_t index_of(Activity activity) {
  return static_cast<std::size_t>(activity);
}

std::string whole_ms(Duration duration) {
  return std::to_string(static_cast<long>(to_ms(duration))) + " ms";
}

}  // namespace

void StallLimits::evict_after(Duration still, bool only_a_default) {
  report_only = still == Duration::zero();
  if (report_only) {
    return;
  }
  evict_floor = still;
  patient_evict_floor = std::max(patient_evict_floor, still);
  regular_evict_floor = only_a_default ? regular_evict_floor : still;
}

StallWatch::StallWatch(StallLimits limits) : limits_(limits) {
  ENSURE(limits.report_floor > Duration::zero() && limits.evict_floor > Duration::zero(),
         "standing still for no time at all is no stall");
  ENSURE(limits.report_factor >= 1 && limits.evict_factor >= 1,
         "an activity may take as long as it was seen to take");
  ENSURE(limits.patient_evict_floor >= limits.evict_floor,
         "storage that all share is given more time, not less");
}

void StallWatch::on_heartbeat(MemberId member, const WorkerPosition& position, Instant now) {
  now_ = std::max(now_, now);
  const auto [place, is_new] = watched_.try_emplace(member, Watched{position, now});
  Watched& watched = place->second;
  watched.still += std::clamp(now - watched.seen, Duration::zero(), kGapMax);
  watched.seen = std::max(watched.seen, now);
  const WorkerPosition& before = watched.position;
  if (is_new || (before.moves == position.moves && before.activity == position.activity)) {
    watched.position = position;
    return;
  }
  learn(before.activity, watched.still, now_);
  watched = Watched{position, watched.seen};
  stuck_reported_ = false;
}

void StallWatch::learn(Activity activity, Duration took, Instant now) {
  ENSURE(took >= Duration::zero(), "a member stands still for a time that is not negative");
  History& history = history_.at(index_of(activity));
  Duration& longest = history.longest;
  longest = took > longest ? took : longest - (longest - took) / kForgetting;
  if (std::exchange(history.is_new, false) || took > limits_.regular_max) {
    history.irregular = now;
    history.times_since_then = 0;
  }
  history.times_since_then = std::min(history.times_since_then + 1, limits_.regular_times);
}

bool StallWatch::is_regular(Activity activity) const {
  const History& history = history_.at(index_of(activity));
  return !depends_on_storage(activity) && !waits_for_others(activity) && !history.is_new &&
         history.times_since_then >= limits_.regular_times &&
         now_ - history.irregular >= limits_.regular_for;
}

void StallWatch::forget(MemberId member) {
  watched_.erase(member);
}

void StallWatch::restart() {
  for (auto& [member, watched] : watched_) {
    watched = Watched{watched.position, watched.seen};
  }
  stuck_reported_ = false;
}

Duration StallWatch::report_limit(Activity activity) const {
  const Duration longest = history_.at(index_of(activity)).longest;
  if (longest == Duration::zero()) {
    return limits_.unknown_report_floor;
  }
  const Duration floor = is_regular(activity)
                             ? std::min(limits_.report_floor, limits_.regular_report_floor)
                             : limits_.report_floor;
  return std::max(floor, longest * limits_.report_factor);
}

Duration StallWatch::evict_limit(Activity activity) const {
  const Duration longest = history_.at(index_of(activity)).longest;
  const bool patient = longest == Duration::zero() || depends_on_storage(activity);
  Duration floor = patient ? limits_.patient_evict_floor : limits_.evict_floor;
  if (is_regular(activity)) {
    floor = std::min(floor, limits_.regular_evict_floor);
  }
  return std::max(floor, longest * limits_.evict_factor);
}

std::vector<Stall> StallWatch::judge(const std::vector<MemberId>& active) {
  std::vector<Stall> stalls;
  for (const MemberId member : active) {
    const auto place = watched_.find(member);
    if (place == watched_.end() || waits_for_others(place->second.position.activity)) {
      continue;
    }
    Watched& watched = place->second;
    if (watched.still <= report_limit(watched.position.activity)) {
      continue;
    }
    Stall stall = stall_of(member, watched, active);
    if (!std::exchange(watched.reported, true)) {
      stalls.push_back(stall);
    }
    stall.evict = !limits_.report_only && !stall.waiting.empty() &&
                  watched.still > evict_limit(stall.position.activity);
    ENSURE(!stall.evict || watched.reported,
           "no member is evicted for a stall that was not reported");
    if (stall.evict && !std::exchange(watched.evicted, true)) {
      stalls.push_back(stall);
    }
  }
  return stalls;
}

Stall StallWatch::stall_of(MemberId member, const Watched& watched,
                           const std::vector<MemberId>& active) const {
  Stall stall;
  stall.member = member;
  stall.position = watched.position;
  stall.still = watched.still;
  stall.longest = history_.at(index_of(watched.position.activity)).longest;
  for (const MemberId other : active) {
    const auto place = watched_.find(other);
    if (other != member && place != watched_.end() &&
        waits_for_others(place->second.position.activity)) {
      stall.waiting.push_back(other);
    }
  }
  return stall;
}

bool StallWatch::group_is_stuck(const std::vector<MemberId>& active) {
  if (limits_.report_only || stuck_reported_ || active.size() < 2) {
    return false;
  }
  const Duration limit = evict_limit(Activity::kExchange);
  stuck_reported_ = std::ranges::all_of(active, [&](MemberId member) {
    const auto place = watched_.find(member);
    return place != watched_.end() && place->second.position.activity == Activity::kExchange &&
           place->second.still > limit;
  });
  return stuck_reported_;
}

std::optional<WorkerPosition> StallWatch::position(MemberId member) const {
  const auto place = watched_.find(member);
  return place == watched_.end() ? std::nullopt : std::optional(place->second.position);
}

std::string describe(const Stall& stall) {
  std::string text = describe(stall.position) + "; it has not moved for " + whole_ms(stall.still);
  text += stall.longest == Duration::zero() ? " (no member has finished that before)"
                                            : " (longest before: " + whole_ms(stall.longest) + ")";
  if (!stall.waiting.empty()) {
    text += stall.waiting.size() == 1 ? "; member" : "; members";
    for (std::size_t i = 0; i < stall.waiting.size(); ++i) {
      text += (i == 0 ? " " : ", ") + std::to_string(value(stall.waiting[i]));
    }
    text += stall.waiting.size() == 1 ? " waits" : " wait";
  }
  return text;
}

std::string describe(const Stall& stall, const std::optional<View>& view,
                     const std::vector<std::string>& bucket_names) {
  std::string text;
  for (std::size_t rank = 0; view && rank < view->members.size(); ++rank) {
    if (view->members[rank].id == stall.member) {
      text = "rank " + std::to_string(rank) + ' ';
    }
  }
  text += describe(stall);
  if (stall.position.bucket < bucket_names.size()) {
    text += "; bucket " + std::to_string(stall.position.bucket) + " is " +
            bucket_names[stall.position.bucket];
  }
  return text;
}

}  // namespace mayfly::elastic
