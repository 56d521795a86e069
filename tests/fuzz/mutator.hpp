#pragma once

// Changes bytes as by accident or by an attacker. Deterministic: a seed identifies an input.

#include <algorithm>
#include <cstddef>
#include <vector>

#include "base/bytes.hpp"
#include "base/random.hpp"

namespace mayfly::fuzz {

class Mutator {
 public:
  explicit Mutator(RandomStream& random) : random_(random) {}

  /// Returns `bytes` with one to four changes. Parts of `other` may be inserted.
  [[nodiscard]] Bytes mutate(Bytes bytes, const Bytes& other) {
    for (std::uint64_t n = 1 + random_.below(4); n > 0; --n) {
      change(bytes, other);
    }
    return bytes;
  }

 private:
  void change(Bytes& bytes, const Bytes& other) {
    const std::size_t at = random_.below(bytes.size() + 1);
    const auto place = bytes.begin() + static_cast<std::ptrdiff_t>(at);
    const auto rest = static_cast<std::size_t>(bytes.end() - place);
    const auto some =
        static_cast<std::ptrdiff_t>(random_.below(std::min<std::size_t>(rest, 9) + 1));
    switch (random_.below(7)) {
      case 0:
        if (rest > 0) {
          *place ^= std::byte{1} << random_.below(8);
        }
        break;
      case 1:
        if (rest > 0) {
          constexpr unsigned kEdges[] = {0, 1, 0x7f, 0x80, 0xff};
          *place = std::byte(kEdges[random_.below(5)]);
        }
        break;
      case 2: bytes.erase(place, place + some); break;
      case 3: bytes.insert(place, std::byte(random_.below(256))); break;
      case 4: bytes.resize(at); break;
      case 5: std::fill(place, place + some, std::byte{0xff}); break;
      default: {
        const std::size_t from = random_.below(other.size() + 1);
        const std::size_t count = random_.below(std::min<std::size_t>(other.size() - from, 40) + 1);
        bytes.insert(place, other.begin() + static_cast<std::ptrdiff_t>(from),
                     other.begin() + static_cast<std::ptrdiff_t>(from + count));
      }
    }
  }

  RandomStream& random_;
};

}  // namespace mayfly::fuzz
