#include "datasets/dataset.hpp"

namespace mayfly::datasets {

Result<Augmentation> Dataset::read_for_training(std::size_t index, const EpochKey& key,
                                                std::span<std::uint8_t> pixels) const {
  TRY(read(index, pixels));
  return draw_augmentation(key.seed, key.epoch, index);
}

}  // namespace mayfly::datasets
