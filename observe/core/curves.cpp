#include "observe/core/curves.hpp"

#include <algorithm>
#include <bit>
#include <cmath>
#include <limits>

namespace mayfly::observe {
namespace {

static_assert(std::endian::native == std::endian::little, "pack() writes the host's byte order");

constexpr float kNone = std::numeric_limits<float>::quiet_NaN();

Bucket bucket_of(float value) {
  return std::isnan(value) ? Bucket{kNone, kNone, kNone, 0} : Bucket{value, value, value, 1};
}

Bucket joined_with(const Bucket& a, const Bucket& b) {
  if (a.count == 0 || b.count == 0) {
    return a.count == 0 ? b : a;
  }
  const double sum = double{a.mean} * a.count + double{b.mean} * b.count;
  return {std::min(a.min, b.min), std::max(a.max, b.max),
          static_cast<float>(sum / (a.count + b.count)), a.count + b.count};
}

template <typename T>
void append(std::string& bytes, T value) {
  bytes.append(reinterpret_cast<const char*>(&value), sizeof value);
}

}  // namespace

void Curves::push(const CurveRow& row) {
  const std::size_t index = times_.size();
  times_.push_back(row.t);
  steps_.push_back(row.step);
  for (std::size_t v = 0; v < kValues; ++v) {
    values_[v].push_back(row.values[v]);
    for (std::size_t level = 1; level <= kLevels; ++level) {
      std::vector<Bucket>& buckets = pyramid_[level - 1][v];
      const std::size_t at = index >> (2 * level);
      buckets.resize(at + 1);
      // Computed from the buckets below, not by adding the row, so that the bits are the same as
      // after truncate().
      buckets[at] = joined(level, v, at);
    }
  }
}

void Curves::truncate(std::size_t rows) {
  times_.resize(rows);
  steps_.resize(rows);
  for (std::size_t v = 0; v < kValues; ++v) {
    values_[v].resize(rows);
    for (std::size_t level = 1; level <= kLevels; ++level) {
      std::vector<Bucket>& buckets = pyramid_[level - 1][v];
      const std::size_t width = std::size_t{1} << (2 * level);
      buckets.resize((rows + width - 1) / width);
      if (!buckets.empty()) {
        buckets.back() = joined(level, v, buckets.size() - 1);
      }
    }
  }
}

CurveRow Curves::row(std::size_t row) const {
  CurveRow result{times_[row], steps_[row], {}};
  for (std::size_t v = 0; v < kValues; ++v) {
    result.values[v] = values_[v][row];
  }
  return result;
}

std::size_t Curves::first_at(std::uint32_t step) const {
  const auto found = std::lower_bound(steps_.begin(), steps_.end(), step);
  return static_cast<std::size_t>(found - steps_.begin());
}

std::size_t Curves::buckets(std::size_t level) const {
  const std::size_t width = std::size_t{1} << (2 * level);
  return (rows() + width - 1) / width;
}

Bucket Curves::bucket(std::size_t level, Value value, std::size_t index) const {
  const auto v = static_cast<std::size_t>(value);
  return level == 0 ? bucket_of(values_[v][index]) : pyramid_[level - 1][v][index];
}

std::size_t Curves::level_for(std::size_t buckets_max) const {
  std::size_t level = 0;
  while (level < kLevels && buckets(level) > buckets_max) {
    ++level;
  }
  return level;
}

std::size_t Curves::last_row_of(std::size_t level, std::size_t bucket) const {
  return std::min((bucket + 1) << (2 * level), rows()) - 1;
}

/// The bucket that the four buckets below it give, as far as they exist.
Bucket Curves::joined(std::size_t level, std::size_t value, std::size_t index) const {
  Bucket whole{kNone, kNone, kNone, 0};
  const std::size_t below = buckets(level - 1);
  for (std::size_t i = 4 * index; i < std::min(4 * index + 4, below); ++i) {
    whole = joined_with(whole, bucket(level - 1, static_cast<Value>(value), i));
  }
  return whole;
}

std::string Curves::pack(std::size_t level, std::size_t first, std::size_t count) const {
  const std::size_t end = std::min(first + count, buckets(level));
  std::string bytes;
  for (std::size_t i = first; i < end; ++i) {
    append(bytes, times_[last_row_of(level, i)]);
  }
  for (std::size_t i = first; i < end; ++i) {
    append(bytes, steps_[last_row_of(level, i)]);
  }
  for (std::size_t v = 0; v < kValues; ++v) {
    if (level == 0) {
      for (std::size_t i = first; i < end; ++i) {
        append(bytes, values_[v][i]);
      }
      continue;
    }
    for (float Bucket::*part : {&Bucket::min, &Bucket::max, &Bucket::mean}) {
      for (std::size_t i = first; i < end; ++i) {
        append(bytes, pyramid_[level - 1][v][i].*part);
      }
    }
    for (std::size_t i = first; i < end; ++i) {
      append(bytes, values_[v][last_row_of(level, i)]);
    }
  }
  return bytes;
}

}  // namespace mayfly::observe
