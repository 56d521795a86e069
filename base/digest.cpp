#include "base/digest.hpp"

#define XXH_INLINE_ALL
#include <xxhash.h>

#include <charconv>
#include <cstdio>

namespace mayfly {

struct alignas(64) Digester::State {
  XXH3_state_t xxh;
};

Digester::Digester() : state_(std::make_unique<State>()) {
  XXH3_128bits_reset(&state_->xxh);
}
Digester::~Digester() = default;

void Digester::add(ByteSpan bytes) {
  XXH3_128bits_update(&state_->xxh, bytes.data(), bytes.size());
}

Digest Digester::finish() const {
  const XXH128_hash_t hash = XXH3_128bits_digest(&state_->xxh);
  return {hash.high64, hash.low64};
}

Digest digest_of(ByteSpan bytes) {
  const XXH128_hash_t hash = XXH3_128bits(bytes.data(), bytes.size());
  return {hash.high64, hash.low64};
}

std::string to_string(const Digest& digest) {
  char text[33];
  std::snprintf(text, sizeof text, "%016llx%016llx", static_cast<unsigned long long>(digest.high),
                static_cast<unsigned long long>(digest.low));
  return text;
}

std::optional<Digest> digest_in(std::string_view text) {
  if (text.size() != 32) {
    return std::nullopt;
  }
  Digest digest;
  const char* const middle = text.data() + 16;
  std::from_chars(text.data(), middle, digest.high, 16);
  std::from_chars(middle, middle + 16, digest.low, 16);
  return to_string(digest) == text ? std::optional(digest) : std::nullopt;
}

}  // namespace mayfly
