#include "datasets/readers.hpp"

#include <archive.h>
#include <archive_entry.h>
#include <fmt/format.h>
#include <malloc.h>
#include <algorithm>
#include <array>
#include <cstdint>
#include <filesystem>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "base/file.hpp"
#include "base/lock_file.hpp"
#include "base/log.hpp"
#include "base/time.hpp"
#include "base/try_assign.hpp"
#include "datasets/decoded_images.hpp"
#include "datasets/encoded_images.hpp"
#include "datasets/encoded_set.hpp"
#include "datasets/host_memory.hpp"
#include "datasets/image_store.hpp"
#include "datasets/jpeg.hpp"
#include "datasets/peer_stores.hpp"
#include "datasets/record_set.hpp"

namespace mayfly::datasets {
namespace {

// Without --image-size, equal images up to this size are used without scaling; larger ones are
// treated as photographs, which training crops.
constexpr int kSmallSide = 64;
constexpr int kDecodedSideMin = 4;
constexpr int kDecodedSideMax = 1024;
constexpr int kEncodedSideMin = 8;
constexpr Duration kOthersWorkMost = seconds(24 * 3600);  // that a process waits for
constexpr Duration kLookAgainAfter = seconds(1);

using ImageReader = std::function<Result<EncodedImages>()>;

// An image folder or tar with the options for opening it.
struct Request {
  std::string source;
  ImageReader read_images;
  const OpenOptions& options;
  Digest key;              // hash of the source and the options
  std::string cached_set;  // file of the decoded images; empty = none is kept
  std::string cached_sizes;
};

// The options are part of the key, because with skip_corrupt there can be fewer images. So is the
// decoder: with the pixels that another one has made here, this worker would have another digest
// than those of other hosts.
Digest cache_key(const Digest& source, bool skip_corrupt) {
  const std::string decoder = jpeg_identity();
  Digester digester;
  digester.add_value(source.high);
  digester.add_value(source.low);
  digester.add_value(static_cast<std::uint8_t>(skip_corrupt));
  digester.add(std::as_bytes(std::span(decoder)));
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
  TRY_ASSIGN(std::shared_ptr<const MappedFile> file, MappedFile::open(path));
  return dataset_from_block(file, file->bytes(), key);
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
      decode_images(request.source, std::move(measured), request.options.skip_corrupt, request.key,
                    request.options.is_called_off);
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

// EncodedSet has 32 bits for the place of a name.
Result<void> refuse_too_many_names(const Request& request, const EncodedImages& images) {
  std::array<std::uint64_t, 2> name_bytes{};  // of training and test images
  for (const EncodedImage& image : images) {
    name_bytes[image.test ? 1 : 0] += image.file.size();
  }
  return std::ranges::max(name_bytes) <= UINT32_MAX
             ? Result<void>()
             : Error{Errc::kInvalidInput,
                     request.source +
                         " has images whose file names have more than 4 GiB together: give them "
                         "shorter names"};
}

Result<DatasetPair> keep_encoded(const Request& request, MeasuredImages measured) {
  const bool skip_corrupt = request.options.skip_corrupt;
  // A file of a plain tar may be in pieces, too (tar --sparse).
  if (std::ranges::count(measured.images, ImagePlace::kUnpacked, &EncodedImage::place) > 0) {
    return Error{Errc::kInvalidInput,
                 request.source +
                     " holds images that are decoded while training (large ones, or of different "
                     "sizes); a compressed tar cannot be read in any order: unpack it into a "
                     "folder or a plain .tar"};
  }
  TRY(refuse_small_images(request.source, kEncodedSideMin, skip_corrupt, measured));
  TRY(refuse_too_many_names(request, measured.images));
  warn_of_unequal_sizes(request, measured);
  EncodedSet::Options options;
  options.source = request.source;
  options.image_size = request.options.image_size > 0 ? request.options.image_size
                                                      : request.options.usual_image_size;
  options.skip_corrupt = skip_corrupt;
  if (request.options.store_bytes > 0) {
    const auto training =
        static_cast<std::uint64_t>(std::ranges::count(measured.images, false, &EncodedImage::test));
    const Digest key = request.options.store_is_unshared ? unshared_key() : request.key;
    TRY_ASSIGN(options.store, ImageStore::join({.key = key,
                                                .images = training,
                                                .bytes_max = request.options.store_bytes,
                                                .folder = {}}));
    log::info(
        fmt::format("{}: the workers of this host keep up to {:.3g} GiB of training images "
                    "in memory, {:.3g} GiB now",
                    request.source, static_cast<double>(options.store->bytes_max()) / 0x1p30,
                    static_cast<double>(options.store->bytes_kept()) / 0x1p30));
  }
  if (options.store != nullptr && !request.options.store_host.empty()) {
    std::vector<std::uint32_t> sizes;
    for (const EncodedImage& image : measured.images) {
      if (!image.test) {
        sizes.push_back(static_cast<std::uint32_t>(image.size));
      }
    }
    TRY_ASSIGN(options.peers,
               PeerStores::start(options.store, std::move(sizes), request.options.store_host));
  }
  DatasetPair pair = make_encoded_pair(options, std::move(measured));
  pair.files = request.key;
  ::malloc_trim(0);  // the list with all names and paths
  return pair;
}

Result<DatasetPair> open_listed(const Request& request) {
  if (std::optional<DatasetPair> kept = open_kept_set(request)) {
    return *std::move(kept);
  }
  TRY_ASSIGN(EncodedImages images, request.read_images());
  TRY_ASSIGN(MeasuredImages measured,
             measure_images(request.source, std::move(images), request.options.skip_corrupt,
                            request.cached_sizes, request.options.is_called_off));
  return suits_decoding(measured, request.options) ? decode_once(request, std::move(measured))
                                                   : keep_encoded(request, std::move(measured));
}

/// The lock that a process holds while it measures and decodes, so that the workers of one host do
/// not all do the same work.
Result<LockFile> take_in_turn(const std::string& path, const OpenOptions& options) {
  const Instant begun = monotonic_now();
  for (bool is_first = true;; is_first = false) {
    Result<LockFile> lock = LockFile::take(path, kLookAgainAfter);
    const bool is_taken = !lock.ok() && lock.error().code == Errc::kRefused;
    if (!is_taken || monotonic_now() - begun > kOthersWorkMost) {
      return lock;
    }
    if (options.is_called_off && options.is_called_off()) {
      return called_off();
    }
    if (is_first) {
      log::info("waiting for another process that opens these images: " + lock.error().detail);
    }
  }
}

/// Removes files of processes that were killed while they wrote: gigabytes, under names that no
/// process uses again.
void remove_torn(const std::string& stem) {
  const std::filesystem::path folder = std::filesystem::path(stem).parent_path();
  std::error_code ignored;
  for (const std::string& name : names_in(folder.string())) {
    const std::string path = (folder / name).string();
    if (path.starts_with(stem + ".bin.tmp.") || path.starts_with(stem + ".sizes.tmp.")) {
      std::filesystem::remove(path, ignored);
    }
  }
}

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
  // A failure to lock is no error: the work is then done twice, and the last rename determines the
  // file.
  const Result<LockFile> lock = take_in_turn(stem + ".lock", options);
  if (lock.ok()) {
    remove_torn(stem);
  } else if (lock.error().code == Errc::kAborted) {
    return lock.error();
  }
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

constexpr std::size_t kUnpackedBytesMax = std::size_t{4} << 30;

struct ArchiveCloser {
  void operator()(archive* reader) const { archive_read_free(reader); }
};
using ArchiveReader = std::unique_ptr<archive, ArchiveCloser>;

// Reads the images of one tar. libarchive is given the mapped file as one block of memory, so what
// it returns of a file that is not compressed points into the mapping, and nothing is copied.
class TarReader {
 public:
  TarReader(const std::string& path, std::shared_ptr<const MappedFile> file)
      : path_(path), file_(std::move(file)), reader_(archive_read_new()) {
    archive_read_support_format_tar(reader_.get());
    archive_read_support_filter_gzip(reader_.get());
    archive_read_support_filter_xz(reader_.get());
    archive_read_support_filter_none(reader_.get());
  }

  Result<EncodedImages> read() {
    const std::span<const std::uint8_t> bytes = file_->bytes();
    if (archive_read_open_memory(reader_.get(), bytes.data(), bytes.size()) != ARCHIVE_OK) {
      return archive_error();
    }
    EncodedImages images;
    for (;;) {
      archive_entry* entry = nullptr;
      const int status = archive_read_next_header(reader_.get(), &entry);
      if (status == ARCHIVE_EOF) {
        TRY(check_end());
        return images;
      }
      if (status != ARCHIVE_OK && status != ARCHIVE_WARN) {
        return archive_error();
      }
      const char* name = archive_entry_pathname(entry);
      EncodedImage image;
      if (name != nullptr && is_link(entry) && may_stand_for_images(name)) {
        return Error{Errc::kInvalidInput,
                     path_ + ": " + name +
                         " is a link, and links are not followed: make the archive with "
                         "tar --dereference --hard-dereference"};
      }
      if (name == nullptr || archive_entry_filetype(entry) != AE_IFREG ||
          !parse_image_name(name, image)) {
        continue;
      }
      TRY(read_content(entry, image));
      images.push_back(std::move(image));
    }
  }

 private:
  Error archive_error() {
    const char* why = archive_error_string(reader_.get());
    return {Errc::kCorrupt, path_ + ": " + (why == nullptr ? "unreadable archive" : why)};
  }

  // libarchive takes the end of the file for the end of the archive, too. So a tar of which only a
  // part has come, cut between two entries, would be a data set with fewer images.
  Result<void> check_end() {
    if (archive_filter_bytes(reader_.get(), 0) > archive_read_header_position(reader_.get())) {
      return {};
    }
    return Error{Errc::kCorrupt,
                 path_ +
                     " is truncated: it ends without the blocks of zeros that end a tar. If its "
                     "writer has left them out, unpack it and pack it with tar"};
  }

  static bool is_link(archive_entry* entry) {
    return archive_entry_hardlink(entry) != nullptr || archive_entry_filetype(entry) == AE_IFLNK;
  }

  bool is_mapped(ByteSpan block) const {
    const ByteSpan all = std::as_bytes(file_->bytes());
    return block.data() >= all.data() && block.data() + block.size() <= all.data() + all.size();
  }

  Result<void> read_content(archive_entry* entry, EncodedImage& image) {
    const std::int64_t size = archive_entry_size(entry);
    if (size < 0) {
      return Error{Errc::kCorrupt, path_ + ": " + image.path + " has no size"};
    }
    image.size = static_cast<std::uint64_t>(size);
    if (image.size > kJpegBytesMax) {
      image.place = ImagePlace::kMapped;
      return {};  // refused or left out, without its content, when it is measured
    }
    auto copy = std::make_shared<Bytes>();
    while (copy->size() < image.size) {
      const void* data = nullptr;
      std::size_t count = 0;
      la_int64_t offset = 0;
      const int status = archive_read_data_block(reader_.get(), &data, &count, &offset);
      if (status != ARCHIVE_OK && status != ARCHIVE_WARN) {
        return status == ARCHIVE_EOF
                   ? Error{Errc::kCorrupt, path_ + ": " + image.path + " is truncated"}
                   : archive_error();
      }
      const ByteSpan block(static_cast<const std::byte*>(data), count);
      if (count == image.size && is_mapped(block)) {
        image.place = ImagePlace::kMapped;
        image.content = block;
        image.owner = file_;
        return {};
      }
      copy->insert(copy->end(), block.begin(), block.end());
    }
    unpacked_bytes_ += copy->size();
    if (unpacked_bytes_ > kUnpackedBytesMax) {
      return Error{Errc::kInvalidInput,
                   path_ +
                       " holds more than 4 GiB of images; unpack it, or keep it as a .tar that "
                       "is not compressed"};
    }
    image.place = ImagePlace::kUnpacked;
    image.content = *copy;
    image.owner = std::move(copy);
    return {};
  }

  const std::string& path_;
  std::shared_ptr<const MappedFile> file_;
  ArchiveReader reader_;
  std::size_t unpacked_bytes_ = 0;
};

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

Result<EncodedImages> read_image_tar(const std::string& path) {
  TRY_ASSIGN(std::shared_ptr<const MappedFile> file, MappedFile::open(path));
  Result<EncodedImages> images = TarReader(path, std::move(file)).read();
  if (images.ok()) {
    TRY(arrange_images(path, images.value()));
  }
  return images;
}

}  // namespace mayfly::datasets
