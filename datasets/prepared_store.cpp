#include "datasets/prepared_store.hpp"

#include <fmt/format.h>

#include <atomic>
#include <cstdint>
#include <cstring>
#include <new>
#include <optional>
#include <thread>
#include <utility>

#include "base/bytes.hpp"
#include "base/check.hpp"
#include "base/try_assign.hpp"

namespace mayfly::datasets {
namespace {

constexpr std::uint64_t kMagic = 0x3250455250594d;  // "MYPREP2"
constexpr std::uint64_t kLine = 64;
// The state of a place: 0, or a position plus one, with this bit while it is being prepared.
constexpr std::uint64_t kClaimed = std::uint64_t{1} << 63;
// A thread that claims a place and does not fill it in this time loses it to the next sample of the
// set.
constexpr Duration kClaimKept = seconds(1);
// How long memory is not asked for after the system had none; asking takes longer than preparing a
// sample.
constexpr Duration kAskAgainAfter = seconds(1);
constexpr Duration kLookEvery = milliseconds(2);  // looking more often costs more than it saves

std::uint64_t to_lines(std::uint64_t bytes) {
  return (bytes + kLine - 1) / kLine * kLine;
}

Digest hash_of(std::uint64_t position, const Augmentation& draw,
               std::span<const std::uint8_t> pixels) {
  Digester digester;
  digester.add_value(position);
  digester.add_value(draw.crop_x);
  digester.add_value(draw.crop_y);
  digester.add_value(std::uint64_t{draw.flip ? 1U : 0U});
  digester.add(std::as_bytes(pixels));
  return digester.finish();
}

}  // namespace

/// The beginning of the memory. After it there is a flag for each set, which shows whether there is
/// memory behind its places, and then the places.
struct PreparedStore::Head {
  std::uint64_t magic = kMagic;
  Digest key;
  std::uint64_t sample_bytes = 0;
  std::uint64_t sets = 0;
  std::atomic<std::int64_t> lacked{INT64_MIN / 2};  ///< when the system lacked memory for a set

  [[nodiscard]] std::uint64_t stride() const;
  [[nodiscard]] std::uint64_t first_place() const { return kLine + to_lines(sets); }
  [[nodiscard]] std::uint64_t size() const;
};

/// The pixels follow. Data that is not atomic is covered by the hash. A place of zeros has no
/// sample, so fresh memory needs no initialisation, which could overwrite places already in use by
/// others.
struct PreparedStore::Place {
  std::atomic<std::uint64_t> state{0};
  std::atomic<std::int64_t> touched{0};  ///< when it was last used, by the monotonic clock
  Digest hash;
  std::int32_t crop_x = 0;
  std::int32_t crop_y = 0;
  std::uint64_t flip = 0;

