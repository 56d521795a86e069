#include "elastic/core/share_codec.hpp"

#include <cstddef>
#include <cstdint>

namespace mayfly::elastic {
namespace {

enum class ShareKind : std::uint8_t {
  kAsLater = 0,   ///< a run of contiguous shares of `count` each, with this rule for the first step
  kAsBefore = 1,  ///< the same with this rule
  kOther = 2,     ///< one contiguous share with its own set in the first step
  kAnything = 3
};
static_assert(static_cast<int>(ShareKind::kOther) == static_cast<int>(ViewDelta::FirstStep::kOther),
              "the kinds of shares that follow on are the rules of their first step");

/// `end`: the end of the previous share.
ShareKind kind_of(const ViewDelta::Share& share, std::uint32_t end) {
  const bool follows = share.first == end && share.observes == ViewId{};
  return follows ? static_cast<ShareKind>(share.rule) : ShareKind::kAnything;
}

bool is_run_length_coded(ShareKind kind) {
  return kind == ShareKind::kAsLater || kind == ShareKind::kAsBefore;
}

/// The fields that a share of this kind has in addition to those of its run.
void share_fields(auto& io, auto& share, ShareKind kind) {
  if (kind == ShareKind::kAnything) {
    io.number(share.first, kMicrobatchesMax);
    io.plain(share.observes);
    io.choice(share.rule, ViewDelta::FirstStep::kOther);
  }
  io.number(share.count, kMicrobatchesMax - share.first);
  if (share.rule == ViewDelta::FirstStep::kOther) {
    io.set(share.first_step);
  }
}

/// Whether encode() can produce this share: an observer has no work, and a set is written only if
/// no rule describes it.
bool is_proper(const ViewDelta::Share& share) {
  using FirstStep = ViewDelta::FirstStep;
  if (share.observes != ViewId{}) {
    return share.count == 0 && share.rule == FirstStep::kAsLater;
  }
  return share.rule != FirstStep::kOther ||
         share.first_step != MicrobatchSet::range(share.first, share.count);
}

}  // namespace

void shares(Encoder& io, const std::vector<ViewDelta::Share>& all) {
  io.number(static_cast<std::uint32_t>(all.size()), kMembersMax);
  std::uint32_t end = 0;
  for (std::size_t i = 0; i < all.size();) {
    const ViewDelta::Share& share = all[i];
    const ShareKind kind = kind_of(share, end);
    io.choice(kind, ShareKind::kAnything);
    std::uint32_t same = 0;
    do {
      end = all[i].first + all[i].count;
      ++same;
      ++i;
    } while (is_run_length_coded(kind) && i < all.size() && all[i].count == share.count &&
             kind_of(all[i], end) == kind);
    if (is_run_length_coded(kind)) {
      io.number(same, kMembersMax);
    }
    share_fields(io, share, kind);
  }
}

void shares(Decoder& io, std::vector<ViewDelta::Share>& all) {
  std::uint32_t total = 0;
  io.number(total, kMembersMax);
  std::uint32_t end = 0;
  ShareKind kind_before = ShareKind::kAnything;
  std::uint32_t count_before = 0;
  while (all.size() < total && !io.failed()) {
    ShareKind kind = ShareKind::kAsLater;
    io.choice(kind, ShareKind::kAnything);
    std::uint32_t same = 1;
    ViewDelta::Share share;
    share.first = end;
    if (kind != ShareKind::kAnything) {
      share.rule = static_cast<ViewDelta::FirstStep>(kind);
    }
    if (is_run_length_coded(kind)) {
      io.number(same, static_cast<std::uint32_t>(total - all.size()));
    }
    share_fields(io, share, kind);
    const bool is_longer_run =
        is_run_length_coded(kind) && kind == kind_before && share.count == count_before;
    io.require(same > 0 && is_proper(share) && !is_longer_run);
    for (std::uint32_t i = 0; i < same && !io.failed(); ++i) {
      io.require(share.count <= kMicrobatchesMax - share.first && kind_of(share, end) == kind);
      all.push_back(share);
      end = share.first + share.count;
      share.first = end;
    }
    kind_before = kind;
    count_before = share.count;
  }
}

}  // namespace mayfly::elastic
