#include "elastic/core/blame.hpp"

#include <algorithm>
#include <set>

#include "base/check.hpp"

namespace mayfly::elastic {
namespace {

constexpr int kViewsInARow = 3;
constexpr int kViewsUnanswered = 2;  // the second one is formed with new connections
// A link that has not broken in so many views that broke elsewhere has carried their data.
constexpr int kElsewhereMax = 8;

const BreakReport* find(const std::vector<BreakReport>& reports, MemberId member) {
  const auto place =
      std::ranges::find_if(reports, [member](const BreakReport& r) { return r.member == member; });
  return place == reports.end() ? nullptr : &*place;
}

int blamers_of(MemberId accused, const std::vector<BreakReport>& reports) {
  return static_cast<int>(std::ranges::count_if(reports, [accused](const BreakReport& r) {
    return r.failed && r.culprit == accused && r.member != accused;
  }));
}

/// Where the chain of blame from `first` ends. If it ends in two members that blame each other, the
/// one that more members blame is taken, or, if equal, the one with the larger id.
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
    rows_.clear();
    return first;
  }
  const std::optional<MemberId> accused = root_of(first, reports);
  if (!accused) {
    return broke_alone(first, reports);
  }
  const auto may_be_evicted = [&reports](MemberId member) {  // else it is lost, or finished
    const BreakReport* own = find(reports, member);
    return own != nullptr && !own->finished;
  };
  if (!may_be_evicted(*accused)) {
    rows_.clear();
    return std::nullopt;
  }
  std::map<Link, Row> broken;
  for (const BreakReport& report : reports) {
    if (report.failed && report.culprit == accused && report.member != *accused) {
      const Link link = std::minmax(report.member, *accused);
      broken[link] = grown(link, *accused, report.unanswered);
    }
  }
  ENSURE(!broken.empty(), "the root of a chain of blame is blamed by some member");
  remember(broken);
  const auto& [link, row] = *broken.begin();  // any of them names the member that all blame
  if (broken.size() < 2 && !is_bad(row)) {
    return std::nullopt;
  }
  const bool is_between_two = broken.size() < 2 && row.is_mutual && may_be_evicted(link.second);
  const MemberId goes = is_between_two ? link.second : *accused;
  std::erase_if(rows_, [goes](const auto& entry) {
    return entry.first.first == goes || entry.first.second == goes;
  });
  return goes;
}

/// If several links are bad, any of them may be the first to break a view, and the other bad links
/// do not show in that view. So a row is kept while other links break: when rows began anew each
/// time, dozens of views broke before one row was long enough.
void BlameRecord::remember(const std::map<Link, Row>& broken) {
  for (auto& [link, row] : rows_) {
    ++row.elsewhere;
  }
  std::erase_if(rows_, [](const auto& entry) {
    const bool broke_alone = entry.first.first == entry.first.second;
    return broke_alone || entry.second.elsewhere > kElsewhereMax;
  });
  for (const auto& [link, row] : broken) {
    rows_[link] = row;
  }
}

bool BlameRecord::is_bad(const Row& row) {
  return row.views >= kViewsInARow || row.unanswered >= kViewsUnanswered;
}

BlameRecord::Row BlameRecord::grown(const Link& link, MemberId accused, bool unanswered) const {
  const auto before = rows_.find(link);
  if (before == rows_.end()) {
    return {1, unanswered ? 1 : 0, accused, false, 0};
  }
  const Row& row = before->second;
  return {row.views + 1, row.unanswered + (unanswered ? 1 : 0), accused,
          row.is_mutual || row.accused != accused, 0};
}

std::optional<MemberId> BlameRecord::broke_alone(MemberId first,
                                                 const std::vector<BreakReport>& reports) {
  const bool is_alone = reports.size() > 1 && std::ranges::all_of(reports, [first](const auto& r) {
                          return r.failed == (r.member == first) && !r.culprit;
                        });
  const Row row = grown({first, first}, first, false);
  rows_.clear();
  if (!is_alone || row.views >= kViewsInARow) {
    return is_alone ? std::optional(first) : std::nullopt;
  }
  rows_[{first, first}] = row;
  return std::nullopt;
}

std::optional<Accusation> judge_break(BlameRecord& record, MemberId first,
                                      const Membership& membership) {
  std::vector<BreakReport> reports;
  for (const auto& [id, peer] : membership.peers()) {
    if (peer.phase() == Peer::Phase::kStopped) {
      reports.push_back({id, peer.stopped.failed, peer.stopped.finished, peer.stopped.culprit,
                         peer.stopped.unanswered});
    }
  }
  const std::optional<MemberId> culprit = record.group_broke(first, reports);
  if (!culprit) {
    return std::nullopt;
  }
  const Stopped& said = membership.at(*culprit).stopped;
  const bool is_first = *culprit == first;
  if (is_first && !said.culprit) {
    return Accusation{*culprit, "its group broke again and again, and no other member's"};
  }
  const bool is_cut_off = is_first && said.culprit == *culprit;
  return Accusation{*culprit,
                    is_cut_off ? "it is cut off: " + said.detail
                               : "other members could not exchange data with it",
                    DismissReason::kUnreachable};
}

}  // namespace mayfly::elastic
