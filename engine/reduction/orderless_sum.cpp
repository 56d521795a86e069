#include "engine/reduction/orderless_sum.hpp"

#include <cmath>
#include <limits>

namespace mayfly::engine {
namespace {

constexpr int kFractionBits = 20;
constexpr double kLargestTerm = 1LL << 52;  // so that two thousand of them fit

}  // namespace

void OrderlessSum::add(double term) {
  if (std::abs(term) <= kLargestTerm) {  // false if the term is not a number
    const double below = std::floor(term);
    whole += static_cast<std::int64_t>(below);
    fraction += std::llround(std::ldexp(term - below, kFractionBits));
  } else {
    ++misfits;
  }
}

void OrderlessSum::add(const OrderlessSum& part) {
  whole += part.whole;
  fraction += part.fraction;
  misfits += part.misfits;
}

double OrderlessSum::total() const {
  return misfits > 0 ? std::numeric_limits<double>::quiet_NaN()
                     : static_cast<double>(whole) +
                           std::ldexp(static_cast<double>(fraction), -kFractionBits);
}

}  // namespace mayfly::engine
