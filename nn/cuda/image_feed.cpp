#include "nn/cuda/image_feed.hpp"

#include <algorithm>

namespace mayfly::nn::cuda {

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
