#pragma once

// How fields of messages are written and read; private to elastic/core. Encoder and Decoder have
// the same functions, so that one list of fields serves both ways.

#include <algorithm>
#include <cmath>
#include <concepts>
#include <cstddef>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/bytes.hpp"
#include "base/check.hpp"
#include "base/ids.hpp"
#include "elastic/core/view.hpp"

namespace mayfly::elastic {

inline constexpr std::size_t kReadableBytesMax = 2048;  // reasons, details, host names
/// Upper bound on the encoding of one number below 2^32.
inline constexpr std::size_t kNumberBytesMax = 5;

/// Writes fields; a field beyond its bound is a defect of the caller.
class Encoder {
 public:
  explicit Encoder(WireWriter& writer) : writer_(writer) {}

  template <typename... T>
  void plain(const T&... fields) {
    (writer_.put(fields), ...);
  }
  void flag(std::same_as<bool> auto... fields) {
    (writer_.put(static_cast<std::uint8_t>(fields ? 1 : 0)), ...);
  }
  template <typename E>
  void choice(const E& field, E last) {
    require(field <= last);
    writer_.put(field);
  }
  void milliseconds(const float& field) {
    require(std::isfinite(field) && !std::signbit(field));
    writer_.put(field);
  }
  void blob(const Bytes& field, std::size_t size_max) {
    require(field.size() <= size_max);
    writer_.put_bytes(field);
  }
  void text(const std::string& field, std::size_t size_max) {
    require(field.size() <= size_max);
    writer_.put_string(field);
  }
  void readable_text(const std::string& field) {
    writer_.put_string(std::string_view(field).substr(0, kReadableBytesMax));
  }
  template <typename T, typename Each>
  void optional(const std::optional<T>& field, Each each) {
    flag(field.has_value());
    if (field) {
      each(*field);
    }
  }
  /// Small numbers take few bytes: seven bits each, the lowest first.
  void number(std::uint32_t field, std::uint32_t last) {
    require(field <= last);
    for (; field >= 128; field >>= 7) {
      writer_.put(static_cast<std::uint8_t>(128 + field % 128));
    }
    writer_.put(static_cast<std::uint8_t>(field));
  }
  /// Writes the number of runs, and for each run the gap before it and its length.
  void set(const MicrobatchSet& field) {
    const std::span<const MicrobatchSet::Run> runs = field.runs();
    number(static_cast<std::uint32_t>(runs.size()), kMicrobatchesMax);
    std::uint32_t end = 0;
    for (const MicrobatchSet::Run& run : runs) {
      number(run.first - end, kMicrobatchesMax);
      number(run.count, kMicrobatchesMax);
      end = run.first + run.count;
    }
  }
  template <typename T, typename EachField>
  void list(const std::vector<T>& items, std::size_t count_max, std::size_t /*element_size_min*/,
            EachField each) {
    require(items.size() <= count_max);
    writer_.put(static_cast<std::uint32_t>(items.size()));
    for (const T& item : items) {
      each(item);
    }
  }
  void require(bool holds) { ENSURE(holds, "a message we send must be within its own bounds"); }

 private:
  WireWriter& writer_;
};

/// Reads fields; a field beyond its bound fails the reader.
class Decoder {
 public:
  explicit Decoder(WireReader& reader) : reader_(reader) {}

  template <typename... T>
  void plain(T&... fields) {
    ((fields = reader_.get<T>()), ...);
  }
  void flag(std::same_as<bool> auto&... fields) {
    const auto read = [this](bool& field) {
      const auto raw = reader_.get<std::uint8_t>();
      require(raw <= 1);
      field = raw == 1;
    };
    (read(fields), ...);
  }
  template <typename E>
  void choice(E& field, E last) {
    field = reader_.get<E>();
    require(field <= last);
  }
  void milliseconds(float& field) {
    field = reader_.get<float>();
    require(std::isfinite(field) && !std::signbit(field));
  }
  void blob(Bytes& field, std::size_t size_max) { field = reader_.get_bytes(size_max); }
  void text(std::string& field, std::size_t size_max) { field = reader_.get_string(size_max); }
  void readable_text(std::string& field) { field = reader_.get_string(kReadableBytesMax); }
  template <typename T, typename Each>
  void optional(std::optional<T>& field, Each each) {
    bool present = false;
    flag(present);
    field.reset();
    if (present) {
      each(field.emplace());
    }
  }
  void number(std::uint32_t& field, std::uint32_t last) {
    std::uint64_t read = 0;
    std::uint8_t byte = 128;
    for (unsigned shift = 0; byte >= 128 && shift < 7 * kNumberBytesMax; shift += 7) {
      byte = reader_.get<std::uint8_t>();
      read |= std::uint64_t{byte % 128U} << shift;
      require(byte != 0 || shift == 0);  // one encoding per number
    }
    require(byte < 128 && read <= last);
    field = static_cast<std::uint32_t>(std::min<std::uint64_t>(read, last));
  }
  void set(MicrobatchSet& field) {
    field = {};
    std::uint32_t runs = 0;
    number(runs, kMicrobatchesMax);
    std::uint32_t end = 0;
    for (std::uint32_t i = 0; i < runs && !reader_.failed(); ++i) {
      std::uint32_t gap = 0;
      std::uint32_t count = 0;
      number(gap, kMicrobatchesMax - end);
      number(count, kMicrobatchesMax - end - gap);
      require(count > 0 && (gap > 0 || i == 0));  // one encoding per set
      field.add_range(end + gap, count);
      end += gap + count;
    }
  }
  template <typename T, typename EachField>
  void list(std::vector<T>& items, std::size_t count_max, std::size_t element_size_min,
            EachField each) {
    items.resize(reader_.get_count(count_max, element_size_min));
    for (T& item : items) {
      each(item);
    }
  }
  void require(bool holds) {
    if (!holds) {
      reader_.fail();
    }
  }
  [[nodiscard]] bool failed() const { return reader_.failed(); }

 private:
  WireReader& reader_;
};

/// A view alone, as in NewView, for the view log (messages.cpp).
void view_fields(Encoder& io, const View& view);
void view_fields(Decoder& io, View& view);

}  // namespace mayfly::elastic
