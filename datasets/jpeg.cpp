#include "datasets/jpeg.hpp"

#include <turbojpeg.h>

#include "base/check.hpp"

namespace mayfly::datasets {
namespace {

constexpr int kSideMax = 16'384;
constexpr std::int64_t kPixelsMax = std::int64_t{1} << 26;

}  // namespace

struct JpegDecoder::Handle {
  Handle() : decoder(tjInitDecompress()) { ENSURE(decoder != nullptr, "libjpeg could not start"); }
  ~Handle() { tjDestroy(decoder); }
  Handle(const Handle&) = delete;
  Handle& operator=(const Handle&) = delete;

  tjhandle decoder;
};

JpegDecoder::JpegDecoder() : handle_(std::make_unique<Handle>()) {}
JpegDecoder::~JpegDecoder() = default;

Result<JpegHeader> JpegDecoder::read_header(ByteSpan jpeg) {
  const tjhandle decoder = handle_->decoder;
  JpegHeader header;
  int subsampling = 0;
  int colours = 0;
  if (tjDecompressHeader3(decoder, reinterpret_cast<const unsigned char*>(jpeg.data()), jpeg.size(),
                          &header.width, &header.height, &subsampling, &colours) != 0) {
    return Error{Errc::kCorrupt, tjGetErrorStr2(decoder)};
  }
  if (header.width < 1 || header.height < 1 || header.width > kSideMax ||
      header.height > kSideMax || std::int64_t{header.width} * header.height > kPixelsMax) {
    return Error{Errc::kCorrupt, "claims to be " + std::to_string(header.width) + 'x' +
                                     std::to_string(header.height) + " pixels"};
  }
  header.channels = colours == TJCS_CMYK || colours == TJCS_YCCK ? 4 : colours == TJCS_GRAY ? 1 : 3;
  return header;
}

Result<RgbImage> JpegDecoder::decode(ByteSpan jpeg, int eighths) {
  ENSURE(eighths >= 1 && eighths <= 8, "decoding scales by whole eighths");
  const Result<JpegHeader> header = read_header(jpeg);
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
  const tjhandle decoder = handle_->decoder;
  if (tjDecompress2(decoder, reinterpret_cast<const unsigned char*>(jpeg.data()), jpeg.size(),
                    pixels_.data(), image.width, 0, image.height, TJPF_RGB,
                    TJFLAG_ACCURATEDCT) != 0) {
    return Error{Errc::kCorrupt, tjGetErrorStr2(decoder)};
  }
  image.pixels = pixels_;
  return image;
}

}  // namespace mayfly::datasets
