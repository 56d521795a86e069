#include "engine/run/member_journal.hpp"

#include <algorithm>
#include <array>
#include <cmath>
#include <string_view>

#include "engine/server_roles/ps_servers.hpp"

namespace mayfly::engine {
namespace {

double rounded_to_microseconds(float ms) {
  return std::round(double{ms} * 1000) / 1000;
}

StagesRecord record_of(const elastic::Stages& stages) {
  return {.fetch_ms = rounded_to_microseconds(stages.fetch_ms),
          .prep_ms = rounded_to_microseconds(stages.prep_ms),
          .compute_ms = rounded_to_microseconds(stages.compute_ms),
          .compute_cpu_ms = rounded_to_microseconds(stages.compute_cpu_ms),
          .bytes = stages.bytes,
          .load_threads = stages.load_threads,
          .compute_threads = stages.compute_threads,
          .ahead = stages.ahead,
          .yields = stages.yields};
}

/// Whether a note with this kind means that its member has connected, for the first time or again.
bool is_arrival(const std::string& kind) {
  return kind == "connected" || kind == "returned" || kind == "joins_again";
}

/// Whether a time differs enough from the recorded one to be worth a line.
bool is_news(double ms, double before) {
  return std::abs(ms - before) > MemberJournal::kSpeedChange * before;
}

}  // namespace

bool is_end_of_member(const std::string& kind) {
  constexpr std::array<std::string_view, 5> kEnds = {"lost", "left", "evicted", "corrupted",
                                                     "disconnected"};
  return std::find(kEnds.begin(), kEnds.end(), kind) != kEnds.end();
}

void MemberJournal::restore(const MemberRecord& record) {
  Known& known = members_[record.member];
  known.last = record;
  known.stages = record.stages;
  known.samples = static_cast<double>(record.samples);
  known.steps = record.steps;
  known.has_ended = is_end_of_member(record.phase) || record.phase == MemberRecord::kEnded;
}

void MemberJournal::view_published(const elastic::View& view) {
  std::vector<Share>& shares = views_[value(view.id)];
  shares.clear();
  for (const elastic::ViewMember& member : view.members) {
    const bool is_server = is_server_only(member.address);  // views give it a share as well
    shares.push_back({value(member.id), is_server ? 0 : member.count});
  }
  if (views_.size() > kViewsRemembered) {
    views_.erase(views_.begin());
  }
}

void MemberJournal::committed(std::uint64_t view, std::uint64_t samples) {
  const auto place = views_.find(view);
  if (place == views_.end()) {
    return;
  }
  double all = 0;
  for (const Share& share : place->second) {
    all += share.microbatches;
  }
  for (const Share& share : place->second) {
    if (share.microbatches > 0) {
      Known& known = members_[share.member];
      ++known.steps;
      known.samples += static_cast<double>(samples) * share.microbatches / all;
    }
  }
}

MemberRecord MemberJournal::line_of(Known& known, double t, const std::string& phase) {
  MemberRecord& line = known.last;
  line.t = t;
  line.phase = phase;
  line.steps = known.steps;
  line.samples = static_cast<std::uint64_t>(std::llround(known.samples));
  return line;
}

std::optional<MemberRecord> MemberJournal::connected(double t, std::uint64_t member,
                                                     const std::string& host) {
  Known& known = members_[member];
  if (!known.last.phase.empty() && !known.has_ended) {
    return std::nullopt;
  }
  known.last.member = member;
  known.last.host = host;
  known.last.joined = known.has_ended ? known.last.joined : t;
  known.last.microbatches = 0;
  known.last.microbatch_ms = 0;
  known.last.stages = {};
  known.last.detail.clear();
  known.has_ended = false;
  return line_of(known, t, elastic::name_of(elastic::MemberPhase::kLoading));
}

std::vector<MemberRecord> MemberJournal::on_note(double t, const std::string& kind,
                                                 std::uint64_t member, const std::string& detail) {
  std::optional<MemberRecord> line;
  if (is_arrival(kind)) {
    line = connected(t, member, detail);
  } else if (kind == "disconnected") {  // after its dismissal
    line = ended(t, member, MemberRecord::kEnded, "");
  } else if (is_end_of_member(kind)) {
    line = ended(t, member, kind, detail);
  }
  return line ? std::vector{*line} : std::vector<MemberRecord>();
}

void MemberJournal::introduced(const std::vector<elastic::MemberStatus>& members) {
  for (const elastic::MemberStatus& member : members) {
    if (const auto known = members_.find(value(member.id)); known != members_.end()) {
      known->second.last.server = member.server;
      known->second.last.cores = member.cores;
    }
  }
}

std::vector<MemberRecord> MemberJournal::look(double t,
                                              const std::vector<elastic::MemberStatus>& members) {
  std::vector<MemberRecord> lines;
  for (const elastic::MemberStatus& member : members) {
    Known& known = members_[value(member.id)];
    const std::string phase = elastic::name_of(member.phase);
    const double ms = rounded_to_microseconds(member.microbatch_ms);
    const double before = known.last.microbatch_ms;
    known.stages = record_of(member.stages);
    known.last.cpu_seconds = static_cast<double>(member.use.cpu_ms) / 1000;
    known.last.memory_mib = member.use.memory_mib;
    const bool is_due = before == 0 || t - known.last.t >= kSpeedInterval;
    const bool has_new_speed =
        is_due &&
        (is_news(ms, before) || is_news(known.stages.fetch_ms, known.last.stages.fetch_ms) ||
         is_news(known.stages.prep_ms, known.last.stages.prep_ms));
    const bool is_new = known.last.phase.empty();
    if (known.has_ended || !(is_new || phase != known.last.phase ||
                             member.microbatches != known.last.microbatches || has_new_speed)) {
      continue;
    }
    known.last.member = value(member.id);
    known.last.host = member.host;
    known.last.server = member.server;
    known.last.cores = member.cores;
    known.last.joined = is_new ? t : known.last.joined;
    known.last.microbatches = member.microbatches;
    known.last.microbatch_ms = ms;
    known.last.stages = known.stages;
    lines.push_back(line_of(known, t, phase));
  }
  return lines;
}

std::optional<MemberRecord> MemberJournal::ended(double t, std::uint64_t member,
                                                 const std::string& how, const std::string& why) {
  const auto place = members_.find(member);
  if (place == members_.end() || place->second.has_ended || place->second.last.phase.empty()) {
    return std::nullopt;
  }
  place->second.has_ended = true;
  place->second.last.detail = why;
  place->second.last.stages = place->second.stages;
  return line_of(place->second, t, how);
}

std::vector<MemberRecord> MemberJournal::all_ended(double t) {
  std::vector<MemberRecord> lines;
  for (auto& [member, known] : members_) {
    if (const auto line = ended(t, member, MemberRecord::kEnded, "")) {
      lines.push_back(*line);
    } else if (known.has_ended && known.steps != known.last.steps) {
      lines.push_back(line_of(known, known.last.t, known.last.phase));
    }
  }
  return lines;
}

bool MemberBill::on_note(Instant when, const std::string& kind, std::uint64_t member) {
  const std::string item = std::to_string(member);
  bool changes = false;
  if (is_arrival(kind)) {
    bill_.open(item, price_per_hour_, when);
    changes = open_.insert(member).second;
  } else if (is_end_of_member(kind) && open_.erase(member) > 0) {
    (void)bill_.close(item, when);
    changes = true;
  }
  last_cost_at_ = changes ? when : last_cost_at_;
  return changes;
}

std::optional<Spending> MemberBill::due(Instant now) {
  if (open_.empty() || now - last_cost_at_ < kCostInterval) {
    return std::nullopt;
  }
  last_cost_at_ = now;
  return at(now);
}

Spending MemberBill::at(Instant now) const {
  return {bill_.spent(now), bill_.per_hour(), static_cast<std::uint32_t>(open_.size())};
}

}  // namespace mayfly::engine
