#include "datasets/core/shape_image.hpp"

#include <array>

#include "base/check.hpp"
#include "base/random.hpp"
#include "datasets/core/shape_paint.hpp"

namespace mayfly::datasets {

void render_shape_image(std::uint64_t seed, ShapePart part, std::uint64_t index,
                        std::span<std::uint8_t> pixels) {
  constexpr std::size_t kPixels = std::size_t{kShapeImageSize} * kShapeImageSize;
  ENSURE(pixels.size() == 3 * kPixels, "an image is 3 x 32 x 32");
  RandomStream random(CounterRandom(seed)
                          .split("shape image")
                          .split(static_cast<std::uint64_t>(part))
                          .split(index));
  std::array<std::array<float, kPixels>, 3> values;
  Canvas canvas{kShapeImageSize, kShapeImageSize, {values[0], values[1], values[2]}};
  const Colour background = paint_background(canvas, random);
  const std::uint64_t behind = 1 + random.below(3);
  for (std::uint64_t i = 0; i < behind; ++i) {
    paint_clutter(canvas, random);
  }
  paint_main(canvas, random, shape_label(index), background);
  const std::uint64_t before = random.below(2);
  for (std::uint64_t i = 0; i < before; ++i) {
    paint_clutter(canvas, random);
  }
  const float amplitude = uniform(random, 0.02F, 0.10F);
  finish_picture(canvas, random, amplitude, {kPixels, 1}, pixels);
}

}  // namespace mayfly::datasets
