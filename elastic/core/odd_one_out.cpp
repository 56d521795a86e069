#include "elastic/core/odd_one_out.hpp"

#include <algorithm>
#include <map>

namespace mayfly::elastic {
namespace {

using Hashes = std::vector<std::uint64_t>;

/// What most independent witnesses say; null if no two say the same, or several things are said
/// equally often. One word is enough if who contradicts it is unsound.
const Hashes* most_common(const std::vector<Witness>& witnesses) {
  std::map<Hashes, std::size_t> votes;
  for (const Witness& witness : witnesses) {
    if (witness.is_independent && !witness.contradicts_itself) {
      ++votes[witness.hashes];
    }
  }
  const bool blames_somebody = std::any_of(witnesses.begin(), witnesses.end(),
                                           [](const Witness& w) { return w.contradicts_itself; });
  const Hashes* winner = nullptr;
  std::size_t most = votes.size() == 1 && blames_somebody ? 0 : 1;  // to be exceeded
  for (const auto& [hashes, count] : votes) {
    if (count > most) {
      winner = &hashes;
      most = count;
    } else if (count == most) {
      winner = nullptr;
    }
  }
  if (winner == nullptr) {
    return nullptr;
  }
  const auto place = std::find_if(witnesses.begin(), witnesses.end(), [&](const Witness& witness) {
    return witness.is_independent && !witness.contradicts_itself && witness.hashes == *winner;
  });
  return &place->hashes;
}

std::vector<std::uint32_t> differing_parts(const Hashes& one, const Hashes& other) {
  std::vector<std::uint32_t> parts;
  for (std::size_t i = 0; i < std::max(one.size(), other.size()); ++i) {
    if (i >= one.size() || i >= other.size() || one[i] != other[i]) {
      parts.push_back(static_cast<std::uint32_t>(i));
    }
  }
  return parts;
}

}  // namespace

Verdict odd_one_out(const std::vector<Witness>& witnesses) {
  const Hashes* right = most_common(witnesses);
  if (right == nullptr) {
    return {};
  }
  Verdict verdict;
  verdict.decided = true;
  for (const Witness& witness : witnesses) {
    if (!witness.contradicts_itself && witness.hashes == *right) {
      continue;
    }
    if (verdict.odd.empty()) {
      verdict.parts = differing_parts(witness.hashes, *right);
    }
    verdict.odd.push_back(witness.member);
  }
  return verdict;
}

}  // namespace mayfly::elastic
