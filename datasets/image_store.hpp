#pragma once

// The encoded images that the workers of a host keep in memory together, each once, so that they
// are read from storage in the first epoch only. An image that is kept stays until the last process
// has ended: nothing is ever replaced, except second copies of images that another host keeps (ADR
// 33). So a store with room for a share c of a data set serves that share of every epoch. A cache
// that evicts the least recently used image serves less, because the set is read in a new order
// each time (Mohan et al., "Analyzing and Mitigating Data Stalls in DNN Training", PVLDB 14(5),
// 2021, call it MinIO).
//
// Every process maps the memory (host_memory.hpp). Readers take no lock; an image is published
// after its last byte is written. Beside it is its XXH3-128, computed from the bytes that storage
// returned; each process checks an image that another process has kept before it uses it.
//
// Second copies have pages of their own behind the mapped memory, which are returned to the system
// when a copy is given up. A place there is never used again (addresses cost nothing). So if a
// reader copies the bytes and then finds the entry unchanged, it has copied the kept bytes.

#include <atomic>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "base/bytes.hpp"
#include "base/digest.hpp"
#include "base/result.hpp"
#include "base/unique_fd.hpp"
#include "base/usable_memory.hpp"
#include "datasets/core/store_plan.hpp"
#include "datasets/host_memory.hpp"

namespace mayfly::datasets {

/// The largest store.
inline constexpr std::uint64_t kStoreBytesMax = std::uint64_t{1} << 39;

class ImageStore {
 public:
  struct Options {
    Digest key;                   ///< of the images: stores with equal keys are the same store
    std::uint64_t images = 0;     ///< at least 1
    std::uint64_t bytes_max = 0;  ///< for the images together; at most kStoreBytesMax
    std::string folder;           ///< see HostMemory::Options
    std::uint64_t (*usable)() = usable_memory;  ///< see usable_memory()
  };

  /// Joins the store of the host, or makes it. kInvalidInput, in one line, if a new one would need
  /// more memory than this process may still take beside other stores; kIo for errors of the
  /// system. A store that another process has made keeps its size.
  [[nodiscard]] static Result<std::unique_ptr<ImageStore>> join(const Options& options);
  ~ImageStore();
  ImageStore(const ImageStore&) = delete;
  ImageStore& operator=(const ImageStore&) = delete;

  struct Found {
    ByteSpan bytes;  ///< valid as long as the store and `copy`; empty if the image cannot be used
    bool is_damaged = false;  ///< the image was kept, but its bytes have changed since
  };
  /// The `size` bytes of an image; empty if it is not kept, or has another size. If the image may
  /// be given up, it is copied into `copy`. A damaged image is reported once and may then be kept
  /// again. Any thread.
  [[nodiscard]] Found find(std::uint64_t image, std::uint64_t size, Bytes& copy) const;
  struct Kept {
    ByteSpan bytes;  ///< valid as long as the store and `copy`; empty if the image is not kept
    Digest digest;   ///< hash of the bytes that storage returned
  };
  /// An image to send to another host, which has to compare the hash. Any thread.
  [[nodiscard]] Kept kept(std::uint64_t image, Bytes& copy) const;
  [[nodiscard]] bool keeps(std::uint64_t image) const;
  /// The index that is sent to other hosts. Any thread.
  [[nodiscard]] StoreIndex index() const;
  /// Keeps an image, unless there is no room for it, the system has too little memory left
  /// (HostMemory::take()), or another thread or process is keeping it. Gives up second copies for
  /// it, if that is allowed now. Returns whether the image was kept. Any thread.
  bool keep(std::uint64_t image, ByteSpan bytes);
  /// The same as a second copy, for which no other copy is given up.
  bool keep_second(std::uint64_t image, ByteSpan bytes);
  /// This second copy must not be given up any more. Any thread.
  void keep_for_good(std::uint64_t image);
  /// Whether second copies may be given up: not while it is unknown which images other hosts keep.
  /// Applies to all processes. Any thread.
  void allow_giving_up(bool is_allowed);

  /// These count for all processes together. Any thread.
  [[nodiscard]] std::uint64_t bytes_kept() const;
  [[nodiscard]] std::uint64_t bytes_max() const;
  [[nodiscard]] std::uint64_t images() const;
  /// Random: two processes with the same number have the same store.
  [[nodiscard]] std::uint64_t id() const;

 private:
  struct Head;
  [[nodiscard]] static std::optional<HostMemory::Mapping> attach(UniqueFd fd, std::uint64_t bytes,
                                                                 const Options& options);
  [[nodiscard]] static Result<HostMemory::Mapping> make(const Options& options);

  explicit ImageStore(std::unique_ptr<HostMemory> memory);
  [[nodiscard]] Head& head() const;
  [[nodiscard]] bool claim_and_keep(std::uint64_t image, ByteSpan bytes, bool as_second);
  [[nodiscard]] std::optional<std::uint64_t> store(ByteSpan bytes, bool as_second);
  [[nodiscard]] bool take_room(std::uint64_t bytes, bool gives_up);
  [[nodiscard]] bool take_free_room(std::uint64_t bytes);
  [[nodiscard]] bool drop_one_copy();
  [[nodiscard]] bool remove(std::uint64_t image, std::uint64_t entry) const;
  [[nodiscard]] Kept read(std::uint64_t image, std::uint64_t entry, Bytes& copy) const;
  [[nodiscard]] bool is_checked(std::uint64_t image) const;
  void set_checked(std::uint64_t image, std::uint64_t entry) const;

  std::unique_ptr<HostMemory> memory_;
  // A bit for each image whose bytes this process has kept itself or compared with their hash; not
  // for those with pages of their own, which are compared each time.
  mutable std::vector<std::atomic<std::uint64_t>> checked_;
};

/// Number of bytes that the calling thread has got from stores instead of from storage so far.
[[nodiscard]] std::uint64_t bytes_from_stores();
/// Adds bytes that came from the store of another host.
void count_from_store(std::uint64_t bytes);

}  // namespace mayfly::datasets
