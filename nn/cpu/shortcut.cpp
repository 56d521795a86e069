#include "nn/cpu/shortcut.hpp"

#include <algorithm>
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

DownsamplingShortcut::DownsamplingShortcut(const BlockedShape& from, std::size_t from_width)
    : from_(from), to_(from), from_width_(from_width) {
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
          visit(offset(from_, n, c, 2 * row * from_width_ + 2 * column),
                offset(to_, n, c + padding, row * to_width + column), run);
        }
      }
    }
  }
}

void DownsamplingShortcut::forward(const float* x, float* out) const {
  std::fill_n(out, to_.elements(), 0.0F);
  for_each_run([&](std::size_t from, std::size_t to, std::size_t run) {
    std::copy_n(x + from, run, out + to);
  });
}

void DownsamplingShortcut::backward(const float* out_gradient, float* x_gradient) const {
  std::fill_n(x_gradient, from_.elements(), 0.0F);
  for_each_run([&](std::size_t from, std::size_t to, std::size_t run) {
    std::copy_n(out_gradient + to, run, x_gradient + from);
  });
}

}  // namespace mayfly::nn::cpu
