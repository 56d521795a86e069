#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "base/bytes.hpp"
#include "base/result.hpp"
#include "base/time.hpp"
#include "datasets/core/resample.hpp"

namespace mayfly::datasets {

/// Larger JPEGs are refused.
inline constexpr std::uint64_t kJpegBytesMax = std::uint64_t{64} << 20;
/// JPEGs with more pixels are refused, too.
inline constexpr std::int64_t kJpegPixelsMax = std::int64_t{1} << 26;

/// What happens to a file's pages in the kernel's cache after it was read.
enum class PageCache {
  kStays,
  kDropped,  ///< for files whose content is kept elsewhere, so that it is not in memory twice
};

/// Reads a whole file of `size` bytes into `buffer`, whose memory is reused; the span points into
/// it. kNotFound; kIo, also if the file has another size, because then it has changed, which does
/// not mean that the image is damaged. The error names the file. Any thread, with a buffer of its
/// own.
[[nodiscard]] Result<ByteSpan> read_image_file(const std::string& path, std::uint64_t size,
                                               Bytes& buffer, PageCache pages = PageCache::kStays);
/// The same for `size` bytes of an open file, which begin at `offset`; their pages are dropped.
/// `name` is for errors.
[[nodiscard]] Result<ByteSpan> read_image_at(int fd, std::uint64_t offset, std::uint64_t size,
                                             const std::string& name, Bytes& buffer);

/// How long the calling thread has spent in read_image_file() and read_image_at() so far.
[[nodiscard]] Duration time_reading_files();

/// Reads at most the first `size_max` bytes; otherwise as read_image_file.
[[nodiscard]] Result<ByteSpan> read_image_start(const std::string& path, std::uint64_t size_max,
                                                Bytes& buffer);

/// The properties in a JPEG's header.
struct JpegHeader {
  int width = 0;
  int height = 0;
  int channels = 3;  ///< 1 (grey), 3, or 4 (CMYK or YCCK)
};

/// Reads the header; the bytes after it may be missing. A function of the bytes alone. kCorrupt
/// with libjpeg's reason.
[[nodiscard]] Result<JpegHeader> read_jpeg_header(ByteSpan jpeg);

/// Decodes JPEGs one after the other, into a buffer that is reused. One thread.
class JpegDecoder {
 public:
  /// The pixels, valid until the next decode; grey images get three equal channels. `eighths` from
  /// 1 to 8 scales both sides to ceil(side * eighths / 8), which costs less than decoding
  /// everything and scaling it afterwards. A function of the bytes alone, independent of earlier
  /// images. kCorrupt with libjpeg's reason for any error or warning, because a truncated file
  /// decodes to a half grey image with only a warning. kInvalidInput for four channels.
  [[nodiscard]] Result<RgbImage> decode(ByteSpan jpeg, int eighths = 8);

 private:
  std::vector<std::uint8_t> pixels_;
};

/// Encodes an image, with half the resolution for colours, replacing `jpeg`, whose memory is
/// reused. `quality` is from 1 to 100. The bytes are a function of the image for one version of
/// libjpeg-turbo. Any thread, with a buffer of its own.
void encode_jpeg(const RgbImage& image, int quality, Bytes& jpeg);

/// A hash of the pixels to which the libjpeg of this process decodes fixed images, at all the
/// scales that are used. Processes with different hashes decode the same JPEG differently;
/// comparing versions is not enough, because distributions patch the library. Takes about a
/// millisecond. Any thread.
[[nodiscard]] std::string jpeg_identity();

}  // namespace mayfly::datasets
