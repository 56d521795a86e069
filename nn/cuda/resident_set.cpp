#include "nn/cuda/resident_set.hpp"

#include <cuda_runtime_api.h>

#include "nn/cuda/cuda_handles.hpp"

namespace mayfly::nn::cuda {

Result<void> copy_to_device(const TrainingSet& set, void* pixels, void* table, Stream stream) {
  const auto copy = [stream](void* to, const void* from, std::size_t bytes) {
    return check(
        cudaMemcpyAsync(to, from, bytes, cudaMemcpyHostToDevice, static_cast<cudaStream_t>(stream)),
        "copying the training set to the device");
  };
  Result<void> read =
      read_in_pieces(set, [&](std::size_t first, std::span<const std::uint8_t> piece) {
        return copy(static_cast<std::uint8_t*>(pixels) + first, piece.data(), piece.size_bytes());
      });
  return read.ok() ? copy(table, set.table.data(), sizeof set.table) : read;
}

}  // namespace mayfly::nn::cuda
