#include "base/utf8.hpp"

#include <cstddef>
#include <cstdint>

namespace mayfly {
namespace {

/// The length of the character that begins with this byte, and the least code point that may be
/// encoded with that length.
struct Form {
  std::size_t bytes = 0;  // 0: no character begins with this byte
  std::uint32_t smallest = 0;
};

Form form_of(unsigned char first) {
  if (first < 0x80) {
    return {1, 0};
  }
  if ((first & 0xe0U) == 0xc0) {
    return {2, 0x80};
  }
  if ((first & 0xf0U) == 0xe0) {
    return {3, 0x800};
  }
  return (first & 0xf8U) == 0xf0 ? Form{4, 0x10000} : Form{};
}

}  // namespace

bool is_utf8(std::string_view text) {
  while (!text.empty()) {
    const auto first = static_cast<unsigned char>(text.front());
    const Form form = form_of(first);
    if (form.bytes == 0 || form.bytes > text.size()) {
      return false;
    }
    std::uint32_t character = form.bytes == 1 ? first : first & (0x7fU >> form.bytes);
    for (std::size_t i = 1; i < form.bytes; ++i) {
      const auto next = static_cast<unsigned char>(text[i]);
      if ((next & 0xc0U) != 0x80) {
        return false;
      }
      character = character << 6 | (next & 0x3fU);
    }
    const bool is_surrogate = character >= 0xd800 && character <= 0xdfff;
    if (character < form.smallest || character > 0x10ffff || is_surrogate) {
      return false;
    }
    text.remove_prefix(form.bytes);
  }
  return true;
}

}  // namespace mayfly
