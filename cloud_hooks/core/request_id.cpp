#include "cloud_hooks/core/request_id.hpp"

#include <algorithm>

namespace mayfly::cloud_hooks {
namespace {

constexpr std::size_t kUuidCharacters = 36;

bool is_dash_place(std::size_t place) {
  return place == 8 || place == 13 || place == 18 || place == 23;
}

}  // namespace

std::string make_request_id(const CounterRandom& random, std::uint64_t number) {
  constexpr char kDigits[] = "0123456789abcdef";
  constexpr std::size_t kVersionPlace = 14;
  constexpr std::size_t kVariantPlace = 19;
  const std::uint64_t halves[2] = {random.bits(2 * number), random.bits(2 * number + 1)};
  std::string text;
  std::size_t digit = 0;
  for (std::size_t place = 0; place < kUuidCharacters; ++place) {
    if (is_dash_place(place)) {
      text += '-';
      continue;
    }
    std::uint64_t bits = (halves[digit / 16] >> (4 * (digit % 16))) & 15U;
    ++digit;
    bits = place == kVersionPlace ? 4U : place == kVariantPlace ? (8U | (bits & 3U)) : bits;
    text += kDigits[bits];
  }
  return text;
}

bool is_request_id(const std::string& text) {
  if (text.size() != kUuidCharacters) {
    return false;
  }
  bool any = false;
  for (std::size_t place = 0; place < text.size(); ++place) {
    const char c = text[place];
    const bool is_hex = (c >= '0' && c <= '9') || (c >= 'a' && c <= 'f');
    if (is_dash_place(place) ? c != '-' : !is_hex) {
      return false;
    }
    any = any || (is_hex && c != '0');
  }
  return any;
}

}  // namespace mayfly::cloud_hooks
