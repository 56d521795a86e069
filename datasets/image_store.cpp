#include "datasets/image_store.hpp"

#include <signal.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <cstring>
#include <new>
#include <optional>
#include <utility>

#include "base/check.hpp"
#include "base/system_random.hpp"
#include "base/time.hpp"
#include "base/try_assign.hpp"

namespace mayfly::datasets {
namespace {

constexpr std::uint64_t kMagic = 0x3445524f5453594d;  // "MYSTORE4"
constexpr std::uint64_t kPage = 4096;
// An entry of the index is 0, or the process that is about to keep the image, or the image's size
// and place: in the mapped memory, or in the pages behind it.
constexpr std::uint64_t kClaimed = std::uint64_t{1} << 63;
constexpr std::uint64_t kInPages = std::uint64_t{1} << 62;
constexpr std::uint64_t kSecond = std::uint64_t{1} << 61;      // it may be given up; it is in pages
constexpr unsigned kSizeBits = 27;                             // the largest JPEG has 2^26 bytes
constexpr std::uint64_t kAlignment = 32;                       // 34 bits for the place
constexpr std::uint64_t kPagesBytes = std::uint64_t{1} << 44;  // addresses, see the header
static_assert(kStoreBytesMax / kAlignment <= std::uint64_t{1} << 34 &&
              kPagesBytes / kPage <= std::uint64_t{1} << 34);

bool is_kept(std::uint64_t entry) {
  return entry != 0 && (entry & kClaimed) == 0;
}

std::uint64_t size_of(std::uint64_t entry) {
  return entry & ((std::uint64_t{1} << kSizeBits) - 1);
}

std::uint64_t place_of(std::uint64_t entry) {
  const std::uint64_t number = (entry & (kSecond - 1)) >> kSizeBits;
  return number * ((entry & kInPages) != 0 ? kPage : kAlignment);
}

std::uint64_t round_up(std::uint64_t value, std::uint64_t to) {
  return (value + to - 1) / to * to;
}

std::uint64_t& from_stores() {
  thread_local std::uint64_t so_far = 0;
  return so_far;
}

bool write_at(int fd, std::uint64_t at, ByteSpan bytes) {
  for (std::size_t done = 0; done < bytes.size();) {
    const ::ssize_t put =
        ::pwrite(fd, bytes.data() + done, bytes.size() - done, static_cast<off_t>(at + done));
    if (put == 0 || (put < 0 && errno != EINTR)) {
      return false;
    }
    done += static_cast<std::size_t>(std::max<::ssize_t>(put, 0));
  }
  return true;
}

}  // namespace

/// At the beginning of the memory; the index follows, then the hashes, then the images.
struct ImageStore::Head {
  std::uint64_t magic = kMagic;
  Digest key;
  std::uint64_t images = 0;
  std::uint64_t bytes_max = 0;
  std::uint64_t id = 0;
  std::atomic<std::uint64_t> used{0};  ///< used part of bytes_max, with images that are being kept
  std::atomic<std::uint64_t> end{0};   ///< end of the images in the mapped memory
  std::atomic<std::uint64_t> pages_end{0};  ///< end of the images behind it
  std::atomic<std::uint64_t> next{0};       ///< where to look for the next second copy to give up
  std::atomic<bool> may_have_second{false};
  std::atomic<bool> may_give_up{false};

