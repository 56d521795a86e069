#pragma once

#include <cstddef>
#include <string>
#include <vector>

namespace mayfly::datasets {

/// The unusable images that were skipped (skip_corrupt). Equal on every machine: names are those
/// within the data set, "train/cat/1.jpg", first images with an unusable header, then images that
/// are too small, then images with a corrupt body, each in the order of the data set.
struct LeftOut {
  static constexpr std::size_t kNamesMax = 20;
  static constexpr std::size_t kNameBytesMax = 520;  ///< longer names, only in tars, are cut off

  std::size_t count = 0;
  std::vector<std::string> names;  ///< of the first kNamesMax

  void add(std::string name);
  /// A message: "2 unusable images are left out: train/cat/1.jpg, test/dog/7.jpg".
  [[nodiscard]] std::string sentence() const;

  /// Their names and types for a visitor that writes or reads records.
  static void fields(auto& io, auto& r) {
    io("count", r.count);
    io("names", r.names);
  }
};

}  // namespace mayfly::datasets
