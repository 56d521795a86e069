#include "tests/sim/sim_channel.hpp"

#include <algorithm>
#include <cstring>

#include "base/check.hpp"
#include "collectives/plan/reduce_kernels.hpp"

namespace mayfly::sim {

Moved SimChannel::send(ByteSpan data, bool more) {
  if (ended_) {
    return {0, true};
  }
  return {accept_(data, more), false};
}

Moved SimChannel::receive(std::span<std::byte> into) {
  const std::size_t bytes = std::min(into.size(), incoming_.size());
  if (bytes == 0) {
    return {0, ended_ && !into.empty()};
  }
  std::memcpy(into.data(), incoming_.data(), bytes);
  incoming_.erase(incoming_.begin(), incoming_.begin() + static_cast<std::ptrdiff_t>(bytes));
  return {bytes, false};
}

Moved SimChannel::receive_and_reduce(std::span<std::byte> into, collectives::Reduction reduction,
                                     std::span<std::byte> scratch) {
  const std::size_t element = collectives::size_of(reduction.type);
  const std::size_t there = std::min({into.size(), incoming_.size(), scratch.size()});
  const std::size_t bytes = there - there % element;
  if (bytes == 0) {
    return {0, ended_ && !into.empty()};
  }
  const Moved got = receive(scratch.first(bytes));
  ENSURE(got.bytes == bytes, "what is there can be received");
  collectives::reduce(into.data(), scratch.data(), bytes / element, reduction.type, reduction.op);
  return got;
}

bool SimChannel::watch(std::size_t /*wanted_bytes*/, bool /*wants_room*/, pollfd& /*watched*/) {
  UNREACHABLE("nothing sleeps in simulated time");
}

bool SimChannel::woken(short /*events*/) {
  UNREACHABLE("nothing sleeps in simulated time");
}

}  // namespace mayfly::sim
