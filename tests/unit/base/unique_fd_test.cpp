#include "base/unique_fd.hpp"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

namespace mayfly {
namespace {

int open_something() {
  return ::open("/dev/null", O_RDONLY | O_CLOEXEC);
}
bool is_open(int fd) {
  return ::fcntl(fd, F_GETFD) >= 0;
}

TEST(UniqueFd, ClosesWhenItGoes) {
  const int raw = open_something();
  {
    const UniqueFd fd(raw);
    EXPECT_TRUE(fd.valid());
    EXPECT_TRUE(is_open(raw));
  }
  EXPECT_FALSE(is_open(raw));
}

TEST(UniqueFd, MovesOwnershipAndClosesWhatItHeld) {
  const int first = open_something();
  const int second = open_something();
  UniqueFd a(first);
  UniqueFd b(second);
  a = std::move(b);
  EXPECT_FALSE(is_open(first));
  EXPECT_EQ(a.get(), second);
  EXPECT_TRUE(is_open(second));
}

TEST(UniqueFd, ReleasesWithoutClosing) {
  UniqueFd fd(open_something());
  const int raw = fd.release();
  EXPECT_FALSE(fd.valid());
  EXPECT_TRUE(is_open(raw));
  const UniqueFd again(raw);
}

TEST(UniqueFd, IsEmptyByDefault) {
  EXPECT_FALSE(UniqueFd().valid());
}

bool is_null_device(int descriptor) {
  struct stat device {};
  struct stat null {};
  return ::fstat(descriptor, &device) == 0 && ::stat("/dev/null", &null) == 0 &&
         S_ISCHR(device.st_mode) && device.st_rdev == null.st_rdev;
}

// Goal: closed standard descriptors are opened on the null device, and open ones stay as they are.
// Method: for each set of the three, a child process closes the set; its exit code has a bit for
// each wrong descriptor.
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
