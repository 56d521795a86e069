#pragma once

// Counter-based random numbers: the value is a pure function of (key, counter), so any worker can
// compute the draw of any sample without having made the draws before it. Keys are split by number
// or by name. Same values on every machine; not for cryptography.

#include <cstdint>
#include <string_view>

namespace mayfly {

/// A bijective 64-bit mixer (the finaliser of SplitMix64: Steele, Lea, Flood, OOPSLA 2014).
[[nodiscard]] constexpr std::uint64_t mix64(std::uint64_t x) {
  x += 0x9e3779b97f4a7c15ULL;
  x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9ULL;
  x = (x ^ (x >> 27)) * 0x94d049bb133111ebULL;
  return x ^ (x >> 31);
}

/// A key from which independent streams and draws are derived.
class CounterRandom {
 public:
  explicit constexpr CounterRandom(std::uint64_t seed) : key_(mix64(seed)) {}

  /// An independent generator for the sub-purpose `tag`.
  [[nodiscard]] constexpr CounterRandom split(std::uint64_t tag) const {
    return CounterRandom(key_ ^ mix64(tag ^ 0x6d61'7966'6c79'0001ULL));
  }
  /// The same, by name; the name is hashed with 64-bit FNV-1a.
  [[nodiscard]] constexpr CounterRandom split(std::string_view name) const {
    std::uint64_t hash = 0xcbf29ce484222325ULL;
    for (const char c : name) {
      hash = (hash ^ static_cast<unsigned char>(c)) * 0x100000001b3ULL;
    }
    return split(hash);
  }

  /// 64 uniform bits for draw number `counter`.
  [[nodiscard]] constexpr std::uint64_t bits(std::uint64_t counter) const {
    return mix64(key_ ^ mix64(counter));
  }
  /// A number in [0, bound), bound > 0. The bias is below bound / 2^64.
  [[nodiscard]] constexpr std::uint64_t below(std::uint64_t counter, std::uint64_t bound) const {
    __extension__ using Wide = unsigned __int128;
    return static_cast<std::uint64_t>((static_cast<Wide>(bits(counter)) * bound) >> 64);
  }
  /// A number in [0, 1) with 53 random bits.
  [[nodiscard]] constexpr double unit(std::uint64_t counter) const {
    return static_cast<double>(bits(counter) >> 11) * 0x1.0p-53;
  }

 private:
  std::uint64_t key_;
};

/// Draws one after the other from a CounterRandom, where the order of draws is fixed by the code.
class RandomStream {
 public:
  explicit constexpr RandomStream(CounterRandom source) : source_(source) {}
  constexpr std::uint64_t bits() { return source_.bits(counter_++); }
  constexpr std::uint64_t below(std::uint64_t bound) { return source_.below(counter_++, bound); }
  constexpr double unit() { return source_.unit(counter_++); }

 private:
  CounterRandom source_;
  std::uint64_t counter_ = 0;
};

}  // namespace mayfly
