#pragma once

// The channel between two members of one host: bytes go through shared memory, and a Unix-domain
// socket serves as the bell that ends a sleep and as the sign that the other side is gone (the
// kernel closes it whatever happens to the process).

#include <memory>
#include <utility>

#include "base/result.hpp"
#include "base/unique_fd.hpp"
#include "collectives/tcp/channel.hpp"
#include "collectives/tcp/sealed_memory.hpp"

namespace mayfly::collectives {

/// The memory of one such channel.
class ShmSegment {
 public:
  ShmSegment() = default;

  /// A new one, of zeros; `fd` is for the other side. kIo if the system gives none.
  [[nodiscard]] static Result<ShmSegment> create(UniqueFd& fd);
  /// Maps what the other side has created. kCorrupt if it has not the size and seals of one.
  [[nodiscard]] static Result<ShmSegment> map(int fd);

  [[nodiscard]] bool valid() const { return memory_.valid(); }
  /// The pipes from the creating side, and to it.
  [[nodiscard]] std::byte* from_creator() const { return memory_.data(); }
  [[nodiscard]] std::byte* to_creator() const;

 private:
  explicit ShmSegment(SealedMemory memory) : memory_(std::move(memory)) {}

  SealedMemory memory_;
};

/// `bell` is a connected Unix-domain socket that carries nothing else from now on.
[[nodiscard]] std::unique_ptr<Channel> make_shm_channel(UniqueFd bell, ShmSegment segment,
                                                        bool is_creator);

}  // namespace mayfly::collectives
