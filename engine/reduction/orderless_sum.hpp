#pragma once

#include <cstdint>

namespace mayfly::engine {

/// A sum of doubles, such as the losses of an evaluation, that does not depend on the order of its
/// terms. Each term is rounded to a multiple of 2^-20.
struct OrderlessSum {
  std::int64_t whole = 0;
  std::int64_t fraction = 0;  ///< in units of 2^-20
  std::int64_t misfits = 0;   ///< terms that are infinite, not a number, or beyond 2^52

  void add(double term);
  void add(const OrderlessSum& part);
  /// The sum; not a number if there are misfits.
  [[nodiscard]] double total() const;
};

}  // namespace mayfly::engine
