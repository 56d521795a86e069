#include "datasets/image_store.hpp"

#include <fcntl.h>
#include <fmt/format.h>
#include <signal.h>
#include <sys/stat.h>
#include <unistd.h>

#include <atomic>
#include <bit>
#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <new>
#include <optional>
#include <random>
#include <sstream>
#include <utility>
#include <vector>

#include "base/check.hpp"
#include "base/file.hpp"
#include "base/lock_file.hpp"
#include "base/try_assign.hpp"
#include "base/usable_memory.hpp"

namespace mayfly::datasets {
namespace {

constexpr std::uint64_t kMagic = 0x3245524f5453594d;  // "MYSTORE2"
constexpr std::uint64_t kPage = 4096;
constexpr std::size_t kListBytesMax = 1 << 20;
// An entry of the index: 0, or who is about to keep the image, or its size and place.
constexpr std::uint64_t kClaimed = std::uint64_t{1} << 63;
constexpr unsigned kSizeBits = 27;  // the largest JPEG has 2^26 bytes
constexpr std::uint64_t kAlignment = 8;

std::uint64_t round_up(std::uint64_t value, std::uint64_t to) {
  return (value + to - 1) / to * to;
}

std::uint64_t& from_stores() {
  thread_local std::uint64_t so_far = 0;
  return so_far;
}

/// A process that has the store, and its descriptor there.
struct Holder {
  ::pid_t process = 0;
  int fd = -1;
};

std::vector<Holder> read_list(const std::string& path) {
  std::vector<Holder> holders;
  const Result<std::string> text = read_text_file(path, kListBytesMax);
  std::istringstream lines(text.ok() ? text.value() : "");
  for (Holder holder; lines >> holder.process >> holder.fd;) {
    holders.push_back(holder);
  }
  return holders;
}

Result<void> write_list(const std::string& path, const std::vector<Holder>& holders) {
  std::string text;
  for (const Holder& holder : holders) {
    text += fmt::format("{} {}\n", holder.process, holder.fd);
  }
  return write_file_atomic(path, std::string_view(text));
}

/// A folder that nobody else may write to; others could make us map what is not a store.
Result<std::string> own_folder() {
  const char* const runtime = std::getenv("XDG_RUNTIME_DIR");
  const std::string folder = runtime != nullptr && *runtime != '\0'
                                 ? std::string(runtime) + "/mayfly"
                                 : fmt::format("/tmp/mayfly-{}", ::getuid());
  if (::mkdir(folder.c_str(), 0700) != 0 && errno != EEXIST) {
    return file_error("cannot make the folder of stores", folder);
  }
  struct stat info {};
  if (::lstat(folder.c_str(), &info) != 0 || !S_ISDIR(info.st_mode) || info.st_uid != ::getuid() ||
      (info.st_mode & 0022) != 0) {
    return Error{Errc::kIo, folder +
                                " is not a folder of this user alone, so no store of images "
                                "can be found there; remove it, or set XDG_RUNTIME_DIR"};
  }
  return folder;
}

}  // namespace

/// At the beginning of the memory; the index follows, then the hashes, then the images.
struct ImageStore::Head {
  std::uint64_t magic = kMagic;
  Digest key;
  std::uint64_t images = 0;
  std::uint64_t bytes_max = 0;
  std::uint64_t id = 0;
  std::atomic<std::uint64_t> used{0};  ///< of bytes_max, with images that are being kept

