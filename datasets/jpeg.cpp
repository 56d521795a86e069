#include "datasets/jpeg.hpp"

#include <fcntl.h>
#include <sys/stat.h>
#include <turbojpeg.h>
#include <unistd.h>
#include <cerrno>
#include <cstring>

#include "base/check.hpp"
#include "base/digest.hpp"
#include "base/file.hpp"
#include "base/random.hpp"
#include "base/try_assign.hpp"
#include "base/unique_fd.hpp"

namespace mayfly::datasets {
namespace {

// Reads up to `size` bytes or to the end of the file, and returns the number of bytes read.
Result<ByteSpan> read_up_to(const std::string& path, std::uint64_t size, Bytes& buffer,
                            PageCache pages = PageCache::kStays) {
  const UniqueFd fd(::open(path.c_str(), O_RDONLY | O_CLOEXEC));
  if (!fd.valid()) {
    return file_error("cannot open", path);
  }
  if (buffer.size() < size) {
    buffer.resize(size);
  }
  std::uint64_t done = 0;
  while (done < size) {
    const ssize_t n = ::read(fd.get(), buffer.data() + done, size - done);
    if (n < 0 && errno == EINTR) {
      continue;
    }
    if (n < 0) {
      return file_error("cannot read", path);
    }
    if (n == 0) {
      break;
    }
    done += static_cast<std::uint64_t>(n);
  }
  if (pages == PageCache::kDropped) {  // mapped pages and pages that are not written yet stay
    (void)::posix_fadvise(fd.get(), 0, 0, POSIX_FADV_DONTNEED);
  }
  return ByteSpan(buffer).first(done);
}

constexpr int kJpegSideMax = 16'384;

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
  const std::int64_t pixels = std::int64_t{header.width} * header.height;
  if (header.width < 1 || header.height < 1 || header.width > kJpegSideMax ||
      header.height > kJpegSideMax || pixels > kJpegPixelsMax) {
    return Error{Errc::kCorrupt, "claims to be " + std::to_string(header.width) + 'x' +
                                     std::to_string(header.height) + " pixels, at most " +
                                     std::to_string(kJpegSideMax) + " a side and " +
                                     std::to_string(kJpegPixelsMax) +
                                     " in all expected: scale it down, or leave it out with "
                                     "--skip-corrupt"};
  }
  header.channels = colours == TJCS_CMYK || colours == TJCS_YCCK ? 4 : colours == TJCS_GRAY ? 1 : 3;
  return header;
}

void encode_sampled(const RgbImage& image, int quality, TJSAMP sampling, Bytes& jpeg) {
  jpeg.resize(tjBufSize(image.width, image.height, sampling));
  auto* bytes = reinterpret_cast<unsigned char*>(jpeg.data());
  unsigned long size = jpeg.size();
  const tjhandle encoder = tjInitCompress();
  ENSURE(encoder != nullptr, "libjpeg could not start");
  // The accurate transform has the same result with and without vector instructions.
  const int status =
      tjCompress2(encoder, image.pixels.data(), image.width, 0, image.height, TJPF_RGB, &bytes,
                  &size, sampling, quality, TJFLAG_ACCURATEDCT | TJFLAG_NOREALLOC);
  tjDestroy(encoder);
  ENSURE(status == 0, "an image of this size can be encoded");
  jpeg.resize(size);
}

Duration& reading_files() {
  thread_local Duration so_far{};
  return so_far;
}

}  // namespace

Result<ByteSpan> read_image_file(const std::string& path, std::uint64_t size, Bytes& buffer,
                                 PageCache pages) {
  if (size > kJpegBytesMax) {
    return Error{Errc::kCorrupt, path + " has " + std::to_string(size) + " bytes, at most " +
                                     std::to_string(kJpegBytesMax) + " expected"};
  }
  const Instant begun = monotonic_now();
  // One byte more than expected, to detect that the file has grown.
  const Result<ByteSpan> read = read_up_to(path, size + 1, buffer, pages);
  reading_files() += monotonic_now() - begun;
  if (!read.ok()) {
    return read;
  }
  if (read.value().size() != size) {
    return Error{Errc::kIo, path + " has changed while it was in use: expected " +
                                std::to_string(size) + " bytes"};
  }
  return read;
}

