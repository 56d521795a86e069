#include "nn/cuda/image_source.hpp"

#include <algorithm>
#include <vector>

#include "base/check.hpp"

namespace mayfly::nn::cuda {

bool are_of(const ResidentSet& set, std::span<const SampleDraw> draws) {
  return std::ranges::all_of(draws,
                             [&set](const SampleDraw& draw) { return draw.sample < set.samples; });
}

Result<void> read_in_pieces(
    const TrainingSet& set,
    const std::function<Result<void>(std::size_t first, std::span<const std::uint8_t>)>& take) {
  constexpr std::size_t kPieceBytes = std::size_t{4} << 20;
  ENSURE(set.image_bytes > 0, "images have pixels");
  const std::uint64_t images = std::max<std::size_t>(1, kPieceBytes / set.image_bytes);
  std::vector<std::uint8_t> piece;
  for (std::uint64_t first = 0; first < set.resident.samples; first += images) {
    const std::uint64_t count = std::min(images, set.resident.samples - first);
    piece.resize(count * set.image_bytes);
    for (std::uint64_t i = 0; i < count; ++i) {
      const std::span<std::uint8_t> pixels =
          std::span(piece).subspan(i * set.image_bytes, set.image_bytes);
      TRY(set.read(first + i, pixels));
    }
    TRY(take(first * set.image_bytes, piece));
  }
  return {};
}

void ImageFeed::take(const Batch& batch) {
  if (batch.id == 0 || batch.id != brought_) {
    bring(batch);
  }
  brought_ = 0;
  calls_.hand_over(batch.images.size_bytes());
}

void ImageFeed::bring_expected() {
  if (expected_.has_value()) {
    bring(*expected_);
    brought_ = expected_->id;
    expected_.reset();
  }
}

void ImageFeed::bring(const Batch& batch) {
  calls_.await_upload(next_);
  std::ranges::copy(batch.images, calls_.pinned(next_));
  calls_.upload(next_, batch.images.size_bytes());
  next_ = 1 - next_;
}

}  // namespace mayfly::nn::cuda
