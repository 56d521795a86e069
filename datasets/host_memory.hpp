#pragma once

// Memory that the processes of one user on a host share, without a process that owns it and without
// a file that could stay behind: a memfd, which is found by way of a file that lists the processes
// that have it, and ends with the last of them, however that ends.

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>

#include "base/result.hpp"
#include "base/sealed_memory.hpp"
#include "base/unique_fd.hpp"

namespace mayfly::datasets {

class HostMemory {
 public:
  struct Mapping {
    SealedMemory memory;
    UniqueFd fd;
  };
  /// The memory of another process by its descriptor and size in bytes; nothing if it is not what
  /// is looked for.
  using Map = std::function<std::optional<Mapping>(UniqueFd fd, std::uint64_t size)>;
  /// Makes it, ready for others.
  using Make = std::function<Result<Mapping>()>;

  /// Joins the memory of this name, or makes it. `folder` has the list of processes; empty = one of
  /// this user alone, in memory if possible. Errors of `make`; kIo.
  [[nodiscard]] static Result<std::unique_ptr<HostMemory>> join(const std::string& name,
                                                                std::string folder, const Map& map,
                                                                const Make& make);
  ~HostMemory();
  HostMemory(const HostMemory&) = delete;
  HostMemory& operator=(const HostMemory&) = delete;

  [[nodiscard]] std::byte* data() const { return mapping_.memory.data(); }
  /// Open as long as others may want to join by way of this process.
  [[nodiscard]] int fd() const { return mapping_.fd.get(); }

 private:
  HostMemory(std::string list, Mapping mapping)
      : list_(std::move(list)), mapping_(std::move(mapping)) {}

  std::string list_;
  Mapping mapping_;
};

/// Refuses, in one line, more memory for `what` than this process may still take.
[[nodiscard]] Result<void> check_memory(const char* what, std::uint64_t bytes);

}  // namespace mayfly::datasets
