#pragma once

// Memory that the processes of one user on a host share and that no single process owns: a memfd.
// Processes find it through a file that lists the processes that have it open. It is freed when the
// last of them ends, in whatever way. If the last one is killed, the list and its lock file stay.

#include <atomic>
#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <string>

#include "base/digest.hpp"
#include "base/result.hpp"
#include "base/sealed_memory.hpp"
#include "base/time.hpp"
#include "base/unique_fd.hpp"
#include "base/usable_memory.hpp"

namespace mayfly::datasets {

class HostMemory {
 public:
  struct Options {
    const char* what = "";  ///< name in error messages
    std::string name;       ///< name of its list of processes
    std::string folder;     ///< of the lists; empty = a folder of this user, in memory if possible
    std::uint64_t bytes_max = 0;                ///< upper bound on new memory
    std::uint64_t (*usable)() = usable_memory;  ///< see usable_memory()
  };
  struct Mapping {
    SealedMemory memory;
    UniqueFd fd;
  };
  /// Maps the memory of another process from its descriptor and size in bytes; nothing if it is not
  /// the memory that is wanted.
  using Map = std::function<std::optional<Mapping>(UniqueFd fd, std::uint64_t size)>;
  /// Creates the memory, ready for other processes.
  using Make = std::function<Result<Mapping>()>;

  /// Joins the memory of this name, or creates it. kInvalidInput, in one line, if the new memory
  /// and other memory of this folder together could take more than this process may still take;
  /// errors of `make`; kIo.
  [[nodiscard]] static Result<std::unique_ptr<HostMemory>> join(const Options& options,
                                                                const Map& map, const Make& make);
  ~HostMemory();
  HostMemory(const HostMemory&) = delete;
  HostMemory& operator=(const HostMemory&) = delete;

  [[nodiscard]] std::byte* data() const { return mapping_.memory.data(); }
  /// Open as long as other processes may join through this process.
  [[nodiscard]] int fd() const { return mapping_.fd.get(); }

  // Memory that was available at the start may be used by other processes later, and then the
  // kernel would kill processes. So each allocation asks first. Any thread:
  /// Takes so many bytes; false: too few would be left for the rest of the machine, or of the
  /// control group.
  [[nodiscard]] bool take(std::uint64_t bytes);
  void give_back(std::uint64_t bytes);
  /// The number of bytes that take() would allow now.
  [[nodiscard]] std::uint64_t left();

  /// Renews the list every hour, so that it is not removed from /tmp as old. Any thread.
  void stay_listed(Instant now);

 private:
  HostMemory(const Options& options, std::string folder, std::uint64_t bytes_max, Mapping mapping);
  void measure();

  const std::string list_;
  const std::string lock_;
  const std::uint64_t bytes_max_;
  std::uint64_t (*const usable_)();
  const Mapping mapping_;
  std::atomic<Instant> listed_ = monotonic_now();
  std::mutex mutex_;  // guards everything below
  std::optional<Instant> measured_;
  std::uint64_t bytes_left_ = 0;
};

/// A key that no other process uses, for memory that is not shared.
[[nodiscard]] Digest unshared_key();

}  // namespace mayfly::datasets
