#include "benchmarks/ranks/shared_barrier.hpp"

#include <fcntl.h>
#include <sched.h>
#include <sys/mman.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <chrono>
#include <cstring>
#include <thread>
#include <utility>

#include "base/unique_fd.hpp"

namespace mayfly::bench {

/// A new file contains zeros, which is a barrier without waiting processes.
struct SharedBarrier::Shared {
  alignas(64) std::atomic<std::uint32_t> arrived;
  alignas(64) std::atomic<std::uint32_t> generation;
};

static_assert(std::atomic<std::uint32_t>::is_always_lock_free, "shared between processes");

namespace {

constexpr Duration kSpinTime = std::chrono::microseconds(50);
constexpr Duration kYieldTime = milliseconds(2);
constexpr auto kSleep = std::chrono::microseconds(100);

void pause_briefly() {
#if defined(__x86_64__)
  __builtin_ia32_pause();
#endif
}

}  // namespace

Result<SharedBarrier> SharedBarrier::open(const std::string& path, std::uint32_t size) {
  const UniqueFd fd(::open(path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0600));
  if (!fd.valid() || ::ftruncate(fd.get(), sizeof(Shared)) != 0) {
    return Error{Errc::kIo, "cannot use the barrier " + path + ": " + std::strerror(errno)};
  }
  void* mapped = ::mmap(nullptr, sizeof(Shared), PROT_READ | PROT_WRITE, MAP_SHARED, fd.get(), 0);
  if (mapped == MAP_FAILED) {
    return Error{Errc::kIo, "cannot map the barrier " + path + ": " + std::strerror(errno)};
  }
  return SharedBarrier(static_cast<Shared*>(mapped), size);
}

SharedBarrier::SharedBarrier(Shared* shared, std::uint32_t size)
    : shared_(shared), size_(size), crowded_(size > std::thread::hardware_concurrency()) {}

SharedBarrier::SharedBarrier(SharedBarrier&& other) noexcept
    : shared_(std::exchange(other.shared_, nullptr)),
      size_(other.size_),
      crowded_(other.crowded_) {}

SharedBarrier::~SharedBarrier() {
  if (shared_ != nullptr) {
    ::munmap(shared_, sizeof(Shared));
  }
}

Result<void> SharedBarrier::wait(Instant deadline) {
  const std::uint32_t generation = shared_->generation.load(std::memory_order_acquire);
  if (shared_->arrived.fetch_add(1, std::memory_order_acq_rel) + 1 == size_) {
    shared_->arrived.store(0, std::memory_order_relaxed);
    shared_->generation.store(generation + 1, std::memory_order_release);
    return {};
  }
  const auto over = [&] {
    return shared_->generation.load(std::memory_order_acquire) != generation;
  };
  // A process that spins on a core which a late rank needs delays that rank.
  const Instant begin = monotonic_now();
  const Instant spin_until = crowded_ ? begin : begin + kSpinTime;
  while (!over()) {
    const Instant now = monotonic_now();
    if (now > deadline) {
      return Error{Errc::kDeadline, "not all ranks came to the barrier"};
    }
    if (now < spin_until) {
      pause_briefly();
    } else if (now < spin_until + kYieldTime) {
      ::sched_yield();
    } else {
      std::this_thread::sleep_for(kSleep);
    }
  }
  return {};
}

}  // namespace mayfly::bench
