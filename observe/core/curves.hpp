#pragma once

// The curves of a run: one row per committed step, stored by column, with a detail pyramid above
// the rows. A bucket of level k covers 4^k rows and keeps their minimum, maximum and mean, so that
// a picture of any width reads as many buckets as it has pixels, and a single outlier is visible at
// every level. Pure; one thread at a time.

#include <array>
#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

namespace mayfly::observe {

/// The values of a row besides its time and step, in the order of the page (VALUES in store.js).
/// NaN stands for "not recorded".
enum class Value : std::size_t {
  kLoss,
  kAccuracy,
  kLearningRate,
  kImagesPerSecond,
  kWaitMs,
  kMembers,
  kEpoch,
};
inline constexpr std::size_t kValues = 7;

struct CurveRow {
  double t = 0;  ///< seconds on the job's time axis
  std::uint32_t step = 0;
  std::array<float, kValues> values{};
};

struct Bucket {
  float min = 0;
  float max = 0;
  float mean = 0;
  std::uint32_t count = 0;  ///< values that are numbers; 0: min, max and mean are NaN
};

class Curves {
 public:
  static constexpr std::size_t kLevels = 14;  ///< of the pyramid above the rows: 4^14 rows

  /// Appends a row.
  void push(const CurveRow& row);
  /// Removes the rows from index `rows` on.
  void truncate(std::size_t rows);

  [[nodiscard]] std::size_t rows() const { return times_.size(); }
  [[nodiscard]] double time(std::size_t row) const { return times_[row]; }
  [[nodiscard]] std::uint32_t step(std::size_t row) const { return steps_[row]; }
  [[nodiscard]] float value(Value value, std::size_t row) const {
    return values_[static_cast<std::size_t>(value)][row];
  }
  [[nodiscard]] CurveRow row(std::size_t row) const;
  /// The first row whose step is at least `step`; rows() if there is none. Steps must be ascending.
  [[nodiscard]] std::size_t first_at(std::uint32_t step) const;

  /// Buckets of a level; level 0 are the rows themselves.
  [[nodiscard]] std::size_t buckets(std::size_t level) const;
  [[nodiscard]] Bucket bucket(std::size_t level, Value value, std::size_t index) const;
  /// The finest level with at most `buckets_max` buckets.
  [[nodiscard]] std::size_t level_for(std::size_t buckets_max) const;

  /// The buckets from `first` on, at most `count`, as little-endian bytes for the page: the times
  /// of their last rows as 64-bit floats, the steps of these rows as 32-bit integers, then each
  /// value as 32-bit floats: one array on level 0, otherwise minima, maxima, means and the last
  /// rows' values.
  [[nodiscard]] std::string pack(std::size_t level, std::size_t first, std::size_t count) const;

 private:
  [[nodiscard]] std::size_t last_row_of(std::size_t level, std::size_t bucket) const;
  [[nodiscard]] Bucket joined(std::size_t level, std::size_t value, std::size_t index) const;

  std::vector<double> times_;
  std::vector<std::uint32_t> steps_;
  std::array<std::vector<float>, kValues> values_;
  std::array<std::array<std::vector<Bucket>, kValues>, kLevels> pyramid_;  // levels 1 to kLevels
};

}  // namespace mayfly::observe
