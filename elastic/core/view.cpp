#include "elastic/core/view.hpp"

#include <algorithm>
#include <utility>

#include "base/bytes.hpp"
#include "base/check.hpp"
#include "base/digest.hpp"
#include "elastic/core/member_map.hpp"

namespace mayfly::elastic {
namespace {

/// Hashes every field rather than the encoding: a delta that is applied to a wrong base may produce
/// a view that cannot be encoded.
std::uint64_t hash_of(const View& view) {
  WireWriter writer;
  writer.put(view.id);
  writer.put(view.key);
  writer.put(view.committed);
  writer.put(view.source);
  writer.put(static_cast<std::uint32_t>(view.behind.size()));
  for (const Rank rank : view.behind) {
    writer.put(rank);
  }
  for (const ViewMember& member : view.members) {
    writer.put(member.id);
    writer.put_string(member.address);
    writer.put(member.first);
    writer.put(member.count);
    writer.put(member.observes);
    for (const MicrobatchSet::Run& run : member.first_step.runs()) {
      writer.put(run.first);
      writer.put(run.count);
    }
  }
  for (const ViewBase& base : view.bases) {
    writer.put(base.id);
    for (const MemberId member : base.members) {
      writer.put(member);
    }
  }
  return digest_of(writer.take()).low;
}

/// The share of a member of `view`; `before`: the same member in `base`, or nullptr.
ViewDelta::Share share_of(const ViewMember& member, const View& view, const ViewMember* before,
                          const View& base) {
  using FirstStep = ViewDelta::FirstStep;
  ViewDelta::Share share{FirstStep::kOther, {}, member.first, member.count, member.observes};
  if (member.first_step == MicrobatchSet::range(member.first, member.count)) {
    share.rule = FirstStep::kAsLater;
  } else if (before != nullptr && member.first_step == due_after(base, *before, view.committed)) {
    share.rule = FirstStep::kAsBefore;
  } else {
    share.first_step = member.first_step;
  }
  return share;
}

/// False if the share is to be as in `base`, but `member` is not in `base`.
bool take_share(ViewMember& member, const ViewDelta::Share& share, Step committed,
                const View& base) {
  member.first = share.first;
  member.count = share.count;
  member.observes = share.observes;
  member.first_step = share.first_step;
  if (share.rule == ViewDelta::FirstStep::kAsLater) {
    member.first_step = MicrobatchSet::range(share.first, share.count);
  } else if (share.rule == ViewDelta::FirstStep::kAsBefore) {
    const ViewMember* before = member_of(base, member.id);
    if (before == nullptr) {
      return false;
    }
    member.first_step = due_after(base, *before, committed);
  }
  return true;
}

Error wrong_base(const View& base, const ViewDelta& delta) {
  return Error{Errc::kCorrupt, "view " + std::to_string(value(delta.id)) +
                                   " is not a change of our view " +
                                   std::to_string(value(base.id))};
}

}  // namespace

MicrobatchSet MicrobatchSet::range(std::uint32_t first, std::uint32_t count) {
  MicrobatchSet set;
  set.add_range(first, count);
  return set;
}

void MicrobatchSet::add_range(std::uint32_t first, std::uint32_t count) {
  ENSURE(first <= kMicrobatchesMax && count <= kMicrobatchesMax - first,
         "a step has at most kMicrobatchesMax microbatches");
  if (count == 0) {
    return;
  }
  Run added{first, count};
  if (several_.empty() && one_.count == 0) {
    one_ = added;
    return;
  }
  if (several_.empty() && first <= one_.end() && one_.first <= added.end()) {
    const std::uint32_t end = std::max(one_.end(), added.end());
    one_.first = std::min(one_.first, first);
    one_.count = end - one_.first;
    return;
  }
  if (several_.empty()) {
    several_.push_back(std::exchange(one_, Run{}));
  }
  if (first > several_.back().end()) {
    several_.push_back(added);
    return;
  }
  const auto begin = std::ranges::lower_bound(several_, first, {}, &Run::end);
  auto end = begin;
  for (; end != several_.end() && end->first <= added.end(); ++end) {  // runs that touch it
    const std::uint32_t last = std::max(end->end(), added.end());
    added.first = std::min(end->first, added.first);
    added.count = last - added.first;
  }
  if (begin == end) {
    several_.insert(begin, added);
    return;
  }
  *begin = added;
  several_.erase(begin + 1, end);
  if (several_.size() == 1) {
    one_ = added;
    several_.clear();
  }
}

void MicrobatchSet::add(std::uint32_t microbatch) {
  ENSURE(microbatch < kMicrobatchesMax, "a step has at most kMicrobatchesMax microbatches");
  add_range(microbatch, 1);
}

void MicrobatchSet::add_all(const MicrobatchSet& other) {
  const std::span<const Run> more = other.runs();
  if (!empty() && !more.empty() && more.front().first < runs().back().first) {
    const MicrobatchSet own = std::exchange(*this, {});  // anew, so that runs are added at the end
    auto next = more.begin();
    for (const Run& run : own.runs()) {
      for (; next != more.end() && next->first < run.first; ++next) {
        add_range(next->first, next->count);
      }
      add_range(run.first, run.count);
    }
    for (; next != more.end(); ++next) {
      add_range(next->first, next->count);
    }
    return;
  }
  for (const Run& run : more) {
    add_range(run.first, run.count);
  }
}

bool MicrobatchSet::contains(std::uint32_t microbatch) const {
  const auto place = std::ranges::upper_bound(runs(), microbatch, {}, &Run::end);
  return place != runs().end() && place->first <= microbatch;
}

std::uint32_t MicrobatchSet::count() const {
  std::uint32_t total = 0;
  for (const Run& run : runs()) {
    total += run.count;
  }
  return total;
}

std::vector<std::uint32_t> MicrobatchSet::list() const {
  std::vector<std::uint32_t> numbers;
  for (const Run& run : runs()) {
    for (std::uint32_t number = run.first; number < run.end(); ++number) {
      numbers.push_back(number);
    }
  }
  return numbers;
}

MicrobatchSet MicrobatchSet::minus(const MicrobatchSet& other) const {
  MicrobatchSet rest;
  auto taken = other.runs().begin();
  for (const Run& run : runs()) {
    std::uint32_t at = run.first;
    for (; taken != other.runs().end() && taken->first < run.end(); ++taken) {
      if (taken->first > at) {
        rest.add_range(at, taken->first - at);
      }
      at = std::max(at, taken->end());
      if (taken->end() > run.end()) {
        break;  // the taken run may reach into this set's next run, too
      }
    }
    if (at < run.end()) {
      rest.add_range(at, run.end() - at);
    }
  }
  return rest;
}

const ViewMember* member_of(const View& view, MemberId id) {
  const std::size_t place = place_among(
      view.members.size(), id, [&view](std::size_t rank) { return view.members[rank].id; });
  const bool is_there = place < view.members.size() && view.members[place].id == id;
  return is_there ? &view.members[place] : nullptr;
}

MicrobatchSet due_after(const View& view, const ViewMember& member, Step committed) {
  return committed == view.committed ? member.first_step
                                     : MicrobatchSet::range(member.first, member.count);
}

bool View::has_observers() const {
  return std::ranges::any_of(members,
                             [](const ViewMember& member) { return member.is_observer(); });
}

std::vector<Rank> donors_of(const View& view) {
  std::vector<Rank> donors;
  for (std::size_t r = 0; r < view.members.size() && donors.size() < kDonorsMax; ++r) {
    const auto rank = static_cast<Rank>(r);
    const bool is_behind = std::binary_search(view.behind.begin(), view.behind.end(), rank);
    if (!view.members[r].is_observer() && !is_behind) {
      donors.push_back(rank);
    }
  }
  ENSURE(!donors.empty(), "some member of a view holds its state");
  return donors;
}

Rank reporter_of(const View& view) {
  const auto place = std::ranges::find_if(
      view.members, [](const ViewMember& member) { return !member.is_observer(); });
  ENSURE(place != view.members.end(), "some member of a view is to work");
  return static_cast<Rank>(place - view.members.begin());
}

ViewDelta make_delta(const View& base, const View& view) {
  ViewDelta delta;
  delta.base = base.id;
  delta.whole = hash_of(view);
  delta.id = view.id;
  delta.key = view.key;
  delta.committed = view.committed;
  delta.source = view.source;
  delta.behind = view.behind;
  delta.bases = view.bases;
  auto old = base.members.begin();
  for (const ViewMember& member : view.members) {
    for (; old != base.members.end() && old->id < member.id; ++old) {
      delta.gone.push_back(old->id);
    }
    const bool is_old = old != base.members.end() && old->id == member.id;
    delta.shares.push_back(share_of(member, view, is_old ? &*old : nullptr, base));
    if (is_old) {
      ++old;
    } else {
      delta.came.push_back({member.id, member.address});
    }
  }
  for (; old != base.members.end(); ++old) {
    delta.gone.push_back(old->id);
  }
  return delta;
}

Result<View> apply_delta(const View& base, const ViewDelta& delta) {
  if (base.id != delta.base || delta.gone.size() > base.members.size() ||
      base.members.size() - delta.gone.size() + delta.came.size() != delta.shares.size()) {
    return wrong_base(base, delta);
  }
  View view{delta.id, delta.key, delta.committed, delta.source, delta.behind, {}, delta.bases};
  view.members.reserve(delta.shares.size());
  auto gone = delta.gone.begin();
  for (const ViewMember& member : base.members) {
    if (gone != delta.gone.end() && *gone == member.id) {
      ++gone;
    } else {
      view.members.push_back({member.id, member.address, {}, 0, 0, {}});
    }
  }
  for (const ViewDelta::Newcomer& newcomer : delta.came) {
    view.members.push_back({newcomer.id, newcomer.address, {}, 0, 0, {}});
  }
  std::ranges::sort(view.members, [](const ViewMember& one, const ViewMember& other) {
    return one.id < other.id;
  });
  if (view.members.size() != delta.shares.size()) {
    return wrong_base(base, delta);
  }
  for (std::size_t rank = 0; rank < view.members.size(); ++rank) {
    if (!take_share(view.members[rank], delta.shares[rank], delta.committed, base)) {
      return wrong_base(base, delta);
    }
  }
  if (hash_of(view) != delta.whole) {
    return wrong_base(base, delta);
  }
  return view;
}

MicrobatchSet work_before_group(const View& view, const ViewMember& self, Step committed) {
  const bool has_state = !self.is_observer() && committed == view.committed;
  return has_state ? self.first_step : MicrobatchSet{};
}

MicrobatchSet work_at_boundary(const ViewMember& self, bool stays, std::uint32_t at_once) {
  const bool may_begin = stays && !self.is_observer();
  return may_begin ? MicrobatchSet::range(self.first, std::min(self.count, at_once))
                   : MicrobatchSet{};
}

}  // namespace mayfly::elastic
