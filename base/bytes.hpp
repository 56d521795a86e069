#pragma once

// Bounded little-endian encoding for all data that is exchanged between processes. The reader never
// trusts its input: after the first short or oversized field it has failed and returns only zeros,
// so a parser can read a whole message and check once.

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <type_traits>
#include <vector>

namespace mayfly {

using Bytes = std::vector<std::byte>;
using ByteSpan = std::span<const std::byte>;

static_assert(__BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__, "the wire format is little-endian");

/// Appends fields to a growing buffer.
class WireWriter {
 public:
  template <typename T>
  requires(std::is_arithmetic_v<T> || std::is_enum_v<T>) void put(T field) {
    append(&field, sizeof(T));
  }
  /// A 32-bit length, then the bytes.
  void put_bytes(ByteSpan bytes);
  void put_string(std::string_view text);

  [[nodiscard]] Bytes take() { return std::move(bytes_); }

 private:
  void append(const void* raw, std::size_t size) {
    const auto* first = static_cast<const std::byte*>(raw);
    bytes_.insert(bytes_.end(), first, first + size);
  }

  Bytes bytes_;
};

/// Reads fields from a span that must outlive the reader.
class WireReader {
 public:
  explicit WireReader(ByteSpan input) : input_(input) {}

  template <typename T>
  requires(std::is_arithmetic_v<T> || std::is_enum_v<T>) [[nodiscard]] T get() {
    T field{};
    const ByteSpan raw = take(sizeof(T));
    if (raw.size() == sizeof(T)) {
      std::memcpy(&field, raw.data(), sizeof(T));
    }
    return field;
  }
  /// A length-prefixed field; fails the reader if it is longer than `size_max` or than the input.
  [[nodiscard]] Bytes get_bytes(std::size_t size_max);
  [[nodiscard]] std::string get_string(std::size_t size_max);
  /// A 32-bit element count; fails the reader if it exceeds `count_max` or if that many elements of
  /// at least `element_size_min` bytes cannot follow.
  [[nodiscard]] std::size_t get_count(std::size_t count_max, std::size_t element_size_min);

  /// Marks the input as invalid for a reason that only the caller can check.
  void fail() { failed_ = true; }
  [[nodiscard]] bool failed() const { return failed_; }
  /// True if every field could be read and no bytes are left over.
  [[nodiscard]] bool complete() const { return !failed_ && input_.empty(); }

 private:
  ByteSpan take(std::size_t size);

  ByteSpan input_;
  bool failed_ = false;
};

/// Lower-case hexadecimal.
[[nodiscard]] std::string to_hex(ByteSpan bytes);
/// The bytes that pairs of hexadecimal digits of either case stand for; nothing if the text is
/// something else.
[[nodiscard]] std::optional<Bytes> from_hex(std::string_view text);

}  // namespace mayfly
