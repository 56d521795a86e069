#include "datasets/store_reader.hpp"

#include <poll.h>

#include <algorithm>
#include <array>
#include <cstring>
#include <utility>

#include "base/check.hpp"
#include "base/digest.hpp"
#include "base/net/sockets.hpp"
#include "datasets/jpeg.hpp"

namespace mayfly::datasets {

StoreReader::StoreReader(Endpoint host, const StoreKey& key) : host_(std::move(host)), key_(key) {}

bool StoreReader::wait(short events, Instant deadline, const AbortSignal& stop) const {
  std::array<pollfd, 2> polled = {{{fd_.get(), events, 0}, {stop.fd(), POLLIN, 0}}};
  while (!stop.raised() && monotonic_now() < deadline) {
    if (::poll(polled.data(), polled.size(), poll_timeout_ms(deadline)) > 0 &&
        polled[0].revents != 0) {
      return true;
    }
  }
  return false;
}

bool StoreReader::connect(Instant deadline, const AbortSignal& stop) {
  if (fd_.valid()) {
    return true;
  }
  if (monotonic_now() < next_attempt_) {
    return false;
  }
  Result<UniqueFd> started = start_connect_tcp(host_);
  if (!started.ok() || !started.value().valid()) {
    wait_before_next_attempt();
    return false;
  }
  fd_ = std::move(started).value();
  if (!wait(POLLOUT, deadline, stop) || connection_error(fd_.get()) != 0) {
    return false;
  }
  tune_stream(fd_.get());
  return true;
}

bool StoreReader::ask(std::uint32_t images, std::span<const WantedImage> wanted, Instant deadline,
                      const AbortSignal& stop) {
  const StoreRequest request{.magic = kStoreMagic, .key = key_, .images = images};
  Bytes message(sizeof request + wanted.size() * sizeof(std::uint64_t));
  std::memcpy(message.data(), &request, sizeof request);
  for (std::size_t i = 0; i < wanted.size(); ++i) {
    std::memcpy(message.data() + sizeof request + i * sizeof(std::uint64_t), &wanted[i].image,
                sizeof(std::uint64_t));
  }
  return send_whole(message, deadline, stop);
}

bool StoreReader::send_whole(ByteSpan bytes, Instant deadline, const AbortSignal& stop) {
  while (!bytes.empty()) {
    const Moved moved = send_some(fd_.get(), bytes.data(), bytes.size());
    bytes = bytes.subspan(moved.bytes);
    if (moved.closed || (moved.bytes == 0 && !wait(POLLOUT, deadline, stop))) {
      return false;
    }
  }
  return true;
}

void StoreReader::offer(std::uint64_t image, ByteSpan bytes, Instant deadline,
                        const AbortSignal& stop) {
  const StoreAnswer head{.image = image, .size = bytes.size(), .digest = digest_of(bytes)};
  const bool is_sent = connect(deadline, stop) && ask(kStoreOffer, {}, deadline, stop) &&
                       send_whole(std::as_bytes(std::span(&head, 1)), deadline, stop) &&
                       send_whole(bytes, deadline, stop);
  retry_delay_ = is_sent ? kRetryFirst : retry_delay_;
  if (!is_sent) {
    give_up(stop);
  }
}

bool StoreReader::receive_whole(std::span<std::byte> into, Instant deadline,
                                const AbortSignal& stop) {
  while (!into.empty()) {
    const Moved got = receive_some(fd_.get(), into.data(), into.size());
    into = into.subspan(got.bytes);
    if (!into.empty() && (got.closed || (got.bytes == 0 && !wait(POLLIN, deadline, stop)))) {
      return false;
    }
  }
  return true;
}

/// False: the connection cannot be used any more.
bool StoreReader::receive(WantedImage& image, Instant deadline, const AbortSignal& stop) {
  StoreAnswer answer;
  if (!receive_whole(std::as_writable_bytes(std::span(&answer, 1)), deadline, stop)) {
    return false;
  }
  if (answer.image != image.image || (answer.size != 0 && answer.size != image.size)) {
    return false;  // not the requested image: the other host has other files
  }
  if (answer.size == 0) {
    return true;
  }
  image.bytes.resize(image.size);
  if (!receive_whole(image.bytes, deadline, stop)) {
    image.bytes.clear();
    return false;
  }
  if (digest_of(image.bytes) != answer.digest) {
    image.bytes.clear();
    image.is_damaged = true;
  }
  return true;
}

std::size_t StoreReader::fetch(std::span<WantedImage> wanted, Instant deadline,
                               const AbortSignal& stop) {
  for (WantedImage& image : wanted) {
    ENSURE(image.size > 0 && image.size <= kJpegBytesMax, "an image has bytes");
    image.bytes.clear();
    image.is_damaged = false;
  }
  bool goes_on = connect(deadline, stop);
  for (auto left = wanted; goes_on && !left.empty();) {
    const auto part = left.first(std::min<std::size_t>(left.size(), kStoreRequestMax));
    left = left.subspan(part.size());
    goes_on = ask(static_cast<std::uint32_t>(part.size()), part, deadline, stop);
    for (std::size_t i = 0; i < part.size() && goes_on; ++i) {
      goes_on = receive(part[i], deadline, stop);
    }
  }
  retry_delay_ = goes_on ? kRetryFirst : retry_delay_;
  if (!goes_on) {
    give_up(stop);
  }
  return static_cast<std::size_t>(
      std::ranges::count_if(wanted, [](const WantedImage& image) { return !image.bytes.empty(); }));
}

void StoreReader::give_up(const AbortSignal& stop) {
  if (!fd_.valid()) {
    return;
  }
  fd_ = UniqueFd();  // later data must not be taken for answers to later requests
  if (!stop.raised()) {
    wait_before_next_attempt();
  }
}

void StoreReader::wait_before_next_attempt() {
  next_attempt_ = monotonic_now() + retry_delay_;
  retry_delay_ = std::min(2 * retry_delay_, kRetryMost);
}

std::optional<StoreIndex> StoreReader::fetch_index(std::uint64_t images, Instant deadline,
                                                   const AbortSignal& stop) {
  std::vector<std::uint64_t> words(2 * StoreIndex::words(images) + 2);
  const std::span<std::byte> bytes = std::as_writable_bytes(std::span(words));
  StoreAnswer answer;
  const bool is_whole =
      connect(deadline, stop) && ask(kStoreIndex, {}, deadline, stop) &&
      receive_whole(std::as_writable_bytes(std::span(&answer, 1)), deadline, stop) &&
      answer.size == bytes.size() && receive_whole(bytes, deadline, stop) &&
      digest_of(bytes) == answer.digest;
  if (!is_whole) {
    give_up(stop);
    return std::nullopt;
  }
  retry_delay_ = kRetryFirst;
  return index_of(words);
}

void AnswerTimes::add(Duration time) {
  if (times_.size() < kRemembered) {
    times_.push_back(time);
  } else {
    times_[next_] = time;
    next_ = (next_ + 1) % kRemembered;
  }
}

Duration AnswerTimes::patience() const {
  if (times_.empty()) {
    return least_;
  }
  std::vector<Duration> sorted = times_;
  const std::size_t rank = (sorted.size() * 99 + 99) / 100 - 1;
  std::ranges::nth_element(sorted, sorted.begin() + static_cast<std::ptrdiff_t>(rank));
  return std::max(least_, std::min(kMost, 2 * sorted[rank]));
}

}  // namespace mayfly::datasets
