#pragma once

// Imitates the copying of images to a device. Its memory is ordinary memory. Copies are made as
// late as the order of streams and events allows, as they may be on a GPU.

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstring>
#include <optional>
#include <vector>

#include "base/check.hpp"
#include "nn/cuda/image_source.hpp"

namespace mayfly::nn::cuda {

class HostFeed final : public FeedCalls {
 public:
  explicit HostFeed(std::size_t floats) : waiting_(floats), images_(floats) {
    pinned_.fill(std::vector<float>(floats));
  }

  float* pinned(std::size_t which) override { return pinned_[which].data(); }
  void await_upload(std::size_t which) override {
    if (upload_.has_value() && upload_->which == which) {
      copy_now();
    }
  }
  void upload(std::size_t which, std::size_t bytes) override {
    copy_now();
    upload_ = Upload{which, bytes};
  }
  void hand_over(std::size_t bytes) override {
    copy_now();
    std::memcpy(images_.data(), waiting_.data(), bytes);
  }

  [[nodiscard]] const std::vector<float>& images() const { return images_; }

 private:
  struct Upload {
    std::size_t which = 0;
    std::size_t bytes = 0;
  };

  void copy_now() {
    if (upload_.has_value()) {
      ENSURE(upload_->bytes <= waiting_.size() * sizeof(float), "images of one microbatch");
      std::memcpy(waiting_.data(), pinned_[upload_->which].data(), upload_->bytes);
      upload_.reset();
    }
  }

  std::array<std::vector<float>, 2> pinned_;
  std::vector<float> waiting_, images_;
  std::optional<Upload> upload_;  // a copy that is on its stream but not carried out yet
};

}  // namespace mayfly::nn::cuda
