#include "base/digest.hpp"

#define XXH_INLINE_ALL
#include <xxhash.h>

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

}  // namespace mayfly
