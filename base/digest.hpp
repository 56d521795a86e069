#pragma once

#include <compare>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>

#include "base/bytes.hpp"

namespace mayfly {

/// A 128-bit hash (XXH3) of bytes in a stated order. It detects accidental differences; it is not a
/// cryptographic hash and gives no protection against attackers.
struct Digest {
  std::uint64_t high = 0;
  std::uint64_t low = 0;

  friend constexpr auto operator<=>(const Digest&, const Digest&) = default;
};

/// 32 lower-case hexadecimal digits.
[[nodiscard]] std::string to_string(const Digest& digest);
/// The digest of a text that to_string() has written; nothing for any other text.
[[nodiscard]] std::optional<Digest> digest_in(std::string_view text);

/// Hashes a sequence of spans as if they were one. One thread at a time.
class Digester {
 public:
  Digester();
  ~Digester();
  Digester(const Digester&) = delete;
  Digester& operator=(const Digester&) = delete;

  void add(ByteSpan bytes);
  template <typename T>
  requires(std::is_arithmetic_v<T> || std::is_enum_v<T>) void add_value(T field) {
    add(std::as_bytes(std::span<const T, 1>(&field, 1)));
  }
  [[nodiscard]] Digest finish() const;

 private:
  struct State;
  std::unique_ptr<State> state_;
};

/// The digest of one span.
[[nodiscard]] Digest digest_of(ByteSpan bytes);

}  // namespace mayfly
