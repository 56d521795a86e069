#pragma once

// Fields of a cloud's JSON answers, for sources. A field that is missing or of another type reads
// as an empty one: clouds add and leave out fields, and each reader checks those that it needs.

#include <boost/json.hpp>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/result.hpp"

namespace mayfly::cloud_hooks {

/// kCorrupt, with `complaint`, if the text is not one JSON object.
[[nodiscard]] inline Result<boost::json::object> parse_object(std::string_view text,
                                                              const std::string& complaint) {
  boost::system::error_code error;
  boost::json::value value = boost::json::parse(text, error);
  if (error || !value.is_object()) {
    return Error{Errc::kCorrupt, complaint};
  }
  return std::move(value.get_object());
}

[[nodiscard]] inline std::string text_of(const boost::json::object& object, std::string_view name) {
  const boost::json::value* const value = object.if_contains(name);
  return value != nullptr && value->is_string() ? std::string(value->get_string()) : std::string();
}

/// Null if there is no such object.
[[nodiscard]] inline const boost::json::object* object_of(const boost::json::object& object,
                                                          std::string_view name) {
  const boost::json::value* const value = object.if_contains(name);
  return value == nullptr ? nullptr : value->if_object();
}

/// The elements of an array that are objects; none if `object` is null.
[[nodiscard]] inline std::vector<const boost::json::object*> objects_of(
    const boost::json::object* object, std::string_view name) {
  std::vector<const boost::json::object*> objects;
  const boost::json::value* const value = object == nullptr ? nullptr : object->if_contains(name);
  if (value != nullptr && value->is_array()) {
    for (const boost::json::value& element : value->get_array()) {
      if (element.is_object()) {
        objects.push_back(&element.get_object());
      }
    }
  }
  return objects;
}

}  // namespace mayfly::cloud_hooks