  [[nodiscard]] std::uint8_t* pixels() {
    return reinterpret_cast<std::uint8_t*>(this) + sizeof(Place);
  }
  [[nodiscard]] const std::uint8_t* pixels() const {
    return reinterpret_cast<const std::uint8_t*>(this) + sizeof(Place);
  }
};
static_assert(std::atomic<std::uint64_t>::is_always_lock_free &&
                  std::atomic<std::uint8_t>::is_always_lock_free,
              "shared between processes");

std::uint64_t PreparedStore::Head::stride() const {
  static_assert(sizeof(Place) <= kLine && sizeof(Head) <= kLine);
  return to_lines(sizeof(Place) + sample_bytes);
}

std::uint64_t PreparedStore::Head::size() const {
  return first_place() + sets * kWays * stride();
}

PreparedStore::PreparedStore(std::unique_ptr<HostMemory> memory) : memory_(std::move(memory)) {}

PreparedStore::Head& PreparedStore::head() const {
  return *std::launder(reinterpret_cast<Head*>(memory_->data()));
}

PreparedStore::Place& PreparedStore::place(std::uint64_t number) const {
  return *std::launder(
      reinterpret_cast<Place*>(memory_->data() + head().first_place() + number * head().stride()));
}

std::atomic<std::uint8_t>& PreparedStore::has_memory(std::uint64_t set) const {
  return *std::launder(reinterpret_cast<std::atomic<std::uint8_t>*>(memory_->data() + kLine + set));
}

/// Takes the memory of a set when a sample is first stored there: taking all memory of a large
/// store would last longer than other processes wait for it. False if the system has no memory.
bool PreparedStore::take_memory(std::uint64_t set, std::int64_t now) const {
  Head& all = head();
  if (has_memory(set).load(std::memory_order_acquire) != 0) {
    return true;
  }
  if (now - all.lacked.load(std::memory_order_relaxed) < kAskAgainAfter.count()) {
    return false;
  }
  const std::uint64_t bytes = kWays * all.stride();
  if (!memory_->take(bytes) ||
      !reserve_memory(memory_->fd(), all.first_place() + set * bytes, bytes)) {
    all.lacked.store(now, std::memory_order_relaxed);
    return false;
  }
  has_memory(set).store(1, std::memory_order_release);
  return true;
}

std::uint64_t PreparedStore::capacity() const {
  return head().sets * kWays;
}

Result<std::unique_ptr<PreparedStore>> PreparedStore::join(const Options& options) {
  Head wanted;
  wanted.sample_bytes = options.sample_bytes;
  wanted.sets = options.bytes_max / (wanted.stride() * kWays);
  if (wanted.sets == 0) {
    return Error{Errc::kInvalidInput,
                 fmt::format("room for {} prepared samples of {} bytes is the least",
                             std::uint64_t{kWays}, options.sample_bytes)};
  }
  const auto attach = [&](UniqueFd fd, std::uint64_t size) -> std::optional<HostMemory::Mapping> {
    if (size < kLine) {
      return std::nullopt;
    }
    Result<SealedMemory> memory = SealedMemory::map(fd.get(), size);
    if (!memory.ok()) {
      return std::nullopt;
    }
    const Head& found = *std::launder(reinterpret_cast<const Head*>(memory.value().data()));
    const bool fits = found.magic == kMagic && found.key == options.key &&
                      found.sample_bytes == options.sample_bytes && found.sets > 0 &&
                      found.size() == size;
    return fits ? std::optional(HostMemory::Mapping{std::move(memory).value(), std::move(fd)})
                : std::nullopt;
  };
  const auto make = [&]() -> Result<HostMemory::Mapping> {
    HostMemory::Mapping made;
    TRY_ASSIGN(made.memory, SealedMemory::create(wanted.size(), made.fd));
    if (!reserve_memory(made.fd.get(), 0, wanted.first_place())) {
      return Error{Errc::kIo, "the system has no memory for prepared samples"};
    }
    auto* const head = new (made.memory.data()) Head;
    head->key = options.key;
    head->sample_bytes = wanted.sample_bytes;
    head->sets = wanted.sets;
    return made;
  };
  TRY_ASSIGN(std::unique_ptr<HostMemory> memory,
             HostMemory::join({.what = "memory for prepared samples",
                               .name = "prepared-" + to_string(options.key),
                               .folder = options.folder,
                               .bytes_max = wanted.size(),
                               .usable = options.usable},
                              attach, make));
  return std::unique_ptr<PreparedStore>(new PreparedStore(std::move(memory)));
}

/// The place of the sample, also while it is being prepared.
PreparedStore::Place* PreparedStore::find(std::uint64_t position) const {
  const std::uint64_t set = position % head().sets;
  if (has_memory(set).load(std::memory_order_acquire) == 0) {
    return nullptr;
  }
  const std::uint64_t first = set * kWays;
  for (std::uint64_t i = first; i < first + kWays; ++i) {
    if ((place(i).state.load(std::memory_order_acquire) & ~kClaimed) == position + 1) {
      return &place(i);
    }
  }
  return nullptr;
}

/// The copy is valid only if the place was not overwritten meanwhile, which the hash shows.
bool PreparedStore::copy(const Place& place, std::uint64_t state, std::span<std::uint8_t> pixels,
                         Augmentation& draw) const {
  std::memcpy(pixels.data(), place.pixels(), pixels.size());
  const Augmentation read{place.crop_x, place.crop_y, place.flip != 0};
  const Digest hash = place.hash;
  if (hash_of(state - 1, read, pixels) != hash) {
    return false;
  }
  draw = read;
  return true;
}

/// The place that another sample may use; null if all samples are being prepared, or there is no
/// memory.
PreparedStore::Place* PreparedStore::oldest_of_set(std::uint64_t position, std::int64_t now) const {
  const std::uint64_t set = position % head().sets;
  if (!take_memory(set, now)) {
    return nullptr;
  }
  Place* oldest = nullptr;
  const std::uint64_t first = set * kWays;
  for (std::uint64_t i = first; i < first + kWays; ++i) {
    Place& one = place(i);
    const std::int64_t touched = one.touched.load(std::memory_order_relaxed);
    const bool is_claimed = (one.state.load(std::memory_order_relaxed) & kClaimed) != 0;
    if ((!is_claimed || now - touched >= kClaimKept.count()) &&
        (oldest == nullptr || touched < oldest->touched.load(std::memory_order_relaxed))) {
      oldest = &one;
    }
  }
  return oldest;
}

/// Nothing if another thread or process has taken the same place first.
std::optional<PreparedStore::Turn> PreparedStore::try_take(std::uint64_t position,
                                                           std::span<std::uint8_t> pixels,
                                                           Augmentation& draw) {
  const std::int64_t now = monotonic_now().ns;
  memory_->stay_listed({now});
  const std::uint64_t claim = kClaimed | (position + 1);
  Place* own = find(position);
  std::uint64_t state = own == nullptr ? 0 : own->state.load(std::memory_order_acquire);
  if (state == claim) {
    return Turn::kOthers;
  }
  if (state == position + 1) {
    if (copy(*own, state, pixels, draw)) {
      own->touched.store(now, std::memory_order_relaxed);
      return Turn::kReady;
    }
  } else {
    own = oldest_of_set(position, now);
    if (own == nullptr) {
      return Turn::kFull;
    }
    state = own->state.load(std::memory_order_relaxed);
  }
  if (!own->state.compare_exchange_strong(state, claim, std::memory_order_relaxed)) {
    return std::nullopt;
  }
  own->touched.store(now, std::memory_order_relaxed);
  return Turn::kOwn;
}

PreparedStore::Turn PreparedStore::take(std::uint64_t position, std::span<std::uint8_t> pixels,
                                        Augmentation& draw) {
  constexpr int kTries = 4;
  ENSURE(pixels.size() == head().sample_bytes, "samples of the store's size");
  for (int i = 0; i < kTries; ++i) {
    if (const std::optional<Turn> turn = try_take(position, pixels, draw)) {
      return *turn;
    }
  }
  return Turn::kFull;
}

bool PreparedStore::wait(std::uint64_t position, std::span<std::uint8_t> pixels,
                         Augmentation& draw) {
  const Instant deadline = monotonic_now() + kPatience;
  while (true) {
    const Place* const found = find(position);
    const std::uint64_t state = found == nullptr ? 0 : found->state.load(std::memory_order_acquire);
    if (state == position + 1) {
      return copy(*found, state, pixels, draw);
    }
    if (state == 0 || monotonic_now() >= deadline) {  // it was given up, or takes too long
      return false;
    }
    std::this_thread::sleep_for(kLookEvery);
  }
}

void PreparedStore::give(std::uint64_t position, std::span<const std::uint8_t> pixels,
                         const Augmentation& draw) {
  std::uint64_t claim = kClaimed | (position + 1);
  Place* const own = find(position);
  if (own == nullptr || own->state.load(std::memory_order_relaxed) != claim) {
    return;  // it took so long that another sample has the place
  }
  std::memcpy(own->pixels(), pixels.data(), pixels.size());
  own->crop_x = draw.crop_x;
  own->crop_y = draw.crop_y;
  own->flip = draw.flip ? 1 : 0;
  own->hash = hash_of(position, draw, pixels);
  own->touched.store(monotonic_now().ns, std::memory_order_relaxed);
  own->state.compare_exchange_strong(claim, position + 1, std::memory_order_release,
                                     std::memory_order_relaxed);
}

void PreparedStore::give_up(std::uint64_t position) {
  std::uint64_t claim = kClaimed | (position + 1);
  if (Place* const own = find(position)) {
    own->state.compare_exchange_strong(claim, 0, std::memory_order_relaxed);
  }
}

}  // namespace mayfly::datasets
