// The costs of a step besides arithmetic, in a separate program, because it replaces operator new.

#include <dlfcn.h>
#include <gtest/gtest.h>
#include <sys/resource.h>

#include <atomic>
#include <cstdio>
#include <cstdlib>
#include <new>

#include "tests/unit/nn/engine_fixture.hpp"

// Counts every allocation through operator new, separately for two modules: this program, which
// contains all of our code, and oneDNN's library with the functions that it calls.
namespace {

std::atomic<bool> g_counting{false};
std::atomic<int> g_own_allocations{0};
std::atomic<int> g_foreign_allocations{0};

const void* own_module() {
  static const void* const base = [] {
    Dl_info info{};
    dladdr(reinterpret_cast<const void*>(&own_module), &info);
    return static_cast<const void*>(info.dli_fbase);
  }();
  return base;
}

void* allocate(std::size_t bytes, std::size_t alignment, const void* caller) {
  if (g_counting.load(std::memory_order_relaxed)) {
    Dl_info info{};
    const bool own = dladdr(caller, &info) != 0 && info.dli_fbase == own_module();
    (own ? g_own_allocations : g_foreign_allocations).fetch_add(1);
  }
  const std::size_t size = (bytes + alignment - 1) / alignment * alignment;
  void* const block = std::aligned_alloc(alignment, size == 0 ? alignment : size);
  if (block == nullptr) {
    throw std::bad_alloc();
  }
  return block;
}

}  // namespace

void* operator new(std::size_t bytes) {
  return allocate(bytes, 16, __builtin_return_address(0));
}
void* operator new[](std::size_t bytes) {
  return allocate(bytes, 16, __builtin_return_address(0));
}
void* operator new(std::size_t bytes, std::align_val_t alignment) {
  return allocate(bytes, static_cast<std::size_t>(alignment), __builtin_return_address(0));
}
// oneDNN allocates its temporary buffers with this operator.
void* operator new(std::size_t bytes, const std::nothrow_t&) noexcept {
  return allocate(bytes, 16, __builtin_return_address(0));
}
void operator delete(void* block) noexcept {
  std::free(block);
}
void operator delete[](void* block) noexcept {
  std::free(block);
}
void operator delete(void* block, std::size_t) noexcept {
  std::free(block);
}
void operator delete[](void* block, std::size_t) noexcept {
  std::free(block);
}
void operator delete(void* block, std::align_val_t) noexcept {
  std::free(block);
}
void operator delete(void* block, std::size_t, std::align_val_t) noexcept {
  std::free(block);
}

namespace mayfly::nn::cpu {
namespace {

TEST(SteadyStep, AllocatesNothingOfItsOwn) {
  const Fixture fixture("resnet20", 2);
  const auto engine = fixture.engine();
  std::vector<float> gradient(fixture.model.parameter_count);
  std::vector<float> statistics(fixture.model.statistic_count);
  RecordingSink sink;
  const auto step = [&](std::uint64_t version) {
    sink.clear();
    engine->train(fixture.weights(version), fixture.batch(), 0, gradient, statistics, sink);
  };
  step(1);
  g_own_allocations = 0;
  g_foreign_allocations = 0;
  g_counting = true;
  step(2);
  engine->evaluate(fixture.weights(3), fixture.batch());
  g_counting = false;
  EXPECT_EQ(g_own_allocations, 0);
  // oneDNN wraps the arguments of each call in small heap objects of its own and frees them.
  RecordProperty("foreign_allocations", g_foreign_allocations);
  std::printf("allocations inside oneDNN in one step and one evaluation: %d\n",
              g_foreign_allocations.load());
}

TEST(SteadyStep, TouchesNoNewMemory) {
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
  GTEST_SKIP() << "the sanitizer's own memory grows with every step";
#endif
  const Fixture fixture("resnet20", 16);
  const auto engine = fixture.engine();
  std::vector<float> gradient(fixture.model.parameter_count);
  std::vector<float> statistics(fixture.model.statistic_count);
  RecordingSink sink;
  const auto page_faults = [] {
    rusage usage{};
    getrusage(RUSAGE_THREAD, &usage);
    return usage.ru_minflt + usage.ru_majflt;
  };
  const auto step = [&](std::uint64_t version) {
    sink.clear();
    engine->train(fixture.weights(version), fixture.batch(), 0, gradient, statistics, sink);
  };
  step(1);
  step(2);
  const long before = page_faults();
  for (std::uint64_t version = 3; version < 8; ++version) {
    step(version);
  }
  // A step uses some 4,000 pages. The limit is not zero, because the kernel may move a page.
  EXPECT_LT(page_faults() - before, 50);
}

}  // namespace
}  // namespace mayfly::nn::cpu
