#include <cstring>

#include "base/check.hpp"
#include "nn/checkpoint.hpp"

// A member that is behind is sent the state in this form: a header of sizes, then the arrays.

namespace mayfly::nn {
namespace {

struct Header {
  std::uint64_t committed = 0;
  std::uint64_t parameters = 0;
  std::uint64_t statistics = 0;
  std::uint64_t exponents = 0;
};

Header header_of(const ModelState& state) {
  return {value(state.committed), state.parameters.size(), state.statistics.size(),
          state.exponents.size()};
}

std::byte* append(std::byte* out, ByteSpan bytes) {
  if (!bytes.empty()) {
    std::memcpy(out, bytes.data(), bytes.size());
  }
  return out + bytes.size();
}

const std::byte* extract(const std::byte* in, std::span<std::byte> bytes) {
  if (!bytes.empty()) {
    std::memcpy(bytes.data(), in, bytes.size());
  }
  return in + bytes.size();
}

}  // namespace

std::size_t packed_state_size(const ModelState& like) {
  return sizeof(Header) + sizeof(float) * (2 * like.parameters.size() + like.statistics.size()) +
         sizeof(std::int32_t) * like.exponents.size();
}

void pack_state(const ModelState& state, std::span<std::byte> out) {
  ENSURE(out.size() == packed_state_size(state), "the buffer has the packed state's size");
  ENSURE(state.momentum.size() == state.parameters.size(), "momentum covers the parameters");
  const Header header = header_of(state);
  std::byte* next = append(out.data(), std::as_bytes(std::span(&header, 1)));
  next = append(next, std::as_bytes(state.parameters.span()));
  next = append(next, std::as_bytes(state.momentum.span()));
  next = append(next, std::as_bytes(state.statistics.span()));
  append(next, std::as_bytes(std::span(state.exponents)));
}

Result<void> unpack_state(ByteSpan packed, ModelState& state) {
  Header header;
  const Header expected = header_of(state);
  if (packed.size() != packed_state_size(state)) {
    return Error{Errc::kCorrupt, "a packed state of " + std::to_string(packed.size()) +
                                     " bytes; expected " +
                                     std::to_string(packed_state_size(state))};
  }
  const std::byte* next = extract(packed.data(), std::as_writable_bytes(std::span(&header, 1)));
  if (header.parameters != expected.parameters || header.statistics != expected.statistics ||
      header.exponents != expected.exponents) {
    return Error{Errc::kCorrupt, "a packed state of another layout"};
  }
  state.committed = Step{header.committed};
  next = extract(next, std::as_writable_bytes(state.parameters.span()));
  next = extract(next, std::as_writable_bytes(state.momentum.span()));
  next = extract(next, std::as_writable_bytes(state.statistics.span()));
  extract(next, std::as_writable_bytes(std::span(state.exponents)));
  return {};
}

}  // namespace mayfly::nn
