#include "elastic/core/blame.hpp"

#include <algorithm>
#include <set>

#include "base/check.hpp"

namespace mayfly::elastic {
namespace {

constexpr int kViewsInARow = 3;

const BreakReport* find(const std::vector<BreakReport>& reports, MemberId member) {
  const auto place = std::find_if(reports.begin(), reports.end(),
                                  [member](const BreakReport& r) { return r.member == member; });
  return place == reports.end() ? nullptr : &*place;
}

int blamers_of(MemberId accused, const std::vector<BreakReport>& reports) {
  return static_cast<int>(
      std::count_if(reports.begin(), reports.end(), [accused](const BreakReport& r) {
        return r.failed && r.culprit == accused && r.member != accused;
      }));
}

/// Where the chain of blame from `first` ends. A chain that closes (two that blame each other) ends
/// at the one of these two whom more members blame, or who has the larger id.
std::optional<MemberId> root_of(MemberId first, const std::vector<BreakReport>& reports) {
  std::set<MemberId> passed;
  MemberId at = first;
  for (;;) {
    passed.insert(at);
    const BreakReport* report = find(reports, at);
    if (report == nullptr || !report->failed || !report->culprit || *report->culprit == at) {
      return at == first ? std::nullopt : std::optional(at);
    }
    const MemberId culprit = *report->culprit;
    if (passed.contains(culprit)) {
      const auto weight = [&](MemberId m) { return std::pair(blamers_of(m, reports), m); };
      return std::max(weight(at), weight(culprit)).second;
    }
    at = culprit;
  }
}

}  // namespace

std::optional<MemberId> BlameRecord::group_broke(MemberId first,
                                                 const std::vector<BreakReport>& reports) {
  const BreakReport* own_word = find(reports, first);
  const bool may_go = own_word != nullptr && own_word->failed && !own_word->finished;
  if (may_go && own_word->culprit == first && reports.size() > 1) {
    streaks_.clear();
    return first;
  }
  const std::optional<MemberId> accused = root_of(first, reports);
  if (!accused) {
    return broke_alone(first, reports);
  }
  const BreakReport* own = find(reports, *accused);
  if (own == nullptr || own->finished) {  // one that is gone anyway, or one that was done
    streaks_.clear();
    return std::nullopt;
  }
  std::map<Pair, int> grown;
  for (const BreakReport& report : reports) {
    if (report.failed && report.culprit == accused && report.member != *accused) {
      const Pair pair{report.member, *accused};
      const auto before = streaks_.find(pair);
      grown[pair] = 1 + (before == streaks_.end() ? 0 : before->second);
    }
  }
  ENSURE(!grown.empty(), "the root of a chain of blame is blamed by somebody");
  streaks_ = std::move(grown);
  const bool in_a_row = std::any_of(streaks_.begin(), streaks_.end(), [](const auto& streak) {
    return streak.second >= kViewsInARow;
  });
  if (streaks_.size() < 2 && !in_a_row) {
    return std::nullopt;
  }
  streaks_.clear();
  return accused;
}

std::optional<MemberId> BlameRecord::broke_alone(MemberId first,
                                                 const std::vector<BreakReport>& reports) {
  const bool is_alone =
      reports.size() > 1 && std::all_of(reports.begin(), reports.end(), [first](const auto& r) {
        return r.failed == (r.member == first) && !r.culprit;
      });
  const auto before = streaks_.find({first, first});
  const int streak = 1 + (before == streaks_.end() ? 0 : before->second);
  streaks_.clear();
  if (!is_alone || streak >= kViewsInARow) {
    return is_alone ? std::optional(first) : std::nullopt;
  }
  streaks_[{first, first}] = streak;
  return std::nullopt;
}

}  // namespace mayfly::elastic
