#include "engine/run/line_file.hpp"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/resource.h>

#include "base/file.hpp"
#include "tests/unit/engine/temporary_folder.hpp"

namespace mayfly::engine {
namespace {

/// Appends while the file may have only six bytes, as on a disk that is nearly full.
Result<void> append_to_full_disk(LineFile& file, const std::string& record) {
  rlimit usual{};
  EXPECT_EQ(::getrlimit(RLIMIT_FSIZE, &usual), 0);
  rlimit small = usual;
  small.rlim_cur = 6;
  const auto handler = ::signal(SIGXFSZ, SIG_IGN);
  EXPECT_EQ(::setrlimit(RLIMIT_FSIZE, &small), 0);
  Result<void> done = file.append(record);
  EXPECT_EQ(::setrlimit(RLIMIT_FSIZE, &usual), 0);
  ::signal(SIGXFSZ, handler);
  return done;
}

TEST(LineFile, CutsOffARecordThatDoesNotFit) {
  const test_support::TemporaryFolder folder;
  const auto file = LineFile::open(folder / "lines", LineFile::Content::kLines).value();
  ASSERT_TRUE(file->append("a").ok());
  EXPECT_FALSE(append_to_full_disk(*file, "0123456789").ok());
  EXPECT_EQ(read_text_file(folder / "lines", 100).value(), "a\n");
  ASSERT_TRUE(file->append("b").ok());
  EXPECT_EQ(read_text_file(folder / "lines", 100).value(), "a\nb\n");
}

TEST(LineFile, AppendsNothingToARecordThatCannotBeCutOff) {
  const UniqueFd memory(::memfd_create("lines", MFD_CLOEXEC | MFD_ALLOW_SEALING));
  const std::string path = "/proc/self/fd/" + std::to_string(memory.get());
  const auto file = LineFile::open(path, LineFile::Content::kLines).value();
  ASSERT_TRUE(file->append("a").ok());
  ASSERT_EQ(::fcntl(memory.get(), F_ADD_SEALS, F_SEAL_SHRINK), 0);
  const Result<void> torn = append_to_full_disk(*file, "0123456789");
  ASSERT_FALSE(torn.ok());
  EXPECT_NE(torn.error().detail.find("cannot cut the torn last record"), std::string::npos)
      << torn.error().detail;
  EXPECT_FALSE(file->append("b").ok());
  EXPECT_EQ(read_text_file(path, 100).value(), "a\n0123") << "as a crash would have left it";
}

}  // namespace
}  // namespace mayfly::engine
