#include "datasets/core/shape_paint.hpp"

#include <algorithm>
#include <cmath>

#include "base/check.hpp"

namespace mayfly::datasets {
namespace {

constexpr float kUnits = 32.0F;  // in the shorter side

struct Point {
  float x = 0;
  float y = 0;
};

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

using Channels = std::array<float*, 3>;
Channels channels_of(const Canvas& canvas) {
  return {canvas.channels[0].data(), canvas.channels[1].data(), canvas.channels[2].data()};
}

// Everything but the pixels is passed by value, because as far as the compiler knows a reference
// might be to a pixel, and would have to be read again after each.
//
// Mixes `paint` into the canvas where distance(p) is negative, with an edge one pixel wide.
template <typename Distance>
void paint_shape(Canvas& canvas, const Placement at, const Colour paint, Distance distance) {
  const Channels channels = channels_of(canvas);
  const float reach = at.reach * at.scale + 1.0F;
  const auto edge = [](float v, int end) {
    return static_cast<int>(std::clamp(v, 0.0F, static_cast<float>(end)));
  };
  const int left = edge(at.centre.x - reach, canvas.width);
  const int right = edge(at.centre.x + reach, canvas.width);
  const int bottom = edge(at.centre.y + reach, canvas.height);
  const float per_pixel = 1.0F / at.scale;
  for (int y = edge(at.centre.y - reach, canvas.height); y < bottom; ++y) {
    const float dy = (static_cast<float>(y) + 0.5F - at.centre.y) * per_pixel;
    for (int x = left; x < right; ++x) {
      const float dx = (static_cast<float>(x) + 0.5F - at.centre.x) * per_pixel;
      const Point local{dx * at.axis.x + dy * at.axis.y, dy * at.axis.x - dx * at.axis.y};
      const float cover = std::clamp(0.5F - distance(local) * at.scale, 0.0F, 1.0F);
      const auto pixel = static_cast<std::size_t>(y * canvas.width + x);
      for (std::size_t c = 0; c < 3; ++c) {
        channels[c][pixel] += (paint[c] - channels[c][pixel]) * cover;
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

}  // namespace

float Canvas::unit() const {
  return static_cast<float>(std::min(width, height)) / kUnits;
}

float uniform(RandomStream& random, float low, float high) {
  return low + (high - low) * static_cast<float>(random.unit());
}

Colour paint_background(Canvas& canvas, RandomStream& random) {
  const Colour from = colour(random);
  const Point along = direction(random);
  const auto longer = static_cast<float>(std::max(canvas.width, canvas.height));
  Colour slope;
  for (float& s : slope) {
    s = uniform(random, -0.3F, 0.3F) / longer;
  }
  const Colour first = from;
  const Channels channels = channels_of(canvas);
  const int width = canvas.width;
  for (int row = 0; row < canvas.height; ++row) {
    const float y = static_cast<float>(row) - 0.5F * static_cast<float>(canvas.height);
    const std::size_t begin = static_cast<std::size_t>(row) * static_cast<std::size_t>(width);
    for (std::size_t c = 0; c < 3; ++c) {
      for (int column = 0; column < width; ++column) {
        const float x = static_cast<float>(column) - 0.5F * static_cast<float>(width);
        const float way = x * along.x + y * along.y;
        channels[c][begin + static_cast<std::size_t>(column)] = first[c] + slope[c] * way;
      }
    }
  }
  return from;
}

void paint_clutter(Canvas& canvas, RandomStream& random) {
  Placement at;
  at.centre.x = uniform(random, 0.0F, static_cast<float>(canvas.width));
  at.centre.y = uniform(random, 0.0F, static_cast<float>(canvas.height));
  at.axis = direction(random);
  at.scale = canvas.unit();
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
  const auto near_middle = [&random](int side) {
    const float away = uniform(random, 11.0F, 21.0F) - 0.5F * kUnits;
    return (0.5F + away / kUnits) * static_cast<float>(side);
  };
  at.centre.x = near_middle(canvas.width);
  at.centre.y = near_middle(canvas.height);
  at.axis = direction(random);
  at.scale = uniform(random, 8.0F, 11.5F) * canvas.unit();
  paint_class(canvas, label, at, contrasting_colour(random, background));
}

void finish_picture(const Canvas& canvas, RandomStream& random, float amplitude,
                    const PixelLayout& layout, std::span<std::uint8_t> bytes) {
  const float per_draw = amplitude / 32768.0F;
  // Copies, because as far as the compiler knows the bytes might be those of the canvas.
  const Channels from = channels_of(canvas);
  const std::array<std::uint8_t*, 3> to = {bytes.data(), bytes.data() + layout.channel_step,
                                           bytes.data() + 2 * layout.channel_step};
  RandomStream own = random;
  const std::size_t pixels = canvas.pixels();
  const std::size_t step = layout.pixel_step;
  for (std::size_t pixel = 0; pixel < pixels; ++pixel) {
    const std::uint64_t bits = own.bits();
    for (std::size_t c = 0; c < 3; ++c) {
      const auto draw = static_cast<std::int32_t>((bits >> (16 * c)) & 0xffffU) - 32768;
      const float noisy = from[c][pixel] + static_cast<float>(draw) * per_draw;
      to[c][pixel * step] =
          static_cast<std::uint8_t>(std::clamp(noisy * 255.0F + 0.5F, 0.0F, 255.0F));
    }
  }
  random = own;
}

}  // namespace mayfly::datasets
