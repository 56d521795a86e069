#include <archive.h>
#include <archive_entry.h>

#include <memory>

#include "datasets/encoded_images.hpp"
#include "datasets/image_file.hpp"
#include "datasets/mapped_file.hpp"

namespace mayfly::datasets {
namespace {

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
        return images;
      }
      if (status != ARCHIVE_OK && status != ARCHIVE_WARN) {
        return archive_error();
      }
      const char* name = archive_entry_pathname(entry);
      EncodedImage image;
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

  bool is_mapped(ByteSpan block) const {
    const ByteSpan all = std::as_bytes(file_->bytes());
    return block.data() >= all.data() && block.data() + block.size() <= all.data() + all.size();
  }

  Result<void> read_content(archive_entry* entry, EncodedImage& image) {
    const std::int64_t size = archive_entry_size(entry);
    if (size < 0 || static_cast<std::uint64_t>(size) > kJpegBytesMax) {
      return Error{Errc::kInvalidInput, path_ + ": " + image.path + " has " + std::to_string(size) +
                                            " bytes, at most " + std::to_string(kJpegBytesMax) +
                                            " expected"};
    }
    image.size = static_cast<std::uint64_t>(size);
    auto copy = std::make_shared<Bytes>();
    while (copy->size() < image.size) {
      const void* data = nullptr;
      std::size_t count = 0;
      la_int64_t offset = 0;
      const int status = archive_read_data_block(reader_.get(), &data, &count, &offset);
      if (status != ARCHIVE_OK && status != ARCHIVE_WARN) {
        return status == ARCHIVE_EOF
                   ? Error{Errc::kCorrupt, path_ + ": " + image.path + " is cut short"}
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

Result<EncodedImages> read_image_tar(const std::string& path) {
  Result<std::shared_ptr<const MappedFile>> file = MappedFile::open(path);
  if (!file.ok()) {
    return std::move(file).error();
  }
  Result<EncodedImages> images = TarReader(path, std::move(file).value()).read();
  if (images.ok()) {
    TRY(arrange_images(path, images.value()));
  }
  return images;
}

}  // namespace mayfly::datasets
