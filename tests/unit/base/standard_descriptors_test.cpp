#include "base/standard_descriptors.hpp"

#include <gtest/gtest.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

namespace mayfly {
namespace {

bool is_null_device(int descriptor) {
  struct stat device {};
  struct stat null {};
  return ::fstat(descriptor, &device) == 0 && ::stat("/dev/null", &null) == 0 &&
         S_ISCHR(device.st_mode) && device.st_rdev == null.st_rdev;
}

// Goal: whichever of the three are closed lead nowhere, and the others are as they were.
// Method: every set of them is closed in a child, of which the exit code tells what is wrong.
TEST(StandardDescriptors, ThoseThatAreClosedLeadNowhere) {
  for (unsigned closed = 0; closed < 8; ++closed) {
    int ends[2];
    ASSERT_EQ(::pipe(ends), 0);
    const pid_t child = ::fork();
    if (child == 0) {
      for (int fd = 0; fd < 3; ++fd) {
        if ((closed >> fd & 1U) != 0) {
          ::close(fd);
        } else {
          ::dup2(ends[1], fd);
        }
      }
      open_closed_standard_descriptors();
      int wrong = 0;
      for (int fd = 0; fd < 3; ++fd) {
        wrong += is_null_device(fd) == ((closed >> fd & 1U) != 0) ? 0 : 1 << fd;
      }
      ::_exit(wrong);
    }
    int status = 0;
    ASSERT_EQ(::waitpid(child, &status, 0), child);
    EXPECT_EQ(status, 0) << "closed " << closed;
    ::close(ends[0]);
    ::close(ends[1]);
  }
}

}  // namespace
}  // namespace mayfly
