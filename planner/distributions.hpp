#pragma once

// The two kinds of distributions that models return and from which a simulated job draws: amounts
// of time, as a table of quantiles, and lifetimes, as a table of cumulative hazard by age. Both can
// be constructed from fitted models, measured values or invented truths. Immutable values; any
// thread. Pure.

#include <array>
#include <limits>
#include <span>
#include <vector>

namespace mayfly::planner {

/// A time that never comes.
inline constexpr double kNever = std::numeric_limits<double>::infinity();

/// Values at evenly spaced quantiles from 0 to 1; linear in between. One value is a constant.
class QuantileTable {
 public:
  QuantileTable() : QuantileTable(std::vector<double>{0}) {}
  /// `values`: at least one, finite, not negative, ascending.
  explicit QuantileTable(std::vector<double> values);
  /// The empirical distribution of `samples`, in any order.
  [[nodiscard]] static QuantileTable of_samples(std::vector<double> samples);

  /// `u` in [0, 1].
  [[nodiscard]] double quantile(double u) const;
  [[nodiscard]] double mean() const;
  /// All values times `factor`, which is not negative.
  [[nodiscard]] QuantileTable scaled(double factor) const;

 private:
  std::vector<double> values_;
};

/// Factors on a hazard by the hour of the day.
using HourFactors = std::array<double, 24>;

/// How long a server lives, in seconds from running. The hazard is constant between two knots and
/// after the last one; a server that reaches the cap ends there. Without knots it lives for ever.
class LifetimeTable {
 public:
  struct Knot {
    double age_s = 0;
    double hazard = 0;  ///< cumulative: -log of the share that lives longer

    friend bool operator==(const Knot&, const Knot&) = default;
  };

  LifetimeTable() = default;
  /// `knots` begin after age 0 with ascending ages and a hazard that does not decrease.
  explicit LifetimeTable(std::vector<Knot> knots, double cap_s = kNever);
  /// A constant hazard.
  [[nodiscard]] static LifetimeTable exponential(double mean_s);
  /// From a fitted curve: the share of servers that live longer than each age. Shares below 1e-9
  /// count as 1e-9. Of the hazard up to the first age beyond the cap, the part up to the cap
  /// counts.
  [[nodiscard]] static LifetimeTable of_survival(std::span<const double> ages_s,
                                                 std::span<const double> survival,
                                                 double cap_s = kNever);

  [[nodiscard]] double cap() const { return cap_s_; }
  [[nodiscard]] const std::vector<Knot>& knots() const { return knots_; }
  /// Cumulative hazard until that age, without the end at the cap.
  [[nodiscard]] double hazard(double age_s) const;
  /// Share of the servers that live longer; 0 from the cap on.
  [[nodiscard]] double survival(double age_s) const;
  /// Mean age in seconds at the end of a server that lives at `age_s`, which is below the cap;
  /// kNever if some never end.
  [[nodiscard]] double mean(double age_s = 0) const;
  /// The age at the end of a server that lives at `age_s`, for a uniform `u` in [0, 1), if the
  /// hazard is `factor` times that of the table; kNever if it never ends.
  [[nodiscard]] double sample(double u, double age_s = 0, double factor = 1) const;
  /// As sample(), if the hazard also has a factor by the hour of the day; the server began to run
  /// at `clock_s`, in seconds since a midnight.
  [[nodiscard]] double sample_by_hour(double u, double age_s, double factor, double clock_s,
                                      const HourFactors& hours) const;
  /// A hazard of `factor` times this one; the cap stays.
  [[nodiscard]] LifetimeTable scaled(double factor) const;

  friend bool operator==(const LifetimeTable&, const LifetimeTable&) = default;

 private:
  [[nodiscard]] double last_rate() const;
  [[nodiscard]] double age_at(double hazard) const;

  std::vector<Knot> knots_;
  double cap_s_ = kNever;
};

}  // namespace mayfly::planner
