#include "datasets/store_protocol.hpp"

#include <cstddef>
#include <utility>

namespace mayfly::datasets {

std::vector<std::uint64_t> words_of(StoreIndex index) {
  std::vector<std::uint64_t> words = std::move(index.kept);
  words.insert(words.end(), index.second.begin(), index.second.end());
  words.insert(words.end(), {index.free, index.spare});
  return words;
}

StoreIndex index_of(std::span<const std::uint64_t> words) {
  const std::size_t bits = words.size() / 2 - 1;
  StoreIndex index;
  index.kept.assign(words.begin(), words.begin() + static_cast<std::ptrdiff_t>(bits));
  index.second.assign(words.begin() + static_cast<std::ptrdiff_t>(bits), words.end() - 2);
  index.free = words[2 * bits];
  index.spare = words[2 * bits + 1];
  return index;
}

}  // namespace mayfly::datasets
