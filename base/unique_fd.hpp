#pragma once

#include <utility>

namespace mayfly {

/// Owns a POSIX descriptor and closes it.
class UniqueFd {
 public:
  UniqueFd() = default;
  explicit UniqueFd(int fd) : fd_(fd) {}
  ~UniqueFd() { reset(); }
  UniqueFd(UniqueFd&& other) noexcept : fd_(std::exchange(other.fd_, -1)) {}
  UniqueFd& operator=(UniqueFd&& other) noexcept {
    if (this != &other) {
      reset();
      fd_ = std::exchange(other.fd_, -1);
    }
    return *this;
  }

  [[nodiscard]] int get() const { return fd_; }
  [[nodiscard]] bool valid() const { return fd_ >= 0; }
  /// Returns the descriptor and no longer owns it; the caller closes it.
  [[nodiscard]] int release() { return std::exchange(fd_, -1); }
  void reset();

 private:
  int fd_ = -1;
};

/// Opens /dev/null on those of the descriptors 0, 1 and 2 that are closed. Called first in main,
/// because otherwise the next pipe, socket or file that is opened would become standard input,
/// output or error, and receive what is printed. Makes system calls only, so a forked child may
/// call it. If /dev/null does not exist, the descriptors stay closed.
void open_closed_standard_descriptors();

}  // namespace mayfly
