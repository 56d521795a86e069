#pragma once

#include <cstddef>
#include <string>
#include <vector>

namespace mayfly::datasets {

/// The unusable images that a set does without (skip_corrupt). The same on every machine: names are
/// those within the set, "train/cat/1.jpg", first of the images whose header is unusable, then of
/// those that are too small, then of those whose body is corrupt, each in the order of the set.
struct LeftOut {
  static constexpr std::size_t kNamesMax = 20;
  static constexpr std::size_t kNameBytesMax = 520;  ///< more only in a tar; the rest is cut off

  std::size_t count = 0;
  std::vector<std::string> names;  ///< of the first kNamesMax

  void add(std::string name);
  /// For people: "2 unusable images are left out: train/cat/1.jpg, test/dog/7.jpg".
  [[nodiscard]] std::string sentence() const;
};

}  // namespace mayfly::datasets
