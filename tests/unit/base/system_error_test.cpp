#include "base/system_error.hpp"

#include <gtest/gtest.h>

#include <cerrno>

namespace mayfly {
namespace {

TEST(SystemError, SaysWhatHappenedAndWhatTheSystemSays) {
  const Error error = system_error("cannot open a", ENOENT, Errc::kNotFound);
  EXPECT_EQ(error.code, Errc::kNotFound);
  EXPECT_EQ(error.detail, "cannot open a: No such file or directory");
  EXPECT_EQ(system_error("cannot write b", ENOSPC).code, Errc::kIo);
}

}  // namespace
}  // namespace mayfly
