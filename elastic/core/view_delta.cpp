#include "elastic/core/view_delta.hpp"

#include <algorithm>

#include "base/bytes.hpp"
#include "base/digest.hpp"

namespace mayfly::elastic {
namespace {

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
  std::sort(view.members.begin(), view.members.end(),
            [](const ViewMember& one, const ViewMember& other) { return one.id < other.id; });
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

}  // namespace mayfly::elastic
