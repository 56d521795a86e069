#include "datasets/core/sample_stream.hpp"

#include "base/check.hpp"
#include "base/random.hpp"

namespace mayfly::datasets {
namespace {

constexpr std::uint64_t kRounds = 6;

std::uint64_t ceil_sqrt(std::uint64_t n) {
  std::uint64_t low = 0;
  std::uint64_t high = std::uint64_t{1} << 31;
  while (low < high) {
    const std::uint64_t middle = (low + high) / 2;
    if (middle * middle >= n) {
      high = middle;
    } else {
      low = middle + 1;
    }
  }
  return low;
}

// One epoch's permutation of [0, a * b), seen as pairs (left < a, right < b). Even rounds shift the
// left half by a keyed function of the right one, odd rounds the other way round; each is undone by
// the opposite shift, whatever the function, so the whole is a bijection.
class Feistel {
 public:
  Feistel(std::uint64_t seed, std::uint64_t epoch, std::uint64_t a, std::uint64_t b)
      : key_(CounterRandom(seed).split("sample stream").split(epoch)), a_(a), b_(b) {}

  [[nodiscard]] std::uint64_t forward(std::uint64_t x) const {
    std::uint64_t left = x / b_;
    std::uint64_t right = x % b_;
    for (std::uint64_t round = 0; round < kRounds; round += 2) {
      left = (left + shift(round, right, a_)) % a_;
      right = (right + shift(round + 1, left, b_)) % b_;
    }
    return left * b_ + right;
  }

  [[nodiscard]] std::uint64_t backward(std::uint64_t y) const {
    std::uint64_t left = y / b_;
    std::uint64_t right = y % b_;
    for (std::uint64_t round = kRounds; round > 0; round -= 2) {
      right = (right + b_ - shift(round - 1, left, b_)) % b_;
      left = (left + a_ - shift(round - 2, right, a_)) % a_;
    }
    return left * b_ + right;
  }

 private:
  [[nodiscard]] std::uint64_t shift(std::uint64_t round, std::uint64_t half,
                                    std::uint64_t bound) const {
    return key_.below((round << 32) | half, bound);
  }

  CounterRandom key_;
  std::uint64_t a_;
  std::uint64_t b_;
};

}  // namespace

SampleStream::SampleStream(std::uint64_t seed, std::uint64_t sample_count)
    : seed_(seed), sample_count_(sample_count) {
  ENSURE(sample_count > 0, "a stream needs samples");
  ENSURE(sample_count <= kSamplesMax, "halves of a position must fit 32 bits");
  left_ = ceil_sqrt(sample_count);
  right_ = (sample_count + left_ - 1) / left_;
}

StreamEntry SampleStream::at(std::uint64_t position) const {
  const std::uint64_t epoch = position / sample_count_;
  const Feistel feistel(seed_, epoch, left_, right_);
  // Cycle-walking: fewer than one in sqrt(N) points of the a x b rectangle lie outside [0, N), and
  // a walk along the permutation's cycle always comes back.
  std::uint64_t sample = feistel.forward(position % sample_count_);
  while (sample >= sample_count_) {
    sample = feistel.forward(sample);
  }
  return {epoch, sample};
}

std::uint64_t SampleStream::position_of(std::uint64_t epoch, std::uint64_t sample) const {
  ENSURE(sample < sample_count_, "the sample is in the data set");
  const Feistel feistel(seed_, epoch, left_, right_);
  std::uint64_t place = feistel.backward(sample);
  while (place >= sample_count_) {
    place = feistel.backward(place);
  }
  return epoch * sample_count_ + place;
}

std::uint64_t SampleStream::next_use(std::uint64_t position, std::uint64_t sample) const {
  const std::uint64_t epoch = position / sample_count_;
  const std::uint64_t in_this = position_of(epoch, sample);
  return in_this >= position ? in_this : position_of(epoch + 1, sample);
}

}  // namespace mayfly::datasets
