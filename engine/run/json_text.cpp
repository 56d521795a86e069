#include "engine/run/json_text.hpp"

#include <charconv>
#include <cmath>
#include <cstdint>

#include "engine/run/run_directory.hpp"

namespace mayfly::engine {

std::string json_string(std::string_view text) {
  constexpr char kHex[] = "0123456789abcdef";
  std::string out = "\"";
  for (const char c : text) {
    const auto byte = static_cast<unsigned char>(c);
    if (c == '"' || c == '\\') {
      out += '\\';
      out += c;
    } else if (c == '\n') {
      out += "\\n";
    } else if (byte < 0x20 || byte == 0x7f) {
      out += "\\u00";
      out += kHex[byte >> 4];
      out += kHex[byte & 15];
    } else {
      out += c;
    }
  }
  return out + '"';
}

std::string json_number(double number) {
  if (!std::isfinite(number)) {
    return "null";  // JSON has no other word for it
  }
  char buffer[32];
  const auto [end, failure] = std::to_chars(buffer, buffer + sizeof buffer, number);
  return failure == std::errc{} ? std::string(buffer, end) : std::string("null");
}

std::string json_number(std::uint64_t number) {
  return std::to_string(number);
}

JsonObject& JsonObject::add(std::string_view name, std::string_view json) {
  if (text_.size() > 1) {
    text_ += ", ";
  }
  text_ += json_string(name) + ": ";
  text_ += json;
  return *this;
}

std::string json_array(const std::vector<std::string>& elements) {
  std::string out = "[";
  for (const std::string& element : elements) {
    out += (out.size() > 1 ? ", " : "") + element;
  }
  return out + "]";
}

}  // namespace mayfly::engine
