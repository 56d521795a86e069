#pragma once

// The channel between two members of one host: bytes go through shared memory, and a Unix-domain
// socket serves as the bell that ends a sleep and as the sign that the other side is gone (the
// kernel closes it whatever happens to the process).

#include <memory>

#include "base/result.hpp"
#include "base/unique_fd.hpp"
#include "collectives/tcp/channel.hpp"

namespace mayfly::collectives {

/// Memory that two processes share; unmapped when destroyed.
class ShmSegment {
 public:
  ShmSegment() = default;
  ShmSegment(ShmSegment&& other) noexcept;
  ShmSegment& operator=(ShmSegment&& other) noexcept;
  ~ShmSegment();

  /// A new one, of zeros, that nobody can resize any more; `fd` is for the other side. kIo if the
  /// system gives none.
  [[nodiscard]] static Result<ShmSegment> create(UniqueFd& fd);
  /// Maps what the other side has created. kCorrupt if it has not the size and seals of one.
  [[nodiscard]] static Result<ShmSegment> map(int fd);

  [[nodiscard]] bool valid() const { return memory_ != nullptr; }
  /// The pipes from the creating side, and to it.
  [[nodiscard]] std::byte* from_creator() const { return memory_; }
  [[nodiscard]] std::byte* to_creator() const;

 private:
  explicit ShmSegment(std::byte* memory) : memory_(memory) {}

  std::byte* memory_ = nullptr;
};

/// `bell` is a connected Unix-domain socket that carries nothing else from now on.
[[nodiscard]] std::unique_ptr<Channel> make_shm_channel(UniqueFd bell, ShmSegment segment,
                                                        bool is_creator);

}  // namespace mayfly::collectives
