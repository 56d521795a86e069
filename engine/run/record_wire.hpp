#pragma once

// The binary form of records and of messages with a fields() (engine/run/records.hpp). There is one
// encoding for each: a reader refuses flags that are neither 0 nor 1, keys out of order, and bytes
// that are left over. For sources; no other header includes it. Any thread.

#include <map>
#include <optional>
#include <string>
#include <type_traits>
#include <vector>

#include "base/bytes.hpp"
#include "base/check.hpp"
#include "base/digest.hpp"

namespace mayfly::engine {

class RecordWriter {
 public:
  /// Longer texts are cut off.
  explicit RecordWriter(std::size_t text_bytes_max) : text_bytes_max_(text_bytes_max) {}

  void operator()(const char* /*name*/, const auto& field) { wire(field); }
  void unless(const auto& /*usual*/, const char* /*name*/, const auto& field) { wire(field); }

  template <typename T>
  void wire(const T& field) {
    if constexpr (std::is_same_v<T, bool>) {
      out_.put(static_cast<std::uint8_t>(field));
    } else if constexpr (std::is_arithmetic_v<T> || std::is_enum_v<T>) {
      out_.put(field);
    } else {
      T::fields(*this, field);
    }
  }
  void wire(const std::string& text) {
    out_.put_string(std::string_view(text).substr(0, text_bytes_max_));
  }
  /// A text that is useless if it is cut off, so its author must keep the bound.
  void whole(const std::string& text, std::size_t bytes_max) {
    ENSURE(text.size() <= bytes_max, "a text that is not cut off keeps its bound");
    out_.put_string(text);
  }
  void wire(const Digest& digest) {
    wire(digest.high);
    wire(digest.low);
  }
  template <typename T>
  void wire(const std::optional<T>& field) {
    wire(field.has_value());
    if (field) {
      wire(*field);
    }
  }
  template <typename T>
  void wire(const std::vector<T>& list) {
    out_.put(static_cast<std::uint32_t>(list.size()));
    for (const T& element : list) {
      wire(element);
    }
  }
  void wire(const std::map<std::uint64_t, std::uint64_t>& counts) {
    out_.put(static_cast<std::uint32_t>(counts.size()));
    for (const auto& [key, count] : counts) {
      wire(key);
      wire(count);
    }
  }

  [[nodiscard]] Bytes take() { return out_.take(); }

 private:
  std::size_t text_bytes_max_;
  WireWriter out_;
};

class RecordReader {
 public:
  /// Longer texts are refused.
  RecordReader(ByteSpan bytes, std::size_t text_bytes_max)
      : in_(bytes), text_bytes_max_(text_bytes_max) {}

  void operator()(const char* /*name*/, auto& field) { wire(field); }
  void unless(const auto& /*usual*/, const char* /*name*/, auto& field) { wire(field); }

  template <typename T>
  void wire(T& field) {
    if constexpr (std::is_same_v<T, bool>) {
      const auto byte = in_.get<std::uint8_t>();
      refuse(byte > 1);
      field = byte == 1;
    } else if constexpr (std::is_arithmetic_v<T> || std::is_enum_v<T>) {
      field = in_.get<T>();
    } else {
      T::fields(*this, field);
    }
  }
  void wire(std::string& text) { text = in_.get_string(text_bytes_max_); }
  void whole(std::string& text, std::size_t bytes_max) { text = in_.get_string(bytes_max); }
  void wire(Digest& digest) {
    wire(digest.high);
    wire(digest.low);
  }
  template <typename T>
  void wire(std::optional<T>& field) {
    bool is_there = false;
    wire(is_there);
    field.reset();
    if (is_there) {
      wire(field.emplace());
    }
  }
  template <typename T>
  void wire(std::vector<T>& list) {
    for (std::size_t left = in_.get_count(kEntriesMax, 1); left > 0 && !in_.failed(); --left) {
      wire(list.emplace_back());
    }
  }
  void wire(std::map<std::uint64_t, std::uint64_t>& counts) {
    const std::size_t size = in_.get_count(kEntriesMax, 2 * sizeof(std::uint64_t));
    for (std::size_t i = 0; i < size; ++i) {
      const auto key = in_.get<std::uint64_t>();
      refuse(!counts.empty() && key <= counts.rbegin()->first);
      counts[key] = in_.get<std::uint64_t>();
    }
  }

  [[nodiscard]] bool complete() const { return in_.complete(); }

 private:
  static constexpr std::size_t kEntriesMax = std::size_t{1} << 20;

  void refuse(bool is_wrong) {
    if (is_wrong) {
      in_.fail();
    }
  }

  WireReader in_;
  std::size_t text_bytes_max_;
};

/// The bytes of a message.
template <typename M>
[[nodiscard]] Bytes bytes_of(const M& message, std::size_t text_bytes_max) {
  RecordWriter out(text_bytes_max);
  M::fields(out, message);
  return out.take();
}

/// The message of which these are all bytes, or nothing.
template <typename M>
[[nodiscard]] std::optional<M> message_in(ByteSpan bytes, std::size_t text_bytes_max) {
  RecordReader in(bytes, text_bytes_max);
  M message;
  M::fields(in, message);
  return in.complete() ? std::optional<M>(std::move(message)) : std::nullopt;
}

}  // namespace mayfly::engine
