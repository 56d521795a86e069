// What the lease desk does about stragglers: steps of kBsp slice by slice (greedy), or without them
// (elastic).

#include <algorithm>
#include <utility>

#include "collectives/parameter_server/core/lease_table.hpp"

namespace mayfly::parameter_server {
namespace {

constexpr std::uint64_t kRoundsPerProbe = 2;

}  // namespace

/// Between two steps, and when every shard has what was leased, the way of doing them may change.
void LeaseTable::serve_bsp() {
  if (streams_ != wants_stream() && !must_restore()) {
    if (next_ < phase().last && is_at_rest()) {
      change_stream(wants_stream());
    }
  }
  if (streams_) {
    serve_stream();
  } else if (!wants_stream() || must_restore()) {
    serve_round();
  }
}

bool LeaseTable::wants_stream() const {
  return options_.stragglers == StragglerPolicy::kGreedy && !stragglers_.empty();
}

void LeaseTable::change_stream(bool streams) {
  if (std::exchange(streams_, streams) == streams) {
    return;
  }
  if (streams) {
    streamed_.push_back({next_, UINT64_MAX});
  } else {
    streamed_.back().last = next_;
  }
}

bool LeaseTable::is_streamed(std::uint64_t slice) const {
  return std::any_of(streamed_.begin(), streamed_.end(), [slice](const Streamed& part) {
    return slice >= part.first && slice < part.last;
  });
}

std::uint64_t LeaseTable::version_at(std::uint64_t slice) const {
  std::uint64_t version = plan_.version_at(slice);
  for (const Streamed& part : streamed_) {
    const std::uint64_t last = std::min(slice, part.last);
    const std::uint64_t count = last > part.first ? last - part.first : 0;
    version += count - count / plan_.phase_of(part.first).round;
  }
  return version;
}

Grants LeaseTable::set_stragglers(const std::map<MemberId, double>& stragglers) {
  stragglers_ = stragglers;
  std::erase_if(stragglers_, [this](const auto& entry) { return !workers_.contains(entry.first); });
  return serve();
}

bool LeaseTable::shows_speeds() const {
  return !is_over() &&
         (phase().policy.kind == SyncKind::kBsp || phase().policy.kind == SyncKind::kAsp);
}

/// Who gets no slices of kBsp.
std::set<MemberId> LeaseTable::left_out() const {
  if (options_.stragglers != StragglerPolicy::kElastic || stragglers_.empty()) {
    return {};
  }
  std::set<MemberId> all;
  for (const auto& [id, worker] : workers_) {
    if (is_awaited(worker)) {
      all.insert(id);
    }
  }
  return worth_leaving_out(stragglers_, all, phase().round);
}

/// As many slices as the others have, whose way to and fro counts as little.
void LeaseTable::probe(const std::set<MemberId>& left_out, std::uint64_t first,
                       std::uint64_t count) {
  if (rounds_ % kRoundsPerProbe != 0) {
    return;
  }
  for (const MemberId id : left_out) {
    if (workers_.at(id).wants) {
      grant(
          id,
          {.kind = LeaseKind::kProbe, .first = first, .count = static_cast<std::uint32_t>(count)});
    }
  }
}

}  // namespace mayfly::parameter_server
