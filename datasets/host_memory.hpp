#pragma once

// Memory that the processes of one user on a host share, without a process that owns it: a memfd,
// which is found by way of a file that lists the processes that have it, and ends with the last of
// them, however that ends. If the last one is killed, the list and its lock stay.

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
    const char* what = "";  ///< in errors
    std::string name;       ///< of its list of processes
    std::string folder;     ///< that has the lists; empty = of this user, in memory if possible
    std::uint64_t bytes_max = 0;                ///< that new memory may take up
    std::uint64_t (*usable)() = usable_memory;  ///< see there
  };
  struct Mapping {
    SealedMemory memory;
    UniqueFd fd;
  };
  /// The memory of another process by its descriptor and size in bytes; nothing if it is not what
  /// is looked for.
  using Map = std::function<std::optional<Mapping>(UniqueFd fd, std::uint64_t size)>;
  /// Makes it, ready for others.
  using Make = std::function<Result<Mapping>()>;

  /// Joins the memory of this name, or makes it. kInvalidInput, in one line, if new memory may take
  /// up more than this process may still take, beside what other memory of this folder may; errors
  /// of `make`; kIo.
  [[nodiscard]] static Result<std::unique_ptr<HostMemory>> join(const Options& options,
                                                                const Map& map, const Make& make);
  ~HostMemory();
  HostMemory(const HostMemory&) = delete;
  HostMemory& operator=(const HostMemory&) = delete;

  [[nodiscard]] std::byte* data() const { return mapping_.memory.data(); }
  /// Open as long as others may want to join by way of this process.
  [[nodiscard]] int fd() const { return mapping_.fd.get(); }

  // Memory that was granted at the start may be used by other processes when it is needed, and then
  // the kernel ends processes. So each allocation asks first. Any thread:
  /// So many bytes more are taken; false: they would leave too few for the rest of the machine, or
  /// of the control group.
  [[nodiscard]] bool take(std::uint64_t bytes);
  void give_back(std::uint64_t bytes);
  /// Bytes that take() allows now.
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
  std::uint64_t left_ = 0;
};

/// A key of memory that no other process joins.
[[nodiscard]] Digest unshared_key();

}  // namespace mayfly::datasets