Result<ByteSpan> read_image_at(int fd, std::uint64_t offset, std::uint64_t size,
                               const std::string& name, Bytes& buffer) {
  const Instant begun = monotonic_now();
  if (buffer.size() < size) {
    buffer.resize(size);
  }
  for (std::uint64_t done = 0; done < size;) {
    const ssize_t n =
        ::pread(fd, buffer.data() + done, size - done, static_cast<off_t>(offset + done));
    if (n < 0 && errno == EINTR) {
      continue;
    }
    if (n <= 0) {
      return n < 0 ? file_error("cannot read", name)
                   : Error{Errc::kIo, name + " has changed while it was in use: it ends early"};
    }
    done += static_cast<std::uint64_t>(n);
  }
  (void)::posix_fadvise(fd, static_cast<off_t>(offset), static_cast<off_t>(size),
                        POSIX_FADV_DONTNEED);
  reading_files() += monotonic_now() - begun;
  return ByteSpan(buffer).first(size);
}

Duration time_reading_files() {
  return reading_files();
}

Result<ByteSpan> read_image_start(const std::string& path, std::uint64_t size_max, Bytes& buffer) {
  return read_up_to(path, size_max, buffer);
}

Result<JpegHeader> read_jpeg_header(ByteSpan jpeg) {
  return read_header(Handle(), jpeg);
}

Result<RgbImage> JpegDecoder::decode(ByteSpan jpeg, int eighths) {
  ENSURE(eighths >= 1 && eighths <= 8, "decoding scales by whole eighths");
  const Handle handle;
  TRY_ASSIGN(const JpegHeader header, read_header(handle, jpeg));
  if (header.channels == 4) {
    return Error{Errc::kInvalidInput, "has 4 channels (CMYK), expected 1 or 3"};
  }
  const tjscalingfactor factor{eighths, 8};
  RgbImage image;
  image.width = TJSCALED(header.width, factor);
  image.height = TJSCALED(header.height, factor);
  pixels_.resize(3U * static_cast<std::size_t>(image.width) *
                 static_cast<std::size_t>(image.height));
  // It stops at the first warning: a damaged file may have a million scans, which take hours.
  if (tjDecompress2(handle.get(), reinterpret_cast<const unsigned char*>(jpeg.data()), jpeg.size(),
                    pixels_.data(), image.width, 0, image.height, TJPF_RGB,
                    TJFLAG_ACCURATEDCT | TJFLAG_STOPONWARNING) != 0) {
    return handle.error();
  }
  image.pixels = pixels_;
  return image;
}

void encode_jpeg(const RgbImage& image, int quality, Bytes& jpeg) {
  ENSURE(image.width > 0 && image.height > 0 && quality >= 1 && quality <= 100, "an image");
  encode_sampled(image, quality, TJSAMP_420, jpeg);
}

std::string jpeg_identity() {
  constexpr int kWidth = 45;  // not a whole number of blocks
  constexpr int kHeight = 35;
  constexpr int kQuality = 90;
  std::vector<std::uint8_t> pixels(std::size_t{3} * kWidth * kHeight);
  for (std::size_t i = 0; i < pixels.size(); ++i) {  // slopes and noise: all coefficients matter
    pixels[i] = static_cast<std::uint8_t>((i / 16 + mix64(i) % 64) % 256);
  }
  Digester digester;
  JpegDecoder decoder;
  Bytes jpeg;
  for (const TJSAMP sampling :
       {TJSAMP_444, TJSAMP_422, TJSAMP_420, TJSAMP_GRAY, TJSAMP_440, TJSAMP_411}) {
    encode_sampled({kWidth, kHeight, pixels}, kQuality, sampling, jpeg);
    for (const int eighths : {1, 2, 4, 8}) {
      const Result<RgbImage> image = decoder.decode(jpeg, eighths);
      ENSURE(image.ok(), "an image that libjpeg has encoded can be decoded");
      digester.add(std::as_bytes(image.value().pixels));
    }
  }
  return to_string(digester.finish());
}

}  // namespace mayfly::datasets
