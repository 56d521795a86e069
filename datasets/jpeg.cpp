#include "datasets/jpeg.hpp"

#include <turbojpeg.h>

#include "base/check.hpp"

namespace mayfly::datasets {
namespace {

constexpr int kJpegSideMax = 16'384;
constexpr std::int64_t kPixelsMax = std::int64_t{1} << 26;

// libjpeg's decompressor for one image. It is not reused: after a damaged header it stays inside
// its marker parser and refuses the next image, and an image without tables would be decoded with
// those of the image before. Creating one takes less than a microsecond.
class Handle {
 public:
  Handle() : decoder_(tjInitDecompress()) {
    ENSURE(decoder_ != nullptr, "libjpeg could not start");
  }
  ~Handle() { tjDestroy(decoder_); }
  Handle(const Handle&) = delete;
  Handle& operator=(const Handle&) = delete;

  [[nodiscard]] tjhandle get() const { return decoder_; }
  [[nodiscard]] Error error() const { return {Errc::kCorrupt, tjGetErrorStr2(decoder_)}; }

 private:
  tjhandle decoder_;
};

Result<JpegHeader> read_header(const Handle& handle, ByteSpan jpeg) {
  JpegHeader header;
  int subsampling = 0;
  int colours = 0;
  if (tjDecompressHeader3(handle.get(), reinterpret_cast<const unsigned char*>(jpeg.data()),
                          jpeg.size(), &header.width, &header.height, &subsampling,
                          &colours) != 0) {
    return handle.error();
  }
  if (header.width < 1 || header.height < 1 || header.width > kJpegSideMax ||
      header.height > kJpegSideMax || std::int64_t{header.width} * header.height > kPixelsMax) {
    return Error{Errc::kCorrupt, "claims to be " + std::to_string(header.width) + 'x' +
                                     std::to_string(header.height) + " pixels"};
  }
  header.channels = colours == TJCS_CMYK || colours == TJCS_YCCK ? 4 : colours == TJCS_GRAY ? 1 : 3;
  return header;
}

}  // namespace

Result<JpegHeader> read_jpeg_header(ByteSpan jpeg) {
  return read_header(Handle(), jpeg);
}

Result<RgbImage> JpegDecoder::decode(ByteSpan jpeg, int eighths) {
  ENSURE(eighths >= 1 && eighths <= 8, "decoding scales by whole eighths");
  const Handle handle;
  const Result<JpegHeader> header = read_header(handle, jpeg);
  if (!header.ok()) {
    return header.error();
  }
  if (header.value().channels == 4) {
    return Error{Errc::kInvalidInput, "has 4 channels (CMYK), expected 1 or 3"};
  }
  const tjscalingfactor factor{eighths, 8};
  RgbImage image;
  image.width = TJSCALED(header.value().width, factor);
  image.height = TJSCALED(header.value().height, factor);
  pixels_.resize(3U * static_cast<std::size_t>(image.width) *
                 static_cast<std::size_t>(image.height));
  if (tjDecompress2(handle.get(), reinterpret_cast<const unsigned char*>(jpeg.data()), jpeg.size(),
                    pixels_.data(), image.width, 0, image.height, TJPF_RGB,
                    TJFLAG_ACCURATEDCT) != 0) {
    return handle.error();
  }
  image.pixels = pixels_;
  return image;
}

}  // namespace mayfly::datasets