  [[nodiscard]] std::atomic<std::uint64_t>* index() {
    return std::launder(reinterpret_cast<std::atomic<std::uint64_t>*>(
        reinterpret_cast<std::byte*>(this) + sizeof(Head)));
  }
  /// Atomic, because an image that was given up may be kept again while another thread still reads
  /// it.
  [[nodiscard]] std::atomic<std::uint64_t>* hash_halves(std::uint64_t image) {
    return index() + images + 2 * image;
  }
  [[nodiscard]] Digest hash(std::uint64_t image) {
    const std::atomic<std::uint64_t>* const halves = hash_halves(image);
    return {halves[0].load(std::memory_order_relaxed), halves[1].load(std::memory_order_relaxed)};
  }
  void set_hash(std::uint64_t image, const Digest& hash) {
    hash_halves(image)[0].store(hash.high, std::memory_order_relaxed);
    hash_halves(image)[1].store(hash.low, std::memory_order_relaxed);
  }
  [[nodiscard]] std::uint64_t first_byte() const {
    return round_up(sizeof(Head) + images * (sizeof(std::uint64_t) + sizeof(Digest)), kPage);
  }
  /// The size without the pages behind the memory.
  [[nodiscard]] std::uint64_t size() const { return first_byte() + round_up(bytes_max, kPage); }
};
static_assert(std::atomic<std::uint64_t>::is_always_lock_free, "shared between processes");

ImageStore::ImageStore(std::unique_ptr<HostMemory> memory)
    : memory_(std::move(memory)), checked_(head().images / 64 + 1) {}

ImageStore::~ImageStore() = default;

ImageStore::Head& ImageStore::head() const {
  return *std::launder(reinterpret_cast<Head*>(memory_->data()));
}

/// Maps the store of another process, if that process still has a store for these images.
std::optional<HostMemory::Mapping> ImageStore::attach(UniqueFd fd, std::uint64_t bytes,
                                                      const Options& options) {
  if (bytes < kPagesBytes + sizeof(Head)) {
    return std::nullopt;
  }
  const std::uint64_t size = bytes - kPagesBytes;
  Result<SealedMemory> memory = SealedMemory::map(fd.get(), size, kPagesBytes);
  if (!memory.ok()) {
    return std::nullopt;
  }
  const Head& head = *std::launder(reinterpret_cast<const Head*>(memory.value().data()));
  const bool fits = head.magic == kMagic && head.key == options.key &&
                    head.images == options.images && head.size() == size;
  return fits ? std::optional(HostMemory::Mapping{std::move(memory).value(), std::move(fd)})
              : std::nullopt;
}

Result<HostMemory::Mapping> ImageStore::make(const Options& options) {
  Head wanted;
  wanted.images = options.images;
  wanted.bytes_max = options.bytes_max;
  HostMemory::Mapping made;
  TRY_ASSIGN(made.memory, SealedMemory::create(wanted.size(), made.fd, kPagesBytes));
  if (!reserve_memory(made.fd.get(), 0, wanted.first_byte())) {
    return Error{Errc::kIo, "no memory for the index of a store of images"};
  }
  auto* const head = new (made.memory.data()) Head;
  head->key = options.key;
  head->images = options.images;
  head->bytes_max = options.bytes_max;
  head->id = system_random();
  return made;
}

Result<std::unique_ptr<ImageStore>> ImageStore::join(const Options& options) {
  ENSURE(options.images > 0 && options.bytes_max > 0 && options.bytes_max <= kStoreBytesMax,
         "a store has room for images");
  TRY_ASSIGN(std::unique_ptr<HostMemory> memory, HostMemory::join(
                                                     {.what = "a store",
                                                      .name = "images-" + to_string(options.key),
                                                      .folder = options.folder,
                                                      .bytes_max = options.bytes_max,
                                                      .usable = options.usable},
                                                     [&](UniqueFd fd, std::uint64_t size) {
                                                       return attach(std::move(fd), size, options);
                                                     },
                                                     [&] { return make(options); }));
  return std::unique_ptr<ImageStore>(new ImageStore(std::move(memory)));
}

/// A kept image; empty if it has been given up since the caller read its entry.
ImageStore::Kept ImageStore::read(std::uint64_t image, std::uint64_t entry, Bytes& copy) const {
  Head& all = head();
  const Digest digest = all.hash(image);
  if ((entry & kInPages) == 0) {
    return {{memory_->data() + all.first_byte() + place_of(entry), size_of(entry)}, digest};
  }
  copy.resize(size_of(entry));
  for (std::size_t done = 0; done < copy.size();) {
    const ::ssize_t got = ::pread(memory_->fd(), copy.data() + done, copy.size() - done,
                                  static_cast<off_t>(all.size() + place_of(entry) + done));
    if (got == 0 || (got < 0 && errno != EINTR)) {
      return {};
    }
    done += static_cast<std::size_t>(std::max<::ssize_t>(got, 0));
  }
  // It may have become a first copy in between.
  const std::uint64_t now = all.index()[image].load(std::memory_order_acquire);
  return (now & ~kSecond) == (entry & ~kSecond) ? Kept{copy, digest} : Kept{};
}

ImageStore::Found ImageStore::find(std::uint64_t image, std::uint64_t size, Bytes& copy) const {
  Head& all = head();
  memory_->stay_listed(monotonic_now());
  ENSURE(image < all.images, "an image of the set");
  const std::uint64_t entry = all.index()[image].load(std::memory_order_acquire);
  if (!is_kept(entry) || size_of(entry) != size) {
    return {};
  }
  const auto [bytes, digest] = read(image, entry, copy);
  if (bytes.empty()) {
    return {};
  }
  // A second copy may have been given up and kept again by another process.
  if ((entry & kInPages) != 0 || !is_checked(image)) {
    if (digest_of(bytes) != digest) {
      // Processes that have checked it may still read it, so its place is not used again.
      (void)remove(image, entry);
      return {.bytes = {}, .is_damaged = true};
    }
    set_checked(image, entry);
  }
  from_stores() += size;
  return {.bytes = bytes};
}

ImageStore::Kept ImageStore::kept(std::uint64_t image, Bytes& copy) const {
  Head& all = head();
  ENSURE(image < all.images, "an image of the set");
  const std::uint64_t entry = all.index()[image].load(std::memory_order_acquire);
  return is_kept(entry) ? read(image, entry, copy) : Kept{};
}

bool ImageStore::keeps(std::uint64_t image) const {
  return is_kept(head().index()[image].load(std::memory_order_relaxed));
}

StoreIndex ImageStore::index() const {
  Head& all = head();
  StoreIndex index;
  index.kept.resize(StoreIndex::words(all.images));
  index.second.resize(StoreIndex::words(all.images));
  for (std::uint64_t image = 0; image < all.images; ++image) {
    const std::uint64_t entry = all.index()[image].load(std::memory_order_relaxed);
    const std::uint64_t bit = std::uint64_t{is_kept(entry) ? 1U : 0U} << (image % 64);
    index.kept[image / 64] |= bit;
    index.second[image / 64] |= (entry & kSecond) != 0 ? bit : 0;
    index.spare += is_kept(entry) && (entry & kSecond) != 0 ? second_copy_bytes(size_of(entry)) : 0;
  }
  const std::uint64_t usable = all.bytes_max / kAlignment * kAlignment;
  index.free = std::min(usable - std::min(usable, bytes_kept()), memory_->left());
  return index;
}

bool ImageStore::is_checked(std::uint64_t image) const {
  return (checked_[image / 64].load(std::memory_order_relaxed) >> (image % 64) & 1) != 0;
}

void ImageStore::set_checked(std::uint64_t image, std::uint64_t entry) const {
  if ((entry & kInPages) != 0) {
    return;
  }
  checked_[image / 64].fetch_or(std::uint64_t{1} << (image % 64), std::memory_order_relaxed);
}

bool ImageStore::keep(std::uint64_t image, ByteSpan bytes) {
  return claim_and_keep(image, bytes, false);
}

bool ImageStore::keep_second(std::uint64_t image, ByteSpan bytes) {
  return claim_and_keep(image, bytes, true);
}

bool ImageStore::claim_and_keep(std::uint64_t image, ByteSpan bytes, bool as_second) {
  Head& all = head();
  ENSURE(image < all.images && !bytes.empty() && bytes.size() < (std::uint64_t{1} << kSizeBits),
         "an image of the set");
  std::atomic<std::uint64_t>& entry = all.index()[image];
  std::uint64_t claim = kClaimed | static_cast<std::uint32_t>(::getpid());
  std::uint64_t before = entry.load(std::memory_order_relaxed);
  if ((before & kClaimed) != 0) {
    // A process that died while it kept the image will not finish.
    const auto claimant = static_cast<::pid_t>(before & UINT32_MAX);
    if (claimant == ::getpid() || ::kill(claimant, 0) == 0 || errno != ESRCH) {
      return false;
    }
  } else if (before != 0) {
    return false;
  }
  if (!entry.compare_exchange_strong(before, claim, std::memory_order_acquire)) {
    return false;
  }
  const std::optional<std::uint64_t> stored = store(bytes, as_second);
  if (!stored) {
    entry.compare_exchange_strong(claim, 0, std::memory_order_relaxed);
    return false;
  }
  all.set_hash(image, digest_of(bytes));
  set_checked(image, *stored);
  entry.store(*stored, std::memory_order_release);
  if (as_second) {
    all.may_have_second = true;
  }
  return true;
}

/// Stores the bytes; returns the entry for them, or nothing if there is no room.
std::optional<std::uint64_t> ImageStore::store(ByteSpan bytes, bool as_second) {
  Head& all = head();
  const std::uint64_t room =
      as_second ? second_copy_bytes(bytes.size()) : round_up(bytes.size(), kAlignment);
  if (!take_room(room, !as_second)) {
    return std::nullopt;
  }
  if (!as_second) {
    const std::uint64_t place = all.end.fetch_add(room, std::memory_order_relaxed);
    const std::uint64_t at = all.first_byte() + place;
    if (!reserve_memory(memory_->fd(), at, room)) {
      return std::nullopt;  // the system lacks the memory that it reported: this room stays in use
    }
    std::memcpy(memory_->data() + at, bytes.data(), bytes.size());
    return (place / kAlignment) << kSizeBits | bytes.size();
  }
  const std::uint64_t place = all.pages_end.fetch_add(room, std::memory_order_relaxed);
  const std::uint64_t at = all.size() + place;
  if (place + room > kPagesBytes || !reserve_memory(memory_->fd(), at, room) ||
      !write_at(memory_->fd(), at, bytes)) {
    all.used.fetch_sub(room, std::memory_order_relaxed);  // a first copy may need it
    return std::nullopt;
  }
  return kInPages | kSecond | (place / kPage) << kSizeBits | bytes.size();
}

bool ImageStore::take_room(std::uint64_t bytes, bool gives_up) {
  while (!take_free_room(bytes)) {
    if (bytes > head().bytes_max || !gives_up || !drop_one_copy()) {
      return false;
    }
  }
  return true;
}

bool ImageStore::take_free_room(std::uint64_t bytes) {
  Head& all = head();
  std::uint64_t used = all.used.load(std::memory_order_relaxed);
  while (bytes <= all.bytes_max - used) {
    if (all.used.compare_exchange_weak(used, used + bytes, std::memory_order_relaxed)) {
      const bool has_memory = memory_->take(bytes);
      all.used.fetch_sub(has_memory ? 0 : bytes, std::memory_order_relaxed);
      return has_memory;
    }
  }
  return false;
}

/// False: there is no second copy, or giving it up is not allowed now.
bool ImageStore::drop_one_copy() {
  Head& all = head();
  for (std::uint64_t tries = 0; tries < 2 * all.images; ++tries) {
    if (!all.may_give_up || (tries == 0 && !all.may_have_second)) {
      return false;
    }
    if (tries == all.images) {  // none was found; a copy that is added now is found next time
      all.may_have_second = false;
    }
    const std::uint64_t image = all.next.fetch_add(1, std::memory_order_relaxed) % all.images;
    const std::uint64_t entry = all.index()[image].load(std::memory_order_relaxed);
    if (is_kept(entry) && (entry & kSecond) != 0 && remove(image, entry)) {
      all.may_have_second = true;
      return true;
    }
  }
  return false;
}

/// Removes an image; if it has pages of its own, these are returned to the system. False: the entry
/// was changed before.
bool ImageStore::remove(std::uint64_t image, std::uint64_t entry) const {
  Head& all = head();
  if (!all.index()[image].compare_exchange_strong(entry, 0, std::memory_order_acq_rel)) {
    return false;
  }
  if ((entry & kInPages) != 0) {
    const std::uint64_t bytes = second_copy_bytes(size_of(entry));
    release_memory(memory_->fd(), all.size() + place_of(entry), bytes);
    memory_->give_back(bytes);
    all.used.fetch_sub(bytes, std::memory_order_relaxed);
  }
  return true;
}

void ImageStore::keep_for_good(std::uint64_t image) {
  std::atomic<std::uint64_t>& entry = head().index()[image];
  std::uint64_t before = entry.load(std::memory_order_relaxed);
  if (is_kept(before)) {
    entry.compare_exchange_strong(before, before & ~kSecond, std::memory_order_acq_rel);
  }
}

void ImageStore::allow_giving_up(bool is_allowed) {
  head().may_give_up = is_allowed;
}

std::uint64_t ImageStore::bytes_kept() const {
  return head().used.load(std::memory_order_relaxed);
}

std::uint64_t ImageStore::bytes_max() const {
  return head().bytes_max;
}

std::uint64_t ImageStore::images() const {
  return head().images;
}

std::uint64_t ImageStore::id() const {
  return head().id;
}

void count_from_store(std::uint64_t bytes) {
  from_stores() += bytes;
}

std::uint64_t bytes_from_stores() {
  return from_stores();
}

}  // namespace mayfly::datasets
