#include "datasets/image_set.hpp"

#include <fcntl.h>
#include <malloc.h>
#include <sys/file.h>

#include <algorithm>
#include <filesystem>
#include <functional>
#include <memory>
#include <optional>

#include "base/file.hpp"
#include "base/log.hpp"
#include "base/unique_fd.hpp"
#include "datasets/decoded_images.hpp"
#include "datasets/encoded_set.hpp"
#include "datasets/mapped_file.hpp"

namespace mayfly::datasets {
namespace {

// Without --image-size, equal images up to this size are used without scaling; larger ones are
// treated as photographs, which training crops.
constexpr int kSmallSide = 64;
constexpr int kDecodedSideMin = 4;
constexpr int kDecodedSideMax = 1024;
constexpr int kEncodedSideMin = 8;

using ImageReader = std::function<Result<EncodedImages>()>;

// An image folder or tar with the options for opening it.
struct Request {
  std::string source;
  ImageReader read_images;
  const OpenOptions& options;
  Digest key;              // of the source and the options
  std::string cached_set;  // file of the decoded images; empty = none is kept
  std::string cached_sizes;
};

// The options are part of the key, because with skip_corrupt there can be fewer images.
Digest cache_key(const Digest& source, bool skip_corrupt) {
  Digester digester;
  digester.add_value(source.high);
  digester.add_value(source.low);
  digester.add_value(static_cast<std::uint8_t>(skip_corrupt));
  return digester.finish();
}

bool is_wanted_size(int side, const OpenOptions& options) {
  return options.image_size == 0 ? side <= kSmallSide : side == options.image_size;
}

// Whether all images are decoded once: equal squares of the size that the network sees.
bool suits_decoding(const MeasuredImages& measured, const OpenOptions& options) {
  const EncodedImages& images = measured.images;
  const int side = images.front().width;
  const bool equal = std::all_of(images.begin(), images.end(), [side](const EncodedImage& image) {
    return image.width == side && image.height == side;
  });
  const auto bytes =
      images.size() * 3 * static_cast<std::size_t>(side) * static_cast<std::size_t>(side);
  return equal && is_wanted_size(side, options) && side >= kDecodedSideMin &&
         side <= kDecodedSideMax && bytes <= kDecodedBytesMax;
}

Result<DatasetPair> open_in_memory(Bytes block, const Digest& key) {
  const auto owner = std::make_shared<const Bytes>(std::move(block));
  return dataset_from_block(
      owner, {reinterpret_cast<const std::uint8_t*>(owner->data()), owner->size()}, key);
}

Result<DatasetPair> open_mapped(const std::string& path, const Digest& key) {
  Result<std::shared_ptr<const MappedFile>> file = MappedFile::open(path);
  if (!file.ok()) {
    return std::move(file).error();
  }
  return dataset_from_block(file.value(), file.value()->bytes(), key);
}

// The decoded images, if an earlier process has stored them and they have the wanted size.
std::optional<DatasetPair> open_kept_set(const Request& request) {
  if (request.cached_set.empty()) {
    return {};
  }
  Result<DatasetPair> kept = open_mapped(request.cached_set, request.key);
  if (kept.ok()) {
    const bool fits = is_wanted_size(kept.value().train->image_size(), request.options);
    return fits ? std::optional(std::move(kept).value()) : std::nullopt;
  }
  if (kept.error().code != Errc::kNotFound) {
    log::warning("decoded images in " + request.cached_set + " are not usable (" +
                 kept.error().detail + "); decoding again");
  }
  return {};
}

Result<DatasetPair> decode_once(const Request& request, MeasuredImages measured) {
  Result<Bytes> block =
      decode_images(request.source, std::move(measured), request.options.skip_corrupt, request.key);
  if (!block.ok()) {
    return std::move(block).error();
  }
  if (request.cached_set.empty()) {
    return open_in_memory(std::move(block).value(), request.key);
  }
  if (const Result<void> written = write_file_atomic(request.cached_set, block.value());
      !written.ok()) {
    log::warning("decoded images are not kept: " + written.error().detail);
    return open_in_memory(std::move(block).value(), request.key);
  }
  block = Bytes();
  ::malloc_trim(0);  // otherwise the allocator keeps the memory of the many small JPEGs
  return open_mapped(request.cached_set, request.key);
}

// A single image of another size makes all images be treated as photographs, so a warning names it.
void warn_of_unequal_sizes(const Request& request, const MeasuredImages& measured) {
  const EncodedImage& first = measured.images.front();
  const auto other = std::find_if(
      measured.images.begin(), measured.images.end(), [&first](const EncodedImage& image) {
        return image.width != first.width || image.height != first.height;
      });
  const auto size_of = [](const EncodedImage& image) {
    return std::to_string(image.width) + 'x' + std::to_string(image.height);
  };
  std::string why = "images of " + size_of(first) + " pixels";
  if (other != measured.images.end()) {
    why += " and other sizes (first " + name_of(request.source, *other) + " with " +
           size_of(*other) + ")";
  }
  log::info(request.source + ": " + why + " are decoded while training");
}

Result<DatasetPair> keep_encoded(const Request& request, MeasuredImages measured) {
  const bool skip_corrupt = request.options.skip_corrupt;
  if (measured.images.front().place == ImagePlace::kUnpacked) {
    return Error{Errc::kInvalidInput,
                 request.source +
                     " holds images that are decoded while training (large ones, or of different "
                     "sizes); a compressed tar cannot be read in any order: unpack it into a "
                     "folder or a plain .tar"};
  }
  if (Result<void> checked =
          refuse_small_images(request.source, kEncodedSideMin, skip_corrupt, measured);
      !checked.ok()) {
    return std::move(checked).error();
  }
  warn_of_unequal_sizes(request, measured);
  EncodedSet::Options options;
  options.source = request.source;
  options.image_size = request.options.image_size > 0 ? request.options.image_size
                                                      : request.options.usual_image_size;
  options.skip_corrupt = skip_corrupt;
  DatasetPair pair = make_encoded_pair(options, std::move(measured));
  ::malloc_trim(0);  // the list with all names and paths
  return pair;
}

Result<DatasetPair> open_listed(const Request& request) {
  if (std::optional<DatasetPair> kept = open_kept_set(request)) {
    return *std::move(kept);
  }
  Result<EncodedImages> images = request.read_images();
  if (!images.ok()) {
    return std::move(images).error();
  }
  Result<MeasuredImages> measured =
      measure_images(request.source, std::move(images).value(), request.options.skip_corrupt,
                     request.cached_sizes);
  if (!measured.ok()) {
    return std::move(measured).error();
  }
  return suits_decoding(measured.value(), request.options)
             ? decode_once(request, std::move(measured).value())
             : keep_encoded(request, std::move(measured).value());
}

// Locked while a process measures and decodes, so that the workers of one host do not all do the
// same work. A failure to lock is not an error: the work is then done twice, and the last rename
// determines the file.
class CacheLock {
 public:
  explicit CacheLock(const std::string& path)
      : fd_(::open(path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0644)) {
    if (fd_.valid()) {
      static_cast<void>(::flock(fd_.get(), LOCK_EX));
    }
  }

