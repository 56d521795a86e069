#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "base/bytes.hpp"
#include "base/result.hpp"

namespace mayfly::datasets {

/// Decodes JPEGs one after the other; the decoder's tables and buffers are used again. One thread.
class JpegDecoder {
 public:
  JpegDecoder();
  ~JpegDecoder();
  JpegDecoder(const JpegDecoder&) = delete;
  JpegDecoder& operator=(const JpegDecoder&) = delete;

  struct Image {
    int width = 0;
    int height = 0;
    std::span<const std::uint8_t> rgb;  ///< height x width x 3; valid until the next decode
  };
  /// kCorrupt, with libjpeg's reason, for anything it complains about, warnings included: a
  /// truncated file decodes to a half grey image with no more than a warning.
  [[nodiscard]] Result<Image> decode(ByteSpan jpeg);

 private:
  struct Handle;
  std::unique_ptr<Handle> handle_;
  std::vector<std::uint8_t> pixels_;
};

}  // namespace mayfly::datasets
