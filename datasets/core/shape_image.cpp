#include "datasets/core/shape_image.hpp"

#include <algorithm>
#include <array>
#include <cmath>

#include "base/check.hpp"
#include "base/random.hpp"

namespace mayfly::datasets {
namespace {

constexpr int kSize = kShapeImageSize;
constexpr std::size_t kPixels = kSize * kSize;

struct Point {
  float x = 0;
  float y = 0;
};

using Colour = std::array<float, 3>;
using Canvas = std::array<std::array<float, kPixels>, 3>;

float uniform(RandomStream& random, float low, float high) {
  return low + (high - low) * static_cast<float>(random.unit());
}

// A direction uniform on the circle, by rejection, because sine and cosine differ between libraries
// and square root does not.
Point direction(RandomStream& random) {
  for (;;) {
    const Point p{uniform(random, -1.0F, 1.0F), uniform(random, -1.0F, 1.0F)};
    const float square = p.x * p.x + p.y * p.y;
    if (square > 0.01F && square <= 1.0F) {
      const float length = std::sqrt(square);
      return {p.x / length, p.y / length};
    }
  }
}

Colour colour(RandomStream& random) {
  return {uniform(random, 0.0F, 1.0F), uniform(random, 0.0F, 1.0F), uniform(random, 0.0F, 1.0F)};
}

// A colour that is distinguishable from `other`, randomly lighter or darker, so that neither
// brightness nor colour gives information about the class.
Colour contrasting_colour(RandomStream& random, const Colour& other) {
  for (;;) {
    const Colour candidate = colour(random);
    float difference = 0;
    for (std::size_t c = 0; c < 3; ++c) {
      difference += std::abs(candidate[c] - other[c]);
    }
    if (difference >= 1.0F) {
      return candidate;
    }
  }
}

// ---- shapes: signed distance (negative inside) in a frame where the shape has a radius of about 1

float length(Point p) {
  return std::sqrt(p.x * p.x + p.y * p.y);
}
float disc(Point p) {
  return length(p) - 0.8F;
}
float ring(Point p) {
  return std::abs(length(p) - 0.68F) - 0.2F;
}
float square(Point p) {
  return std::max(std::abs(p.x), std::abs(p.y)) - 0.7F;
}
float frame(Point p) {
  return std::abs(std::max(std::abs(p.x), std::abs(p.y)) - 0.62F) - 0.17F;
}
float bar(Point p) {
  return std::max(std::abs(p.x) - 0.95F, std::abs(p.y) - 0.25F);
}

float triangle(Point p) {
  return std::max(-p.y, 0.5F * p.y + 0.8660254F * std::abs(p.x)) - 0.5F;
}

float cross(Point p) {
  const float x = std::abs(p.x);
  const float y = std::abs(p.y);
  return std::min(std::max(x - 0.95F, y - 0.26F), std::max(x - 0.26F, y - 0.95F));
}

// Five tips: mirrored into the sector of one half tip, the outline is a single straight edge, from
// the tip (0, 1) to the notch at 36 degrees and radius 0.42.
float star(Point p) {
  constexpr Point kMirrors[2] = {{0.80901699F, -0.58778525F}, {-0.80901699F, -0.58778525F}};
  p.x = std::abs(p.x);
  for (const Point mirror : kMirrors) {
    const float side = std::max(mirror.x * p.x + mirror.y * p.y, 0.0F);
    p.x -= 2.0F * side * mirror.x;
    p.y -= 2.0F * side * mirror.y;
  }
  constexpr Point kNormal{0.93666000F, 0.35024020F};  // of that edge, outwards
  return kNormal.x * std::abs(p.x) + kNormal.y * (p.y - 1.0F);
}

float crescent(Point p) {
  return std::max(length(p) - 0.85F, 0.72F - length({p.x - 0.45F, p.y}));
}

float stripes(Point p) {
  const float y = std::abs(p.y);
  return std::max(std::min(std::abs(y - 0.64F), y) - 0.17F, std::abs(p.x) - 0.85F);
}

// ---- painting

struct Placement {
  Point centre;
  Point axis;           // unit vector of the shape's x axis
  float scale = 1;      // pixels per unit of the shape's frame
  float reach = 1.25F;  // no part of the shape is farther from the centre, in its own units
};

// Mixes `paint` into the canvas where distance(p) is negative, with an edge one pixel wide.
template <typename Distance>
void paint_shape(Canvas& canvas, const Placement& at, const Colour& paint, Distance distance) {
  const float reach = at.reach * at.scale + 1.0F;
  const auto edge = [](float v) { return static_cast<int>(std::clamp(v, 0.0F, float{kSize})); };
  const int left = edge(at.centre.x - reach);
  const int right = edge(at.centre.x + reach);
  const float per_pixel = 1.0F / at.scale;
  for (int y = edge(at.centre.y - reach); y < edge(at.centre.y + reach); ++y) {
    const float dy = (static_cast<float>(y) + 0.5F - at.centre.y) * per_pixel;
    for (int x = left; x < right; ++x) {
      const float dx = (static_cast<float>(x) + 0.5F - at.centre.x) * per_pixel;
      const Point local{dx * at.axis.x + dy * at.axis.y, dy * at.axis.x - dx * at.axis.y};
      const float cover = std::clamp(0.5F - distance(local) * at.scale, 0.0F, 1.0F);
      const auto pixel = static_cast<std::size_t>(y * kSize + x);
      for (std::size_t c = 0; c < 3; ++c) {
        canvas[c][pixel] += (paint[c] - canvas[c][pixel]) * cover;
      }
    }
  }
}

void paint_class(Canvas& canvas, int label, const Placement& at, const Colour& paint) {
  switch (label) {
    case 0: return paint_shape(canvas, at, paint, disc);
    case 1: return paint_shape(canvas, at, paint, ring);
    case 2: return paint_shape(canvas, at, paint, square);
    case 3: return paint_shape(canvas, at, paint, frame);
    case 4: return paint_shape(canvas, at, paint, triangle);
    case 5: return paint_shape(canvas, at, paint, cross);
    case 6: return paint_shape(canvas, at, paint, star);
    case 7: return paint_shape(canvas, at, paint, bar);
    case 8: return paint_shape(canvas, at, paint, crescent);
    case 9: return paint_shape(canvas, at, paint, stripes);
    default: UNREACHABLE("there are ten classes");
  }
}

// A gradient between two similar colours. Returns the first.
Colour paint_background(Canvas& canvas, RandomStream& random) {
  const Colour from = colour(random);
  const Point along = direction(random);
  Colour slope;
  for (float& s : slope) {
    s = uniform(random, -0.3F, 0.3F) / static_cast<float>(kSize);
  }
  for (std::size_t pixel = 0; pixel < kPixels; ++pixel) {
    const float x = static_cast<float>(pixel % kSize) - 0.5F * kSize;
    const float y = static_cast<float>(pixel / kSize) - 0.5F * kSize;
    const float way = x * along.x + y * along.y;
    for (std::size_t c = 0; c < 3; ++c) {
      canvas[c][pixel] = from[c] + slope[c] * way;
    }
  }
  return from;
}

// A short stroke or a small blob of any colour, anywhere.
void paint_clutter(Canvas& canvas, RandomStream& random) {
  Placement at;
  at.centre = {uniform(random, 0.0F, kSize), uniform(random, 0.0F, kSize)};
  at.axis = direction(random);
  const bool stroke = random.below(2) == 0;
  const float size = stroke ? uniform(random, 2.0F, 5.0F) : uniform(random, 0.8F, 2.0F);
  const Colour paint = colour(random);
  at.reach = size + 1.0F;
  if (stroke) {
    paint_shape(canvas, at, paint,
                [size](Point p) { return std::max(std::abs(p.x) - size, std::abs(p.y) - 0.7F); });
  } else {
    paint_shape(canvas, at, paint, [size](Point p) { return length(p) - size; });
  }
}

void paint_main(Canvas& canvas, RandomStream& random, int label, const Colour& background) {
  Placement at;
  at.centre = {uniform(random, 11.0F, 21.0F), uniform(random, 11.0F, 21.0F)};
  at.axis = direction(random);
  at.scale = uniform(random, 8.0F, 11.5F);
  paint_class(canvas, label, at, contrasting_colour(random, background));
}

// Uniform noise, of an amplitude drawn per image, and rounding to bytes. One draw serves the three
// channels of a pixel.
void finish(const Canvas& canvas, RandomStream& random, std::span<std::uint8_t> pixels) {
  const float amplitude = uniform(random, 0.02F, 0.10F) / 32768.0F;
  for (std::size_t pixel = 0; pixel < kPixels; ++pixel) {
    const std::uint64_t bits = random.bits();
    for (std::size_t c = 0; c < 3; ++c) {
      const auto draw = static_cast<std::int32_t>((bits >> (16 * c)) & 0xffffU) - 32768;
      const float noisy = canvas[c][pixel] + static_cast<float>(draw) * amplitude;
      pixels[c * kPixels + pixel] =
          static_cast<std::uint8_t>(std::clamp(noisy * 255.0F + 0.5F, 0.0F, 255.0F));
    }
  }
}

}  // namespace

void render_shape_image(std::uint64_t seed, ShapePart part, std::uint64_t index,
                        std::span<std::uint8_t> pixels) {
  ENSURE(pixels.size() == 3 * kPixels, "an image is 3 x 32 x 32");
  RandomStream random(CounterRandom(seed)
                          .split("shape image")
                          .split(static_cast<std::uint64_t>(part))
                          .split(index));
  Canvas canvas;
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
  finish(canvas, random, pixels);
}

}  // namespace mayfly::datasets
