#pragma once

// Device memory and streams for the tests, without CUDA's types. A failed call ends the process,
// because results after it would be meaningless.

#include <cstddef>
#include <span>
#include <vector>

namespace mayfly::collectives::gpu_test {

/// Binds the calling thread to the one device.
void use_device();
/// Bytes of device memory that are in use by any process.
[[nodiscard]] std::size_t device_bytes_in_use();

[[nodiscard]] void* allocate_on_device(std::size_t bytes);
void free_on_device(void* data);
/// These wait until the copy is done.
void copy_to_device(void* to, const void* from, std::size_t bytes);
void copy_from_device(void* to, const void* from, std::size_t bytes);

/// A stream; handle() is a cudaStream_t.
class Stream {
 public:
  Stream();
  ~Stream();
  Stream(const Stream&) = delete;
  Stream& operator=(const Stream&) = delete;

  [[nodiscard]] void* handle() const { return stream_; }
  /// Adds a delay of a tenth of a second to the stream.
  void add_delay();
  /// Adds a copy on the device to the stream.
  void add_copy(void* to, const void* from, std::size_t bytes);
  void wait() const;

 private:
  void* stream_ = nullptr;
};

/// An array in device memory.
template <typename T>
class DeviceArray {
 public:
  explicit DeviceArray(std::size_t count)
      : count_(count), data_(static_cast<T*>(allocate_on_device(count * sizeof(T)))) {}
  explicit DeviceArray(const std::vector<T>& values) : DeviceArray(values.size()) {
    copy_to_device(data_, values.data(), values.size() * sizeof(T));
  }
  ~DeviceArray() { free_on_device(data_); }
  DeviceArray(const DeviceArray&) = delete;
  DeviceArray& operator=(const DeviceArray&) = delete;

  [[nodiscard]] std::vector<T> values() const {
    std::vector<T> out(count_);
    copy_from_device(out.data(), data_, count_ * sizeof(T));
    return out;
  }
  [[nodiscard]] T* data() const { return data_; }
  [[nodiscard]] std::span<std::byte> bytes() {
    return {reinterpret_cast<std::byte*>(data_), count_ * sizeof(T)};
  }

 private:
  std::size_t count_;
  T* data_;
};

}  // namespace mayfly::collectives::gpu_test
