#include "base/unique_fd.hpp"

#include <fcntl.h>
#include <gtest/gtest.h>

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

}  // namespace
}  // namespace mayfly
