#include "datasets/core/photograph.hpp"

#include <algorithm>

#include "base/check.hpp"
#include "base/random.hpp"
#include "datasets/core/shape_paint.hpp"

namespace mayfly::datasets {
namespace {

constexpr float kLargest = 3.0F;   // times the usual side
constexpr float kSmallest = 0.3F;  // of it
constexpr int kShorterSideMin = 16;

// The longer side. Few are much larger than usual: the cube of a uniform number is mostly small.
float draw_longer_side(RandomStream& random, float usual) {
  const std::uint64_t kind = random.below(10);
  const float u = uniform(random, 0.0F, 1.0F);
  if (kind < 7) {
    return usual;
  }
  return kind < 9 ? usual * (1.0F - (1.0F - kSmallest) * u)
                  : usual * (1.0F + (kLargest - 1.0F) * u * u * u);
}

// The longer side divided by the shorter one: the ratios of cameras, squares, and cut-outs.
float draw_aspect_ratio(RandomStream& random) {
  const std::uint64_t kind = random.below(10);
  const float u = uniform(random, 1.0F, 2.0F);
  return kind < 5 ? 4.0F / 3.0F : kind < 7 ? 1.5F : kind < 8 ? 1.0F : u;
}

void draw_size(RandomStream& random, int side, Photograph& photograph) {
  const float longer = draw_longer_side(random, static_cast<float>(side));
  const float shorter = longer / draw_aspect_ratio(random);
  const auto rounded = [](float v) {
    return std::max(kShorterSideMin, static_cast<int>(v + 0.5F));
  };
  photograph.width = rounded(longer);
  photograph.height = rounded(shorter);
  if (random.below(4) == 0) {
    std::swap(photograph.width, photograph.height);
  }
}

}  // namespace

Photograph render_photograph(std::uint64_t seed, ShapePart part, std::uint64_t index, int side) {
  ENSURE(side >= kPhotographSideMin && side <= kPhotographSideMax, "a size of photographs");
  RandomStream random(
      CounterRandom(seed).split("photograph").split(static_cast<std::uint64_t>(part)).split(index));
  Photograph photograph;
  photograph.label = shape_label(index);
  draw_size(random, side, photograph);
  photograph.quality = 85 + static_cast<int>(random.below(11));
  Canvas canvas{photograph.width, photograph.height, {}};
  std::vector<float> values(3 * canvas.pixels());
  for (std::size_t c = 0; c < 3; ++c) {
    canvas.channels[c] = std::span(values).subspan(c * canvas.pixels(), canvas.pixels());
  }
  const Colour background = paint_background(canvas, random);
  const std::uint64_t behind = 2 + random.below(8);
  for (std::uint64_t i = 0; i < behind; ++i) {
    paint_clutter(canvas, random);
  }
  paint_main(canvas, random, photograph.label, background);
  const std::uint64_t before = random.below(3);
  for (std::uint64_t i = 0; i < before; ++i) {
    paint_clutter(canvas, random);
  }
  // Noise decides how many bytes the JPEG has; few photographs have much of it.
  const float u = uniform(random, 0.0F, 1.0F);
  photograph.pixels.resize(values.size());
  finish_picture(canvas, random, 0.03F + 0.25F * u * u, PixelLayout(), photograph.pixels);
  return photograph;
}

}  // namespace mayfly::datasets