 private:
  UniqueFd fd_;  // closing it unlocks
};

Result<DatasetPair> open_with_cache(const std::string& source, ImageReader read_images,
                                    const OpenOptions& options, const Result<Digest>& source_key) {
  if (!source_key.ok()) {
    return source_key.error();
  }
  Request request{source, std::move(read_images), options, {}, {}, {}};
  request.key = cache_key(source_key.value(), options.skip_corrupt);
  if (options.cache_dir.empty()) {
    return open_listed(request);
  }
  if (const Result<void> made = make_directories(options.cache_dir); !made.ok()) {
    log::warning("decoded images are not kept: " + made.error().detail);
    return open_listed(request);
  }
  const std::string stem =
      (std::filesystem::path(options.cache_dir) / ("images-" + to_string(request.key))).string();
  const CacheLock lock(stem + ".lock");
  request.cached_set = stem + ".bin";
  request.cached_sizes = stem + ".sizes";
  return open_listed(request);
}

Result<DatasetPair> open_images(const std::string& source, ImageReader read_images,
                                const OpenOptions& options, const Result<Digest>& source_key) {
  Result<DatasetPair> opened = open_with_cache(source, std::move(read_images), options, source_key);
  if (opened.ok() && opened.value().left_out.count > 0) {
    log::warning(source + ": " + opened.value().left_out.sentence());
  }
  return opened;
}

}  // namespace

Result<DatasetPair> open_image_folder(const std::string& folder, const OpenOptions& options) {
  Result<EncodedImages> images = list_image_folder(folder);
  if (!images.ok()) {
    return std::move(images).error();
  }
  const Result<Digest> key = folder_key(images.value());
  return open_images(
      folder, [&] { return std::move(images); }, options, key);
}

Result<DatasetPair> open_image_tar(const std::string& path, const OpenOptions& options) {
  return open_images(
      path, [&] { return read_image_tar(path); }, options, tar_key(path));
}

}  // namespace mayfly::datasets
