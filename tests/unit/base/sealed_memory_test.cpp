#include "base/sealed_memory.hpp"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cstring>
#include <utility>

#include "base/net/sockets.hpp"

namespace mayfly {
namespace {

constexpr std::size_t kBytes = 3 * 4096;

TEST(SealedMemory, IsTheSameForBothSides) {
  UniqueFd fd;
  const SealedMemory made = SealedMemory::create(kBytes, fd).value();
  const SealedMemory mapped = SealedMemory::map(fd.get(), kBytes).value();
  fd = {};
  EXPECT_TRUE(std::all_of(mapped.data(), mapped.data() + kBytes,
                          [](std::byte byte) { return byte == std::byte{0}; }));
  made.data()[kBytes - 1] = std::byte{7};
  EXPECT_EQ(mapped.data()[kBytes - 1], std::byte{7});
}

TEST(SealedMemory, StaysForWhoHasMappedItWhenItsMakerIsGone) {
  UniqueFd fd;
  SealedMemory mapped;
  {
    const SealedMemory made = SealedMemory::create(kBytes, fd).value();
    mapped = SealedMemory::map(std::exchange(fd, {}).get(), kBytes).value();
    made.data()[0] = std::byte{9};
  }
  EXPECT_EQ(mapped.data()[0], std::byte{9});
}

TEST(SealedMemory, CannotBeTakenAway) {
  UniqueFd fd;
  const SealedMemory made = SealedMemory::create(kBytes, fd).value();
  EXPECT_NE(::ftruncate(fd.get(), 0), 0);
  EXPECT_NE(::ftruncate(fd.get(), 2 * kBytes), 0);
}

TEST(SealedMemory, RefusesWhatIsNotSealedOrNotOfItsSizeOrNoMemory) {
  UniqueFd fd;
  const SealedMemory made = SealedMemory::create(kBytes, fd).value();
  EXPECT_EQ(SealedMemory::map(fd.get(), kBytes + 4096).error().code, Errc::kCorrupt);
  EXPECT_EQ(SealedMemory::map(-1, kBytes).error().code, Errc::kCorrupt);
  const UniqueFd open(::memfd_create("test", MFD_CLOEXEC | MFD_ALLOW_SEALING));
  ASSERT_EQ(::ftruncate(open.get(), kBytes), 0);
  EXPECT_EQ(SealedMemory::map(open.get(), kBytes).error().code, Errc::kCorrupt);
  const UniqueFd file(::open("/proc/self/exe", O_RDONLY | O_CLOEXEC));
  EXPECT_EQ(SealedMemory::map(file.get(), kBytes).error().code, Errc::kCorrupt);
}

/// The pool of huge pages may be empty; the kernel then kills a process that accesses such memory.
TEST(SealedMemory, RefusesHugePages) {
  constexpr std::size_t kHuge = std::size_t{2} << 20;
  const UniqueFd fd(::memfd_create("test", MFD_CLOEXEC | MFD_ALLOW_SEALING | MFD_HUGETLB));
  if (!fd.valid() || ::ftruncate(fd.get(), kHuge) != 0 ||
      ::fcntl(fd.get(), F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL) != 0) {
    GTEST_SKIP() << "this system has no huge pages to hand over";
  }
  EXPECT_EQ(SealedMemory::map(fd.get(), kHuge).error().code, Errc::kCorrupt);
}

TEST(SealedMemory, CanBeReservedOnlyWhereItIs) {
  UniqueFd fd;
  const SealedMemory made = SealedMemory::create(kBytes, fd).value();
  EXPECT_TRUE(reserve_memory(fd.get(), 4096, 100));
  EXPECT_FALSE(reserve_memory(fd.get(), 0, kBytes + 4096));
  EXPECT_FALSE(reserve_memory(-1, 0, 4096));
}

/// The lowest free descriptor, which the kernel assigns next. A leaked descriptor raises it.
int lowest_free() {
  const UniqueFd probe(::dup(STDERR_FILENO));
  return probe.get();
}

TEST(ReceiveWithDescriptor, LeavesNoneOpenThatNobodyKnowsOf) {
  std::array<int, 2> ends{};
  ASSERT_EQ(::socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0, ends.data()), 0);
  const UniqueFd from(ends[0]);
  const UniqueFd to(ends[1]);
  const int before = lowest_free();
  std::byte byte{1};
  iovec bytes{&byte, 1};
  constexpr std::array<int, 2> kSent = {STDIN_FILENO, STDERR_FILENO};
  alignas(cmsghdr) std::array<char, CMSG_SPACE(sizeof kSent)> control{};
  msghdr message{};
  message.msg_iov = &bytes;
  message.msg_iovlen = 1;
  message.msg_control = control.data();
  message.msg_controllen = control.size();
  cmsghdr* const header = CMSG_FIRSTHDR(&message);
  header->cmsg_level = SOL_SOCKET;
  header->cmsg_type = SCM_RIGHTS;
  header->cmsg_len = CMSG_LEN(sizeof kSent);
  std::memcpy(CMSG_DATA(header), kSent.data(), sizeof kSent);
  ASSERT_EQ(::sendmsg(from.get(), &message, 0), 1);
  {
    UniqueFd kept;
    EXPECT_EQ(receive_with_descriptor(to.get(), std::span(&byte, 1), kept).bytes, 1U);
  }
  EXPECT_EQ(lowest_free(), before);
}

}  // namespace
}  // namespace mayfly
