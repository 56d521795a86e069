#pragma once

#include <cstdint>

namespace mayfly::engine {

/// A sum of some doubles, such as the losses of an evaluation, that is the same in any order of its
/// terms, each rounded to 2^-20.
struct OrderlessSum {
  std::int64_t whole = 0;
  std::int64_t fraction = 0;  ///< in units of 2^-20
  std::int64_t misfits = 0;   ///< terms that are infinite, not a number, or beyond 2^52

  void add(double term);
  void add(const OrderlessSum& part);
  /// Not a number if a term had no place in the sum.
  [[nodiscard]] double total() const;
};

}  // namespace mayfly::engine
