#include "base/bytes.hpp"

#include <charconv>

#include "base/check.hpp"

namespace mayfly {

void WireWriter::put_bytes(ByteSpan bytes) {
  ENSURE(bytes.size() <= UINT32_MAX, "a field's length must fit its 32-bit prefix");
  put(static_cast<std::uint32_t>(bytes.size()));
  append(bytes.data(), bytes.size());
}

void WireWriter::put_string(std::string_view text) {
  put_bytes(std::as_bytes(std::span(text)));
}

ByteSpan WireReader::take(std::size_t size) {
  if (failed_ || input_.size() < size) {
    failed_ = true;
    return {};
  }
  const ByteSpan head = input_.first(size);
  input_ = input_.subspan(size);
  return head;
}

Bytes WireReader::get_bytes(std::size_t size_max) {
  const std::size_t size = get<std::uint32_t>();
  if (size > size_max) {
    failed_ = true;
  }
  const ByteSpan raw = take(failed_ ? 0 : size);
  return {raw.begin(), raw.end()};
}

std::string WireReader::get_string(std::size_t size_max) {
  const Bytes raw = get_bytes(size_max);
  return {reinterpret_cast<const char*>(raw.data()), raw.size()};
}

std::size_t WireReader::get_count(std::size_t count_max, std::size_t element_size_min) {
  const std::size_t count = get<std::uint32_t>();
  if (count > count_max || count * element_size_min > input_.size()) {
    failed_ = true;
  }
  return failed_ ? 0 : count;
}

std::string to_hex(ByteSpan bytes) {
  constexpr char kDigits[] = "0123456789abcdef";
  std::string text;
  text.reserve(bytes.size() * 2);
  for (const std::byte b : bytes) {
    text.push_back(kDigits[std::to_integer<unsigned>(b) >> 4]);
    text.push_back(kDigits[std::to_integer<unsigned>(b) & 15]);
  }
  return text;
}

std::optional<Bytes> from_hex(std::string_view text) {
  Bytes bytes(text.size() / 2);
  for (std::size_t i = 0; i < bytes.size(); ++i) {
    std::uint8_t byte = 0;
    const char* const begin = text.data() + 2 * i;
    const auto parsed = std::from_chars(begin, begin + 2, byte, 16);
    if (parsed.ec != std::errc() || parsed.ptr != begin + 2) {
      return std::nullopt;
    }
    bytes[i] = static_cast<std::byte>(byte);
  }
  return text.size() % 2 == 0 ? std::optional(std::move(bytes)) : std::nullopt;
}

}  // namespace mayfly
