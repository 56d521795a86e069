#include "engine/state/state_sync.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>

#include "engine/state/state_transfer.hpp"

namespace mayfly::engine {
namespace {

/// Fewer bytes arrive sooner from one member than from two.
constexpr std::size_t kPartBytesMin = std::size_t{8} << 20;

}  // namespace

std::vector<Rank> senders_of(const elastic::View& view, std::size_t state_bytes) {
  std::vector<Rank> senders = elastic::donors_of(view);
  const std::size_t count = std::max<std::size_t>(1, state_bytes / kPartBytesMin);
  senders.resize(std::min(senders.size(), count));
  return senders;
}

Result<std::vector<DonorAddress>> exchange_senders(collectives::Group& group,
                                                   const DonorAddress& own, BucketTuner& tuner,
                                                   Instant deadline) {
  const std::size_t tuner_bytes = tuner.packed_size();
  const std::size_t each = sizeof own + tuner_bytes;
  Bytes mine(each);
  std::memcpy(mine.data(), &own, sizeof own);
  tuner.pack(std::span(mine).subspan(sizeof own));
  Bytes all(each * group.size());
  TRY(group.wait_or_abort(*group.all_gather(mine, all), deadline));
  std::vector<DonorAddress> addresses(group.size());
  ByteSpan most;
  for (std::size_t rank = 0; rank < addresses.size(); ++rank) {
    std::memcpy(&addresses[rank], all.data() + rank * each, sizeof own);
    const ByteSpan tried = ByteSpan(all).subspan(rank * each + sizeof own, tuner_bytes);
    if (rank == 0 || BucketTuner::tries_in(tried) > BucketTuner::tries_in(most)) {
      most = tried;
    }
  }
  TRY(tuner.unpack(most));
  return addresses;
}

Result<PackedBytes> fetch_state(const elastic::View& view,
                                const std::vector<DonorAddress>& addresses, std::size_t state_bytes,
                                int stop_fd, ByteSpan token) {
  PackedBytes packed(state_bytes);
  const std::vector<Rank> senders = senders_of(view, state_bytes);
  std::vector<WantedPart> parts;
  for (std::size_t i = 0; i < senders.size(); ++i) {
    const PartRange range = part_of(state_bytes, i, senders.size());
    parts.push_back({addresses.at(value(senders[i])),
                     packed.span().subspan(range.first, range.last - range.first),
                     view.members[value(senders[i])].id});
  }
  TRY(fetch_parts(view.id, view.key, parts, stop_fd, kStateIdleMax, token));
  return packed;
}

Result<void> sync_observers(collectives::Group& group, const elastic::View& view, bool observes,
                            std::vector<std::int32_t>& exponents,
                            std::optional<nn::LossScale>& scale, BucketTuner& tuner,
                            Instant deadline) {
  std::vector<std::int32_t> numbers = exponents;
  if (scale.has_value()) {
    numbers.insert(numbers.end(), {scale->exponent, scale->steps});
  }
  const std::span<std::byte> own_numbers = std::as_writable_bytes(std::span(numbers));
  Bytes message(tuner.packed_size() + own_numbers.size());
  tuner.pack(std::span(message).first(tuner.packed_size()));
  std::ranges::copy(own_numbers, std::span(message).subspan(tuner.packed_size()).begin());
  TRY(group.wait_or_abort(*group.broadcast(message, view.source), deadline));
  TRY(tuner.unpack(ByteSpan(message).first(tuner.packed_size())));
  const ByteSpan of_source = ByteSpan(message).subspan(tuner.packed_size());
  if (observes) {
    std::ranges::copy(of_source, own_numbers.begin());
    std::copy_n(numbers.begin(), exponents.size(), exponents.begin());
    if (scale.has_value()) {
      scale = nn::LossScale{numbers[exponents.size()], numbers[exponents.size() + 1]};
      if (!scale->is_valid()) {
        return Error{Errc::kCorrupt, fmt::format("rank {} has a loss scale that no job can have",
                                                 value(view.source))};
      }
    }
  }
  return {};
}

Result<std::vector<DonorAddress>> exchange_addresses(collectives::Group& group,
                                                     const DonorAddress& own, Instant deadline) {
  std::vector<DonorAddress> all(group.size());
  const auto gathered =
      group.all_gather(std::as_bytes(std::span(&own, 1)), std::as_writable_bytes(std::span(all)));
  TRY(group.wait_or_abort(*gathered, deadline));
  return all;
}

}  // namespace mayfly::engine
