#pragma once

// The encoded images that the workers of a host keep in memory together, each once, so that they
// are read from storage in the first epoch only. What was kept stays until the last process has
// gone: nothing is ever replaced. So a store that has room for a share c of a data set serves that
// share of every epoch, whereas a cache that evicts what was used least recently serves less of a
// set that is read in a new order each time (Mohan et al., "Analyzing and Mitigating Data Stalls in
// DNN Training", PVLDB 14(5), 2021, call it MinIO).
//
// The memory is a memfd that every process maps. It is found by way of a file that lists the
// processes that have it, and ends with the last of them, however that ends. Readers take no lock;
// an image is published after its last byte is written. Beside it is its XXH3-128, taken from what
// storage gave; each process checks an image that another one has kept before it uses it.

#include <atomic>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "base/bytes.hpp"
#include "base/digest.hpp"
#include "base/result.hpp"
#include "base/sealed_memory.hpp"
#include "base/unique_fd.hpp"

namespace mayfly::datasets {

/// The largest store.
inline constexpr std::uint64_t kStoreBytesMax = std::uint64_t{1} << 39;

class ImageStore {
 public:
  struct Options {
    Digest key;                   ///< of the images: stores with equal keys are one
    std::uint64_t images = 0;     ///< at least 1
    std::uint64_t bytes_max = 0;  ///< for the images together; at most kStoreBytesMax
    std::string folder;  ///< for the list of processes; empty = of this user, in memory if possible
  };

  /// Joins the store of the host, or makes it. kInvalidInput, in one line, if a new one would need
  /// more memory than this process may still take; kIo for what the system refuses. A store that
  /// another process has made keeps that process's size.
  [[nodiscard]] static Result<std::unique_ptr<ImageStore>> join(const Options& options);
  ~ImageStore();
  ImageStore(const ImageStore&) = delete;
  ImageStore& operator=(const ImageStore&) = delete;

  struct Found {
    ByteSpan bytes;           ///< valid as long as the store; empty if there are none to use
    bool is_damaged = false;  ///< they were kept, but are no longer what storage gave
  };
  /// The `size` bytes of an image; none if it is not kept, or with another size. A damaged image is
  /// found once and may then be kept again. Any thread.
  [[nodiscard]] Found find(std::uint64_t image, std::uint64_t size) const;
  struct Kept {
    ByteSpan bytes;  ///< valid as long as the store; empty if the image is not kept
    Digest digest;   ///< of what storage gave
  };
  /// An image to send to another host, which has to compare the hash. Any thread.
  [[nodiscard]] Kept kept(std::uint64_t image) const;
  /// Keeps a copy, unless there is no room for it or another thread or process is about to. Any
  /// thread.
  void keep(std::uint64_t image, ByteSpan bytes);

  /// Of all processes together. Any thread.
  [[nodiscard]] std::uint64_t bytes_kept() const;
  [[nodiscard]] std::uint64_t bytes_max() const;
  [[nodiscard]] std::uint64_t images() const;
  /// Random: two processes with the same number have the same store.
  [[nodiscard]] std::uint64_t id() const;

 private:
  struct Head;
  struct Attached {
    SealedMemory memory;
    UniqueFd fd;
  };
  [[nodiscard]] static std::optional<Attached> attach(int process, int descriptor,
                                                      const Options& options);
  [[nodiscard]] static Result<Attached> make(const Options& options);

  ImageStore(std::string list, SealedMemory memory, UniqueFd fd);
  [[nodiscard]] Head& head() const;
  void claimed(std::uint64_t image, std::uint64_t claim, ByteSpan bytes);
  [[nodiscard]] bool is_checked(std::uint64_t image) const;
  void set_checked(std::uint64_t image) const;

  std::string list_;
  SealedMemory memory_;
  UniqueFd fd_;  // open as long as others may want to join by way of this process
  // A bit for each image whose bytes this process has kept itself or compared with their hash.
  mutable std::vector<std::atomic<std::uint64_t>> checked_;
};

/// Bytes that the calling thread has got from stores instead of from storage so far.
[[nodiscard]] std::uint64_t bytes_from_stores();
/// So many more, which came from the store of another host.
void count_from_store(std::uint64_t bytes);

}  // namespace mayfly::datasets
