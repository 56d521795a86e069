#pragma once

// The JSON of records (engine/run/records.hpp): Boost.JSON objects that are made and read by the
// records' descriptions, and their text. For sources; no other header includes it. Any thread.

#include <boost/json.hpp>
#include <functional>
#include <limits>
#include <map>
#include <string>
#include <type_traits>

#include "base/digest.hpp"
#include "engine/run/summary.hpp"

namespace mayfly::engine {

namespace json = boost::json;

/// The text of a value on one line, with a space after each comma and colon and with numbers as
/// short as they can be to read back exactly. Numbers that are not finite become null, as JSON has
/// none.
[[nodiscard]] std::string json_text(const json::value& value);
/// A number with `digits` digits after the point, for measurements that need not be read back
/// exactly.
[[nodiscard]] double rounded(double number, int digits);
/// The number of that name in an object; `otherwise` if it has none.
[[nodiscard]] double number_or(const json::object& object, json::string_view name,
                               double otherwise);

/// Passes the object in a text to `use`. kCorrupt, with `complaint` and the reason, if there is
/// none or `use` throws.
[[nodiscard]] Result<void> with_object(const std::string& complaint, std::string_view text,
                                       const std::function<void(const json::object&)>& use);
/// The same for each whole line of a file, of any size, that begins at the byte `offset` or after
/// it. kNotFound, kIo; kCorrupt also if a line has more than 64 MiB.
[[nodiscard]] Result<void> for_each_line(const std::string& path, std::size_t offset,
                                         const std::function<void(const json::object&)>& use);

/// An event of a kind that no record describes. The user sees `line` unless it is empty.
struct Fact {
  std::string kind;
  json::object fields;
  std::string line;
};

/// A record, or another structure with a fields().
template <typename T>
concept Described = requires(int& io, T& record) {
  T::fields(io, record);
};

template <Described R>
[[nodiscard]] json::object object_of(const R& record);
/// Throws an exception of Boost.JSON or of the standard library if a field is missing or has
/// another type.
template <Described R>
[[nodiscard]] R record_of(const json::object& object);

// Types that fields may have: numbers, flags, texts, digests, outcomes, causes, ids, records,
// pairs, counts by number, and vectors and optional ones of them.

inline json::value value_of(const std::string& text) {
  return json::value(json::string_view(text));
}
inline json::value value_of(const Digest& digest) {
  return value_of(to_string(digest));
}
inline json::value value_of(elastic::ChangeCause cause) {
  return name_of(cause);
}
inline json::value value_of(elastic::Outcome outcome) {
  return to_text(outcome);
}
json::value value_of(const std::map<std::uint64_t, std::uint64_t>& counts);
template <typename T>
requires std::is_arithmetic_v<T> json::value value_of(T number) {
  return number;
}
template <typename T>
requires std::is_enum_v<T> json::value value_of(T id) {
  return static_cast<std::underlying_type_t<T>>(id);
}
template <Described R>
json::value value_of(const R& record) {
  return object_of(record);
}
template <typename A, typename B>
json::value value_of(const std::pair<A, B>& both) {
  return json::array{value_of(both.first), value_of(both.second)};
}
template <typename T>
json::value value_of(const std::optional<T>& field) {
  return field ? value_of(*field) : json::value(nullptr);
}
template <typename T>
json::value value_of(const std::vector<T>& list) {
  json::array array;
  for (const T& element : list) {
    array.push_back(value_of(element));
  }
  return array;
}

void read_value(const json::value& value, std::string& text);
void read_value(const json::value& value, Digest& digest);
void read_value(const json::value& value, elastic::ChangeCause& cause);
void read_value(const json::value& value, elastic::Outcome& outcome);
void read_value(const json::value& value, double& number);  // null is "not a number"
inline void read_value(const json::value& value, bool& flag) {
  flag = value.as_bool();
}
void read_value(const json::value& value, std::map<std::uint64_t, std::uint64_t>& counts);
template <typename T>
requires std::is_integral_v<T>
void read_value(const json::value& value, T& number) {
  number = value.to_number<T>();
}
template <Described R>
void read_value(const json::value& value, R& record) {
  record = record_of<R>(value.as_object());
}
template <typename A, typename B>
void read_value(const json::value& value, std::pair<A, B>& both) {
  read_value(value.as_array().at(0), both.first);
  read_value(value.as_array().at(1), both.second);
}
template <typename T>
void read_value(const json::value& value, std::optional<T>& field) {
  field.reset();
  if (!value.is_null()) {
    read_value(value, field.emplace());
  }
}
template <typename T>
void read_value(const json::value& value, std::vector<T>& list) {
  for (const json::value& element : value.as_array()) {
    read_value(element, list.emplace_back());
  }
}

/// A field of a line; throws if it is missing.
template <typename T>
[[nodiscard]] T field_of(const json::object& object, json::string_view name) {
  T field{};
  read_value(object.at(name), field);
  return field;
}

class JsonWriter {
 public:
  explicit JsonWriter(json::object& object) : object_(object) {}
  void operator()(const char* name, const auto& field) { object_[name] = value_of(field); }
  void unless(const auto& usual, const char* name, const auto& field) {
    if (!(field == usual)) {
      (*this)(name, field);
    }
  }
  void wire(const auto& /*field*/) {}

 private:
  json::object& object_;
};

class JsonReader {
 public:
  explicit JsonReader(const json::object& object) : object_(object) {}
  void operator()(const char* name, auto& field) { read_value(object_.at(name), field); }
  void unless(const auto& /*usual*/, const char* name, auto& field) {
    if (const json::value* value = object_.if_contains(name)) {
      read_value(*value, field);
    }
  }
  void wire(auto& /*field*/) {}

 private:
  const json::object& object_;
};

template <Described R>
json::object object_of(const R& record) {
  json::object object;
  JsonWriter writer(object);
  R::fields(writer, record);
  return object;
}

template <Described R>
R record_of(const json::object& object) {
  R record;
  JsonReader reader(object);
  R::fields(reader, record);
  return record;
}

}  // namespace mayfly::engine
