#pragma once

// Members of a group must agree, and they found that they do not: their states differ, or two of
// them computed the same microbatch and got different results. Each says what it has, part by part;
// here it is decided who is wrong. Accidents do not agree with each other, so what two independent
// members have in common is right. Pure.

#include <cstdint>
#include <vector>

#include "base/ids.hpp"

namespace mayfly::elastic {

/// What members disagree about.
enum class Dispute : std::uint8_t {
  kNone,
  kState,       ///< the state that a step starts from
  kMicrobatch,  ///< the gradient of one microbatch, computed by several members (an audit)
};

/// One member's word.
struct Witness {
  MemberId member{};
  std::vector<std::uint64_t> hashes;  ///< of the parts, in the same order for all
  /// False: it copied what it has from another witness, and has nothing of its own to say.
  bool is_independent = true;
  bool contradicts_itself = false;  ///< it computed the same thing twice and got different results
};

struct Verdict {
  bool decided = false;              ///< otherwise nobody can say who is right
  std::vector<MemberId> odd;         ///< those that are wrong, in the order of the witnesses
  std::vector<std::uint32_t> parts;  ///< in which the first of them differs
};

/// Right is what at least two independent sound witnesses say, and more of them than say anything
/// else; one is enough if all others are unsound. Everybody who says something else is odd, and so
/// is everybody unsound.
[[nodiscard]] Verdict odd_one_out(const std::vector<Witness>& witnesses);

}  // namespace mayfly::elastic
