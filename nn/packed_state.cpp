#include <algorithm>
#include <array>
#include <cstring>

#include "base/check.hpp"
#include "nn/checkpoint.hpp"

// The format in which the state is sent to a member that is behind: a header of sizes, then the
// arrays, and in fp16 the loss scale at the end.

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

const std::byte* extract(const std::byte* in, std::span<std::byte> bytes) {
  if (!bytes.empty()) {
    std::memcpy(bytes.data(), in, bytes.size());
  }
  return in + bytes.size();
}

}  // namespace

std::size_t packed_state_size(const ModelState& like) {
  return sizeof(Header) + sizeof(float) * (2 * like.parameters.size() + like.statistics.size()) +
         sizeof(std::int32_t) * like.exponents.size() +
         (like.loss_scale.has_value() ? sizeof(LossScale) : 0);
}

void pack_state(const ModelState& state, std::span<std::byte> out) {
  ENSURE(out.size() == packed_state_size(state), "the buffer has the packed state's size");
  pack_state_part(state, 0, out);
}

void pack_state_part(const ModelState& state, std::size_t first, std::span<std::byte> out) {
  ENSURE(first + out.size() <= packed_state_size(state), "a part lies inside the packed state");
  ENSURE(state.momentum.size() == state.parameters.size(), "momentum covers the parameters");
  ENSURE(state.is_drawn, "only a real state is given to others");
  const Header header = header_of(state);
  const LossScale scale = state.loss_scale.value_or(LossScale{});
  const std::array<ByteSpan, 6> arrays = {
      std::as_bytes(std::span(&header, 1)),
      std::as_bytes(state.parameters.span()),
      std::as_bytes(state.momentum.span()),
      std::as_bytes(state.statistics.span()),
      std::as_bytes(std::span(state.exponents)),
      std::as_bytes(std::span(&scale, state.loss_scale.has_value() ? 1 : 0))};
  std::size_t at = 0;  // where the array begins in the packed state
  for (const ByteSpan array : arrays) {
    const std::size_t begin = std::max(first, at);
    const std::size_t end = std::min(first + out.size(), at + array.size());
    if (begin < end) {
      std::memcpy(out.data() + (begin - first), array.data() + (begin - at), end - begin);
    }
    at += array.size();
  }
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
  LossScale scale;
  const std::size_t scale_bytes = state.loss_scale.has_value() ? sizeof scale : 0;
  extract(packed.data() + packed.size() - scale_bytes,
          std::as_writable_bytes(std::span(&scale, 1)).first(scale_bytes));
  if (!scale.is_valid()) {
    return Error{Errc::kCorrupt, "a packed state with an impossible loss scale"};
  }
  state.committed = Step{header.committed};
  if (state.loss_scale.has_value()) {
    state.loss_scale = scale;
  }
  next = extract(next, std::as_writable_bytes(state.parameters.span()));
  next = extract(next, std::as_writable_bytes(state.momentum.span()));
  next = extract(next, std::as_writable_bytes(state.statistics.span()));
  extract(next, std::as_writable_bytes(std::span(state.exponents)));
  state.is_drawn = true;
  return {};
}

}  // namespace mayfly::nn
