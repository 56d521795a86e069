#include "elastic/core/view.hpp"

#include <algorithm>
#include <bit>

#include "base/bytes.hpp"
#include "base/check.hpp"
#include "base/digest.hpp"

namespace mayfly::elastic {
namespace {

constexpr std::uint32_t kWordBits = 64;

void drop_trailing_zeros(std::vector<std::uint64_t>& words) {
  while (!words.empty() && words.back() == 0) {
    words.pop_back();
  }
}

/// Of everything in it. Not of its encoding: what a delta makes of a wrong base may have none.
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

Error wrong_base(const View& base, const ViewDelta& delta) {
  return Error{Errc::kCorrupt, "view " + std::to_string(value(delta.id)) +
                                   " is not a change of our view " +
                                   std::to_string(value(base.id))};
}

}  // namespace

MicrobatchSet MicrobatchSet::range(std::uint32_t first, std::uint32_t count) {
  ENSURE(first <= kMicrobatchesMax && count <= kMicrobatchesMax - first,
         "a step has at most kMicrobatchesMax microbatches");
  MicrobatchSet set;
  set.add_range(first, count);
  return set;
}

void MicrobatchSet::add_range(std::uint32_t first, std::uint32_t count) {
  ENSURE(first <= kMicrobatchesMax && count <= kMicrobatchesMax - first,
         "a step has at most kMicrobatchesMax microbatches");
  const std::uint32_t end = first + count;
  if (count > 0 && (end - 1) / kWordBits >= words_.size()) {
    words_.resize((end - 1) / kWordBits + 1, 0);
  }
  for (std::uint32_t at = first; at < end;) {
    const std::uint32_t bit = at % kWordBits;
    const std::uint32_t bits = std::min(kWordBits - bit, end - at);
    words_[at / kWordBits] |= (~std::uint64_t{0} >> (kWordBits - bits)) << bit;
    at += bits;
  }
}

std::vector<MicrobatchSet::Run> MicrobatchSet::runs() const {
  std::vector<Run> runs;
  for (std::size_t i = 0; i < words_.size(); ++i) {
    const auto base = static_cast<std::uint32_t>(i) * kWordBits;
    for (std::uint32_t bit = 0; bit < kWordBits;) {
      const std::uint64_t rest = words_[i] >> bit;
      if (rest == 0) {
        break;
      }
      bit += static_cast<std::uint32_t>(std::countr_zero(rest));
      const auto ones = static_cast<std::uint32_t>(std::countr_one(words_[i] >> bit));
      if (!runs.empty() && runs.back().first + runs.back().count == base + bit) {
        runs.back().count += ones;
      } else {
        runs.push_back({base + bit, ones});
      }
      bit += ones;
    }
  }
  return runs;
}

void MicrobatchSet::add(std::uint32_t microbatch) {
  ENSURE(microbatch < kMicrobatchesMax, "a step has at most kMicrobatchesMax microbatches");
  const std::size_t word = microbatch / kWordBits;
  if (word >= words_.size()) {
    words_.resize(word + 1, 0);
  }
  words_[word] |= std::uint64_t{1} << (microbatch % kWordBits);
}

void MicrobatchSet::add_all(const MicrobatchSet& other) {
  words_.resize(std::max(words_.size(), other.words_.size()), 0);
  for (std::size_t i = 0; i < other.words_.size(); ++i) {
    words_[i] |= other.words_[i];
  }
}

bool MicrobatchSet::contains(std::uint32_t microbatch) const {
  const std::size_t word = microbatch / kWordBits;
  return word < words_.size() && ((words_[word] >> (microbatch % kWordBits)) & 1) != 0;
}

std::uint32_t MicrobatchSet::count() const {
  std::uint32_t total = 0;
  for (const std::uint64_t word : words_) {
    total += static_cast<std::uint32_t>(std::popcount(word));
  }
  return total;
}

std::vector<std::uint32_t> MicrobatchSet::list() const {
  std::vector<std::uint32_t> numbers;
  for (std::size_t i = 0; i < words_.size(); ++i) {
    for (std::uint64_t rest = words_[i]; rest != 0; rest &= rest - 1) {
      numbers.push_back(static_cast<std::uint32_t>(i) * kWordBits +
                        static_cast<std::uint32_t>(std::countr_zero(rest)));
    }
  }
  return numbers;
}

MicrobatchSet MicrobatchSet::minus(const MicrobatchSet& other) const {
  MicrobatchSet rest = *this;
  for (std::size_t i = 0; i < std::min(words_.size(), other.words_.size()); ++i) {
    rest.words_[i] &= ~other.words_[i];
  }
  drop_trailing_zeros(rest.words_);
  return rest;
}

const ViewMember* member_of(const View& view, MemberId id) {
  const auto place = std::lower_bound(
      view.members.begin(), view.members.end(), id,
      [](const ViewMember& member, MemberId wanted) { return member.id < wanted; });
  return place != view.members.end() && place->id == id ? &*place : nullptr;
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
  ViewDelta delta{base.id,     hash_of(view), view.id, view.key, view.committed,
                  view.source, view.behind,   {},      {},       {},
                  view.bases};
  auto old = base.members.begin();
  for (const ViewMember& member : view.members) {
    for (; old != base.members.end() && old->id < member.id; ++old) {
      delta.gone.push_back(old->id);
    }
    if (old != base.members.end() && old->id == member.id) {
      ++old;
    } else {
      delta.came.push_back({member.id, member.address});
    }
    delta.shares.push_back({member.first_step, member.first, member.count, member.observes});
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
    const ViewDelta::Share& share = delta.shares[rank];
    view.members[rank].first_step = share.first_step;
    view.members[rank].first = share.first;
    view.members[rank].count = share.count;
    view.members[rank].observes = share.observes;
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
