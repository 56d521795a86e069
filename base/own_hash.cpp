#include "base/own_hash.hpp"

#include <algorithm>
#include <span>

#include "base/digest.hpp"

namespace mayfly {
namespace {

/// The end of an object that begins with `text`.
std::string hashed_end(std::string_view text, std::string_view name) {
  return std::string(",\"").append(name) + "\":\"" +
         to_string(digest_of(std::as_bytes(std::span(text)))) + "\"}\n";
}

}  // namespace

std::string with_own_hash(std::string object, std::string_view name) {
  object.pop_back();  // the brace
  return object + hashed_end(object, name);
}

bool fits_own_hash(std::string_view text, std::string_view name) {
  const std::size_t covered = text.size() - std::min(text.size(), hashed_end("", name).size());
  return text.substr(covered) == hashed_end(text.substr(0, covered), name);
}

}  // namespace mayfly
