#pragma once

#include <cstdint>
#include <vector>

#include "base/bytes.hpp"
#include "base/result.hpp"
#include "datasets/core/resample.hpp"

namespace mayfly::datasets {

/// What a JPEG says about itself before its pixels.
struct JpegHeader {
  int width = 0;
  int height = 0;
  int channels = 3;  ///< 1 (grey), 3, or 4 (CMYK or YCCK)
};

/// Reads the header; the bytes may end behind it. A function of the bytes alone. kCorrupt with
/// libjpeg's reason.
[[nodiscard]] Result<JpegHeader> read_jpeg_header(ByteSpan jpeg);

/// Decodes JPEGs one after the other; the buffer of the pixels is used again. One thread.
class JpegDecoder {
 public:
  /// The pixels, valid until the next decode; grey ones with three equal values. `eighths` from 1
  /// to 8 scales both sides to ceil(side * eighths / 8), which costs less than decoding everything
  /// and scaling it afterwards. A function of the bytes alone, whatever was decoded before.
  /// kCorrupt, with libjpeg's reason, for anything it complains about, warnings included: a
  /// truncated file decodes to a half grey image with no more than a warning. kInvalidInput for
  /// four channels.
  [[nodiscard]] Result<RgbImage> decode(ByteSpan jpeg, int eighths = 8);

 private:
  std::vector<std::uint8_t> pixels_;
};

}  // namespace mayfly::datasets
