#pragma once

// How the shares of a view's members are written and read; private to elastic/core. In a large view
// nearly all shares follow on the one before, are the same in every step and differ little: runs of
// them take a few bytes.

#include <vector>

#include "elastic/core/message_codec.hpp"
#include "elastic/core/view_delta.hpp"

namespace mayfly::elastic {

enum class ShareKind : std::uint8_t {
  kPlain = 0,           ///< so many members that each have `count` more, in the first step, too
  kOtherFirstStep = 1,  ///< one that follows on, with another set in the first step
  kAnything = 2
};

/// `end`: of the share before.
inline ShareKind kind_of(const ViewDelta::Share& share, std::uint32_t end) {
  if (share.first != end || share.observes != ViewId{}) {
    return ShareKind::kAnything;
  }
  return share.first_step == MicrobatchSet::range(share.first, share.count)
             ? ShareKind::kPlain
             : ShareKind::kOtherFirstStep;
}

inline void shares(Encoder& io, const std::vector<ViewDelta::Share>& all) {
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
    } while (kind == ShareKind::kPlain && i < all.size() && all[i].count == share.count &&
             kind_of(all[i], end) == ShareKind::kPlain);
    if (kind == ShareKind::kPlain) {
      io.number(same, kMembersMax);
    } else if (kind == ShareKind::kAnything) {
      io.number(share.first, kMicrobatchesMax);
      io.plain(share.observes);
    }
    io.number(share.count, kMicrobatchesMax - share.first);
    if (kind != ShareKind::kPlain) {
      io.set(share.first_step);
    }
  }
}

inline void shares(Decoder& io, std::vector<ViewDelta::Share>& all) {
  std::uint32_t total = 0;
  io.number(total, kMembersMax);
  std::uint32_t end = 0;
  bool follows_plain = false;
  std::uint32_t plain_count = 0;
  while (all.size() < total && !io.failed()) {
    ShareKind kind = ShareKind::kPlain;
    io.choice(kind, ShareKind::kAnything);
    std::uint32_t same = 1;
    ViewDelta::Share share;
    share.first = end;
    if (kind == ShareKind::kPlain) {
      io.number(same, static_cast<std::uint32_t>(total - all.size()));
    } else if (kind == ShareKind::kAnything) {
      io.number(share.first, kMicrobatchesMax);
      io.plain(share.observes);
    }
    io.number(share.count, kMicrobatchesMax - share.first);
    if (kind != ShareKind::kPlain) {
      io.set(share.first_step);
    }
    io.require(share.observes == ViewId{} || (share.count == 0 && share.first_step.empty()));
    for (std::uint32_t i = 0; i < same && !io.failed(); ++i) {
      io.require(share.count <= kMicrobatchesMax - share.first);
      if (kind == ShareKind::kPlain && !io.failed()) {
        share.first_step = MicrobatchSet::range(share.first, share.count);
      }
      io.require(!io.failed() && kind_of(share, end) == kind);  // one encoding
      all.push_back(share);
      end = share.first + share.count;
      share.first = end;
    }
    io.require(same > 0 &&
               !(follows_plain && kind == ShareKind::kPlain && plain_count == share.count));
    follows_plain = kind == ShareKind::kPlain;
    plain_count = share.count;
  }
}

}  // namespace mayfly::elastic