  [[nodiscard]] std::atomic<std::uint64_t>* index() {
    return std::launder(reinterpret_cast<std::atomic<std::uint64_t>*>(
        reinterpret_cast<std::byte*>(this) + sizeof(Head)));
  }
  [[nodiscard]] Digest* hashes() {
    return std::launder(reinterpret_cast<Digest*>(reinterpret_cast<std::byte*>(this) +
                                                  sizeof(Head) + images * sizeof(std::uint64_t)));
  }
  [[nodiscard]] std::uint64_t first_byte() const {
    return round_up(sizeof(Head) + images * (sizeof(std::uint64_t) + sizeof(Digest)), kPage);
  }
  [[nodiscard]] std::uint64_t size() const { return first_byte() + round_up(bytes_max, kPage); }
};
static_assert(std::atomic<std::uint64_t>::is_always_lock_free, "shared between processes");

ImageStore::ImageStore(std::string list, SealedMemory memory, UniqueFd fd)
    : list_(std::move(list)),
      memory_(std::move(memory)),
      fd_(std::move(fd)),
      checked_(head().images / 64 + 1) {}

ImageStore::Head& ImageStore::head() const {
  return *std::launder(reinterpret_cast<Head*>(memory_.data()));
}

ImageStore::~ImageStore() {
  const std::string lock_path = list_ + ".lock";
  const Result<LockFile> lock = LockFile::take(lock_path);
  if (!lock.ok()) {
    return;  // the next process finds our entry dead
  }
  struct stat own {};
  (void)::fstat(fd_.get(), &own);
  std::vector<Holder> others = read_list(list_);
  std::erase_if(others, [&](const Holder& holder) {  // us, and who has ended without a word
    struct stat info {};
    const std::string path = fmt::format("/proc/{}/fd/{}", holder.process, holder.fd);
    const bool is_us = holder.process == ::getpid() && holder.fd == fd_.get();
    return is_us || ::stat(path.c_str(), &info) != 0 || info.st_ino != own.st_ino;
  });
  if (others.empty()) {
    (void)::unlink(list_.c_str());
    (void)::unlink(lock_path.c_str());  // who waits for the lock makes it again
  } else {
    (void)write_list(list_, others);
  }
}

/// The store of a process, if it still has one for these images.
std::optional<ImageStore::Attached> ImageStore::attach(int process, int descriptor,
                                                       const Options& options) {
  UniqueFd fd(::open(fmt::format("/proc/{}/fd/{}", process, descriptor).c_str(),
                     O_RDWR | O_CLOEXEC | O_NONBLOCK));
  struct stat info {};
  if (!fd.valid() || ::fstat(fd.get(), &info) != 0 || !S_ISREG(info.st_mode) ||
      static_cast<std::uint64_t>(info.st_size) < sizeof(Head)) {
    return std::nullopt;
  }
  const auto size = static_cast<std::size_t>(info.st_size);
  Result<SealedMemory> memory = SealedMemory::map(fd.get(), size);
  if (!memory.ok()) {
    return std::nullopt;
  }
  const Head& head = *std::launder(reinterpret_cast<const Head*>(memory.value().data()));
  const bool fits = head.magic == kMagic && head.key == options.key &&
                    head.images == options.images && head.size() == size;
  return fits ? std::optional(Attached{std::move(memory).value(), std::move(fd)}) : std::nullopt;
}

Result<ImageStore::Attached> ImageStore::make(const Options& options) {
  if (const std::uint64_t usable = usable_memory(); options.bytes_max > usable) {
    return Error{
        Errc::kInvalidInput,
        fmt::format("a store of {:.1f} GiB is more than the {:.1f} GiB of memory that this "
                    "machine, or the limit of this process's control group, leaves",
                    static_cast<double>(options.bytes_max) / 0x1p30,
                    static_cast<double>(usable) / 0x1p30)};
  }
  Head wanted;
  wanted.images = options.images;
  wanted.bytes_max = options.bytes_max;
  Attached made;
  TRY_ASSIGN(made.memory, SealedMemory::create(wanted.size(), made.fd));
  if (!reserve_memory(made.fd.get(), 0, wanted.first_byte())) {
    return Error{Errc::kIo, "no memory for the index of a store of images"};
  }
  auto* const head = new (made.memory.data()) Head;
  head->key = options.key;
  head->images = options.images;
  head->bytes_max = options.bytes_max;
  std::random_device random;
  head->id = std::uint64_t{random()} << 32 | random();
  return made;
}

Result<std::unique_ptr<ImageStore>> ImageStore::join(const Options& options) {
  ENSURE(options.images > 0 && options.bytes_max > 0 && options.bytes_max <= kStoreBytesMax,
         "a store has room for images");
  std::string folder = options.folder;
  if (folder.empty()) {
    TRY_ASSIGN(folder, own_folder());
  }
  std::string list = folder + "/images-" + to_string(options.key);
  TRY_ASSIGN(const LockFile lock, LockFile::take(list + ".lock", seconds(30)));
  std::vector<Holder> holders = read_list(list);
  std::optional<Attached> found;
  std::erase_if(holders, [&](const Holder& holder) {
    std::optional<Attached> attached = attach(holder.process, holder.fd, options);
    const bool is_gone = !attached;
    if (!found) {
      found = std::move(attached);
    }
    return is_gone;
  });
  if (!found) {
    TRY_ASSIGN(found, make(options));
  }
  holders.push_back({::getpid(), found->fd.get()});
  TRY(write_list(list, holders));
  return std::unique_ptr<ImageStore>(
      new ImageStore(std::move(list), std::move(found->memory), std::move(found->fd)));
}

ImageStore::Found ImageStore::find(std::uint64_t image, std::uint64_t size) const {
  Head& all = head();
  ENSURE(image < all.images, "an image of the set");
  std::uint64_t entry = all.index()[image].load(std::memory_order_acquire);
  const std::uint64_t kept = entry & ((std::uint64_t{1} << kSizeBits) - 1);
  if (entry == 0 || (entry & kClaimed) != 0 || kept != size) {
    return {};
  }
  const ByteSpan bytes(memory_.data() + all.first_byte() + (entry >> kSizeBits) * kAlignment, size);
  if (!is_checked(image)) {
    if (digest_of(bytes) != all.hashes()[image]) {
      // Others that have checked it may still read it, so its place is not used again.
      all.index()[image].compare_exchange_strong(entry, 0, std::memory_order_relaxed);
      return {.bytes = {}, .is_damaged = true};
    }
    set_checked(image);
  }
  from_stores() += size;
  return {.bytes = bytes};
}

ImageStore::Kept ImageStore::kept(std::uint64_t image) const {
  Head& all = head();
  ENSURE(image < all.images, "an image of the set");
  const std::uint64_t entry = all.index()[image].load(std::memory_order_acquire);
  if (entry == 0 || (entry & kClaimed) != 0) {
    return {};
  }
  const std::uint64_t size = entry & ((std::uint64_t{1} << kSizeBits) - 1);
  const std::byte* const begin =
      memory_.data() + all.first_byte() + (entry >> kSizeBits) * kAlignment;
  return {.bytes = {begin, size}, .digest = all.hashes()[image]};
}

bool ImageStore::is_checked(std::uint64_t image) const {
  return (checked_[image / 64].load(std::memory_order_relaxed) >> (image % 64) & 1) != 0;
}

void ImageStore::set_checked(std::uint64_t image) const {
  checked_[image / 64].fetch_or(std::uint64_t{1} << (image % 64), std::memory_order_relaxed);
}

void ImageStore::keep(std::uint64_t image, ByteSpan bytes) {
  Head& all = head();
  ENSURE(image < all.images && !bytes.empty() && bytes.size() < (std::uint64_t{1} << kSizeBits),
         "an image of the set");
  std::atomic<std::uint64_t>& entry = all.index()[image];
  const std::uint64_t claim = kClaimed | static_cast<std::uint32_t>(::getpid());
  std::uint64_t before = entry.load(std::memory_order_relaxed);
  if ((before & kClaimed) != 0) {
    // Who has died while it kept the image will not finish.
    const auto claimant = static_cast<::pid_t>(before & UINT32_MAX);
    if (claimant == ::getpid() || ::kill(claimant, 0) == 0 || errno != ESRCH) {
      return;
    }
  } else if (before != 0) {
    return;
  }
  if (entry.compare_exchange_strong(before, claim, std::memory_order_acquire)) {
    claimed(image, claim, bytes);
  }
}

void ImageStore::claimed(std::uint64_t image, std::uint64_t claim, ByteSpan bytes) {
  Head& all = head();
  std::atomic<std::uint64_t>& entry = all.index()[image];
  const std::uint64_t room = round_up(bytes.size(), kAlignment);
  std::uint64_t place = all.used.load(std::memory_order_relaxed);
  do {
    if (room > all.bytes_max - place) {
      entry.compare_exchange_strong(claim, 0, std::memory_order_relaxed);
      return;
    }
  } while (!all.used.compare_exchange_weak(place, place + room, std::memory_order_relaxed));
  const std::uint64_t at = all.first_byte() + place;
  if (!reserve_memory(fd_.get(), at, room)) {  // the system has less than it said
    entry.compare_exchange_strong(claim, 0, std::memory_order_relaxed);
    return;
  }
  std::memcpy(memory_.data() + at, bytes.data(), bytes.size());
  all.hashes()[image] = digest_of(bytes);
  set_checked(image);
  entry.store((place / kAlignment) << kSizeBits | bytes.size(), std::memory_order_release);
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
