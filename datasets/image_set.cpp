#include "datasets/image_set.hpp"

#include <fcntl.h>
#include <malloc.h>
#include <sys/file.h>

#include <filesystem>
#include <functional>
#include <memory>

#include "base/file.hpp"
#include "base/log.hpp"
#include "base/unique_fd.hpp"
#include "datasets/decoded_images.hpp"
#include "datasets/encoded_images.hpp"
#include "datasets/mapped_file.hpp"

namespace mayfly::datasets {
namespace {

using ImageReader = std::function<Result<EncodedImages>()>;

// What is asked for decides what is found: with skip_corrupt the block can have fewer images.
Digest cache_key(const Digest& source, bool skip_corrupt) {
  Digester digester;
  digester.add_value(source.high);
  digester.add_value(source.low);
  digester.add_value(static_cast<std::uint8_t>(skip_corrupt));
  return digester.finish();
}

Result<Bytes> decode(const std::string& source, const ImageReader& read_images, bool skip_corrupt,
                     const Digest& key) {
  Result<EncodedImages> images = read_images();
  if (!images.ok()) {
    return std::move(images).error();
  }
  return decode_images(source, std::move(images).value(), skip_corrupt, key);
}

Result<DatasetPair> open_in_memory(Bytes block, const Digest& key) {
  const auto owner = std::make_shared<const Bytes>(std::move(block));
  return dataset_from_block(
      owner, {reinterpret_cast<const std::uint8_t*>(owner->data()), owner->size()}, key);
}

// Nothing, if there is no usable cache.
Result<DatasetPair> open_cache(const std::string& path, const Digest& key) {
  Result<std::shared_ptr<const MappedFile>> file = MappedFile::open(path);
  if (!file.ok()) {
    return std::move(file).error();
  }
  return dataset_from_block(file.value(), file.value()->bytes(), key);
}

// Held while a process decodes, so that the workers of one host do not all do the same work.
// Failing to lock is no error: then the work is done twice, and the last rename wins.
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

Result<DatasetPair> open_with_cache(const std::string& source, const ImageReader& read_images,
                                    const OpenOptions& options, const Digest& key) {
  const auto stem = std::filesystem::path(options.cache_dir) / ("images-" + to_string(key));
  const std::string path = stem.string() + ".bin";
  const CacheLock lock(stem.string() + ".lock");
  Result<DatasetPair> cached = open_cache(path, key);
  if (cached.ok()) {
    return cached;
  }
  if (cached.error().code != Errc::kNotFound) {
    log::warning("decoded images in " + path + " are not usable (" + cached.error().detail +
                 "); decoding again");
  }
  Result<Bytes> block = decode(source, read_images, options.skip_corrupt, key);
  if (!block.ok()) {
    return std::move(block).error();
  }
  if (const Result<void> written = write_file_atomic(path, block.value()); !written.ok()) {
    log::warning("decoded images are not kept: " + written.error().detail);
    return open_in_memory(std::move(block).value(), key);
  }
  block = Bytes();
  ::malloc_trim(0);  // the many small JPEGs would else stay with the process
  return open_cache(path, key);
}

Result<DatasetPair> open_images(const std::string& source, const ImageReader& read_images,
                                const OpenOptions& options, const Result<Digest>& source_key) {
  if (!source_key.ok()) {
    return source_key.error();
  }
  const Digest key = cache_key(source_key.value(), options.skip_corrupt);
  if (!options.cache_dir.empty()) {
    const Result<void> made = make_directories(options.cache_dir);
    if (made.ok()) {
      return open_with_cache(source, read_images, options, key);
    }
    log::warning("decoded images are not kept: " + made.error().detail);
  }
  Result<Bytes> block = decode(source, read_images, options.skip_corrupt, key);
  if (!block.ok()) {
    return std::move(block).error();
  }
  return open_in_memory(std::move(block).value(), key);
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
