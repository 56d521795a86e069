#pragma once

#include <cstdint>

namespace mayfly::datasets {

/// The sample at a position of the stream.
struct StreamEntry {
  std::uint64_t epoch = 0;   ///< pass over the data set, from 0
  std::uint64_t sample = 0;  ///< index into the data set
};

/// The endless order of samples: position p is sample perm(seed, p div N, p mod N), with perm a
/// keyed bijection of [0, N) computed in O(1) (generalised Feistel network on a x b >= N, 6 rounds,
/// cycle-walking: Black and Rogaway, "Ciphers with arbitrary finite domains", CT-RSA 2002). The
/// whole state of the data order is therefore the position.
class SampleStream {
 public:
  static constexpr std::uint64_t kSamplesMax = std::uint64_t{1} << 62;

  /// `sample_count` from 1 to kSamplesMax.
  SampleStream(std::uint64_t seed, std::uint64_t sample_count);

  [[nodiscard]] StreamEntry at(std::uint64_t position) const;
  /// The inverse: the position at which `epoch` uses `sample`.
  [[nodiscard]] std::uint64_t position_of(std::uint64_t epoch, std::uint64_t sample) const;
  /// The first position from `position` on at which the stream uses the sample.
  [[nodiscard]] std::uint64_t next_use(std::uint64_t position, std::uint64_t sample) const;
  [[nodiscard]] std::uint64_t sample_count() const { return sample_count_; }

 private:
  std::uint64_t seed_;
  std::uint64_t sample_count_;
  std::uint64_t left_;   // a
  std::uint64_t right_;  // b, a * b >= N
};

}  // namespace mayfly::datasets
