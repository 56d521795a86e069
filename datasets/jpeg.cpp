#include "datasets/jpeg.hpp"

#include <turbojpeg.h>

#include "base/check.hpp"

namespace mayfly::datasets {
namespace {

constexpr int kSideMax = 8192;

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

Result<JpegDecoder::Image> JpegDecoder::decode(ByteSpan jpeg) {
  const tjhandle decoder = handle_->decoder;
  const auto* bytes = reinterpret_cast<const unsigned char*>(jpeg.data());
  Image image;
  int subsampling = 0;
  int colours = 0;
  if (tjDecompressHeader3(decoder, bytes, jpeg.size(), &image.width, &image.height, &subsampling,
                          &colours) != 0) {
    return Error{Errc::kCorrupt, tjGetErrorStr2(decoder)};
  }
  if (image.width < 1 || image.height < 1 || image.width > kSideMax || image.height > kSideMax) {
    return Error{Errc::kCorrupt, "claims to be " + std::to_string(image.width) + 'x' +
                                     std::to_string(image.height) + " pixels"};
  }
  pixels_.resize(3U * static_cast<std::size_t>(image.width) *
                 static_cast<std::size_t>(image.height));
  if (tjDecompress2(decoder, bytes, jpeg.size(), pixels_.data(), image.width, 0, image.height,
                    TJPF_RGB, TJFLAG_ACCURATEDCT) != 0) {
    return Error{Errc::kCorrupt, tjGetErrorStr2(decoder)};
  }
  image.rgb = pixels_;
  return image;
}

}  // namespace mayfly::datasets
