#include "base/unique_fd.hpp"

#include <fcntl.h>
#include <unistd.h>

namespace mayfly {

void UniqueFd::reset() {
  if (fd_ >= 0) {
    ::close(fd_);
    fd_ = -1;
  }
}

void open_closed_standard_descriptors() {
  for (const int wanted : {STDIN_FILENO, STDOUT_FILENO, STDERR_FILENO}) {
    if (::fcntl(wanted, F_GETFD) < 0) {
      // open() returns the lowest free descriptor, which is this one, because all lower ones are
      // open now.
      [[maybe_unused]] const int opened = ::open("/dev/null", O_RDWR);
    }
  }
}

}  // namespace mayfly
