#pragma once

// exp and log with the same bits on every machine: the C library picks variants by CPU and changes
// them between releases. Only IEEE additions, multiplications and divisions are used here; compile
// without contraction (-ffp-contract=off). Relative error below 1e-15, checked in tests.

#include <bit>
#include <cstdint>

namespace mayfly {

/// e^x for x <= 0 (values below 2^-1000 become 0; NaN stays NaN).
[[nodiscard]] constexpr double portable_exp(double x) {
  constexpr double kLog2E = 1.44269504088896340736;
  constexpr double kLn2High = 6.93147180369123816490e-01;  // 33 bits, so that k * it is exact
  constexpr double kLn2Low = 1.90821492927058770002e-10;
  if (x != x) {
    return x;
  }
  if (x < -690.0) {
    return 0.0;
  }
  const auto k = static_cast<std::int64_t>(x * kLog2E - 0.5);
  const double r = (x - static_cast<double>(k) * kLn2High) - static_cast<double>(k) * kLn2Low;
  double sum = 1.0;
  for (int i = 14; i >= 1; --i) {
    sum = 1.0 + sum * r / static_cast<double>(i);
  }
  return sum * std::bit_cast<double>(static_cast<std::uint64_t>(k + 1023) << 52);
}

/// ln x for finite x >= 1 (NaN and infinity stay what they are).
[[nodiscard]] constexpr double portable_log(double x) {
  constexpr double kLn2 = 0.693147180559945309417;
  constexpr double kSqrt2 = 1.41421356237309504880;
  constexpr std::uint64_t kMantissa = (std::uint64_t{1} << 52) - 1;
  constexpr std::uint64_t kOne = std::uint64_t{1023} << 52;
  if (x != x || x > 1.7976931348623157e308) {
    return x;
  }
  const auto bits = std::bit_cast<std::uint64_t>(x);
  double exponent = static_cast<double>(static_cast<std::int64_t>(bits >> 52) - 1023);
  double m = std::bit_cast<double>((bits & kMantissa) | kOne);
  if (m > kSqrt2) {
    m *= 0.5;
    exponent += 1.0;
  }
  const double s = (m - 1.0) / (m + 1.0);
  double sum = 0.0;
  for (int i = 23; i >= 1; i -= 2) {
    sum = sum * s * s + 1.0 / static_cast<double>(i);
  }
  return exponent * kLn2 + 2.0 * s * sum;
}

}  // namespace mayfly
