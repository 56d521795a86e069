#include "base/reason.hpp"

#include <string_view>

namespace mayfly {
namespace {

/// "[path/file.cc:12] "
std::string_view without_place_before(std::string_view text) {
  const std::size_t end = text.find("] ");
  const std::string_view place = text.substr(0, end);
  const bool is_place = end != std::string_view::npos && place.starts_with('[') &&
                        place.find('/') != std::string_view::npos &&
                        place.find_last_not_of("0123456789") == place.rfind(':');
  return is_place ? text.substr(end + 2) : text;
}

/// " [category:2]", " [category:2 at path/file.hpp:12 in function 'f']"
std::string_view without_place_behind(std::string_view text) {
  const std::size_t begin = text.rfind(" [");
  if (begin == std::string_view::npos || !text.ends_with(']')) {
    return text;
  }
  const std::string_view place = text.substr(begin + 2, text.size() - begin - 3);
  const std::size_t number = place.find(':') + 1;  // 0 without a colon
  const std::size_t end = place.find_first_not_of("-0123456789", number);
  const bool is_code = number > 1 && end != number && place.find('/') >= end;
  const bool is_place =
      is_code && (end == std::string_view::npos || place.substr(end).starts_with(" at "));
  return is_place ? text.substr(0, begin) : text;
}

}  // namespace

std::string reason_of(const std::exception& failure) {
  return std::string(without_place_behind(without_place_before(failure.what())));
}

}  // namespace mayfly
