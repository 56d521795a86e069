#include "nn/cpu/shortcut.hpp"

#include <cstring>
#include <numeric>

namespace mayfly::nn::cpu {
namespace {

std::size_t offset(const BlockedShape& shape, std::size_t image, std::size_t channel,
                   std::size_t pixel) {
  const std::size_t blocks = shape.channels / shape.block;
  const std::size_t plane = image * blocks + channel / shape.block;
  return (plane * shape.pixels + pixel) * shape.block + channel % shape.block;
}

}  // namespace

DownsamplingShortcut::DownsamplingShortcut(const BlockedShape& from, std::size_t from_width,
                                           Dtype dtype)
    : from_(from), to_(from), from_width_(from_width), element_bytes_(bytes_of(dtype)) {
  const std::size_t to_width = (from_width + 1) / 2;
  to_.channels = 2 * from.channels;
  to_.pixels = to_width * to_width;
}

template <typename Visit>
void DownsamplingShortcut::for_each_run(const Visit& visit) const {
  const std::size_t padding = (to_.channels - from_.channels) / 2;
  // The padding may shift channels by half a block; runs of this length never cross a block's
  // border on either side.
  const std::size_t run = std::gcd(padding, from_.block);
  const std::size_t to_width = (from_width_ + 1) / 2;
  for (std::size_t n = 0; n < from_.images; ++n) {
    for (std::size_t c = 0; c < from_.channels; c += run) {
      for (std::size_t row = 0; row < to_width; ++row) {
        for (std::size_t column = 0; column < to_width; ++column) {
          visit(offset(from_, n, c, 2 * row * from_width_ + 2 * column) * element_bytes_,
                offset(to_, n, c + padding, row * to_width + column) * element_bytes_,
                run * element_bytes_);
        }
      }
    }
  }
}

void DownsamplingShortcut::forward(const void* x, void* out) const {
  std::memset(out, 0, to_.elements() * element_bytes_);
  for_each_run([&](std::size_t from, std::size_t to, std::size_t bytes) {
    std::memcpy(static_cast<std::byte*>(out) + to, static_cast<const std::byte*>(x) + from, bytes);
  });
}

void DownsamplingShortcut::backward(const void* out_gradient, void* x_gradient) const {
  std::memset(x_gradient, 0, from_.elements() * element_bytes_);
  for_each_run([&](std::size_t from, std::size_t to, std::size_t bytes) {
    std::memcpy(static_cast<std::byte*>(x_gradient) + from,
                static_cast<const std::byte*>(out_gradient) + to, bytes);
  });
}

}  // namespace mayfly::nn::cpu
