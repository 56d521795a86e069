#pragma once

#include <cstdint>
#include <string>

#include "base/bytes.hpp"
#include "base/result.hpp"

namespace mayfly::datasets {

/// Larger JPEGs are refused.
inline constexpr std::uint64_t kJpegBytesMax = std::uint64_t{64} << 20;

/// Reads a whole file of `size` bytes into `buffer`, whose memory is reused; the span points into
/// it. kNotFound, kIo, or kCorrupt if the file has another size; the error names the file. Any
/// thread, with a buffer of its own.
[[nodiscard]] Result<ByteSpan> read_image_file(const std::string& path, std::uint64_t size,
                                               Bytes& buffer);

/// Reads at most the first `size_max` bytes; otherwise as read_image_file.
[[nodiscard]] Result<ByteSpan> read_image_start(const std::string& path, std::uint64_t size_max,
                                                Bytes& buffer);

}  // namespace mayfly::datasets
