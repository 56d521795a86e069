#pragma once

// The machine on which tests of the kernels run: the CPU here, a GPU in tests/gpu. Its memory
// contains garbage until it is written, and has a guard at each end.

#include <gtest/gtest.h>

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <new>
#include <tuple>
#include <utility>
#include <vector>

#include "collectives/plan/half_floats.hpp"
#include "nn/cuda/kernels/kernels.hpp"

namespace mayfly::nn::cuda::test {

class Machine {
 public:
  virtual ~Machine() = default;

  [[nodiscard]] virtual const Kernels& kernels() const = 0;
  [[nodiscard]] virtual Stream stream() const = 0;
  /// Returns memory that is aligned to 256 bytes.
  virtual void* allocate(std::size_t bytes) = 0;
  virtual void free(void* memory) = 0;
  virtual void write(void* to, const void* from, std::size_t bytes) = 0;
  /// Reads after all started kernels have ended.
  virtual void read(void* to, const void* from, std::size_t bytes) = 0;
};

/// The host's kernels in the host's memory.
class HostMachine final : public Machine {
 public:
  [[nodiscard]] const Kernels& kernels() const override { return host_kernels(); }
  [[nodiscard]] Stream stream() const override { return nullptr; }
  void* allocate(std::size_t bytes) override {
    return ::operator new (bytes, std::align_val_t{256});
  }
  void free(void* memory) override { ::operator delete (memory, std::align_val_t{256}); }
  void write(void* to, const void* from, std::size_t bytes) override {
    std::memcpy(to, from, bytes);
  }
  void read(void* to, const void* from, std::size_t bytes) override {
    std::memcpy(to, from, bytes);
  }
};

/// Memory of a machine.
class Region {
 public:
  Region(Machine& machine, std::size_t bytes)
      : machine_(&machine), bytes_(bytes), memory_(machine.allocate(bytes + 2 * kGuard)) {
    const std::vector<std::uint8_t> garbage(bytes + 2 * kGuard, kGarbage);
    machine.write(memory_, garbage.data(), garbage.size());
  }
  ~Region() {
    expect_guards();
    machine_->free(memory_);
  }
  Region(const Region&) = delete;
  Region& operator=(const Region&) = delete;

  [[nodiscard]] void* data() const { return static_cast<std::byte*>(memory_) + kGuard; }
  [[nodiscard]] std::size_t bytes() const { return bytes_; }
  [[nodiscard]] Machine& machine() const { return *machine_; }

 private:
  static constexpr std::size_t kGuard = 256;
  static constexpr std::uint8_t kGarbage = 0xa5;

  void expect_guards() const {
    std::vector<std::uint8_t> all(bytes_ + 2 * kGuard);
    machine_->read(all.data(), memory_, all.size());
    for (std::size_t i = 0; i < kGuard; ++i) {
      EXPECT_EQ(all[i], kGarbage) << "something was written before the memory it was given";
      EXPECT_EQ(all[all.size() - 1 - i], kGarbage) << "... or behind it";
      if (testing::Test::HasFailure()) {
        return;
      }
    }
  }

  Machine* machine_;
  std::size_t bytes_;
  void* memory_;
};

template <typename T>
class Array {
 public:
  Array(Machine& machine, std::size_t count) : region_(machine, count * sizeof(T)) {}
  Array(Machine& machine, const std::vector<T>& values) : Array(machine, values.size()) {
    machine.write(region_.data(), values.data(), region_.bytes());
  }

  [[nodiscard]] T* data() const { return static_cast<T*>(region_.data()); }
  [[nodiscard]] std::vector<T> values() const {
    std::vector<T> out(region_.bytes() / sizeof(T));
    region_.machine().read(out.data(), region_.data(), region_.bytes());
    return out;
  }

 private:
  Region region_;
};

/// Converts with code that is independent of the kernels. `dtype` has 16 bits.
inline std::vector<std::uint16_t> to_halves(Dtype dtype, const std::vector<float>& values) {
  std::vector<std::uint16_t> out(values.size());
  dtype == Dtype::kBf16 ? collectives::to_bf16(values, out) : collectives::to_fp16(values, out);
  return out;
}
inline std::vector<float> from_halves(Dtype dtype, const std::vector<std::uint16_t>& halves) {
  std::vector<float> out(halves.size());
  dtype == Dtype::kBf16 ? collectives::from_bf16(halves, out) : collectives::from_fp16(halves, out);
  return out;
}

/// The largest relative error of rounding a number to `dtype`, if it is not subnormal there.
inline double rounding_of(Dtype dtype) {
  return dtype == Dtype::kBf16 ? 1.0 / 256 : dtype == Dtype::kFp16 ? 1.0 / 2048 : 0;
}

/// The values after they were stored as `dtype`.
inline std::vector<float> as_stored(Dtype dtype, const std::vector<float>& values) {
  return dtype == Dtype::kFp32 ? values : from_halves(dtype, to_halves(dtype, values));
}

/// Activations in memory. Tests write and read them as floats.
class Tensor {
 public:
  Tensor(Machine& machine, Dtype dtype, std::size_t count)
      : dtype_(dtype), count_(count), region_(machine, count * bytes_of(dtype)) {}
  Tensor(Machine& machine, Dtype dtype, const std::vector<float>& values)
      : Tensor(machine, dtype, values.size()) {
    if (dtype == Dtype::kFp32) {
      machine.write(region_.data(), values.data(), region_.bytes());
    } else {
      const std::vector<std::uint16_t> narrow = to_halves(dtype, values);
      machine.write(region_.data(), narrow.data(), region_.bytes());
    }
  }

  [[nodiscard]] void* data() const { return region_.data(); }
  [[nodiscard]] std::vector<float> values() const {
    if (dtype_ == Dtype::kFp32) {
      std::vector<float> out(count_);
      region_.machine().read(out.data(), region_.data(), region_.bytes());
      return out;
    }
    std::vector<std::uint16_t> narrow(count_);
    region_.machine().read(narrow.data(), region_.data(), region_.bytes());
    return from_halves(dtype_, narrow);
  }

 private:
  Dtype dtype_;
  std::size_t count_;
  Region region_;
};

template <typename T>
bool same_bits(const std::vector<T>& a, const std::vector<T>& b) {
  return a.size() == b.size() &&
         (a.empty() || std::memcmp(a.data(), b.data(), a.size() * sizeof(T)) == 0);
}

/// Compares the bits of results that list their vectors in all().
template <typename Result>
bool same_results(const Result& a, const Result& b) {
  const auto of_a = a.all();
  const auto of_b = b.all();
  return [&]<std::size_t... kIndex>(std::index_sequence<kIndex...>) {
    return (same_bits(std::get<kIndex>(of_a), std::get<kIndex>(of_b)) && ...);
  }
  (std::make_index_sequence<std::tuple_size_v<decltype(of_a)>>{});
}

}  // namespace mayfly::nn::cuda::test
