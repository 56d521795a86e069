#include <archive.h>
#include <archive_entry.h>

#include <memory>

#include "datasets/encoded_images.hpp"

namespace mayfly::datasets {
namespace {

constexpr std::int64_t kImageBytesMax = std::int64_t{64} << 20;
constexpr std::size_t kTotalBytesMax = std::size_t{4} << 30;

struct ArchiveCloser {
  void operator()(archive* reader) const { archive_read_free(reader); }
};
using ArchiveReader = std::unique_ptr<archive, ArchiveCloser>;

Error archive_error(const std::string& path, archive* reader) {
  const char* why = archive_error_string(reader);
  return {Errc::kCorrupt, path + ": " + (why == nullptr ? "unreadable archive" : why)};
}

Result<Bytes> read_content(const std::string& path, archive* reader, archive_entry* entry) {
  const std::int64_t size = archive_entry_size(entry);
  if (size < 0 || size > kImageBytesMax) {
    return Error{Errc::kInvalidInput, path + ": " + archive_entry_pathname(entry) + " has " +
                                          std::to_string(size) + " bytes, at most " +
                                          std::to_string(kImageBytesMax) + " expected"};
  }
  Bytes content(static_cast<std::size_t>(size));
  std::size_t done = 0;
  while (done < content.size()) {
    const la_ssize_t n = archive_read_data(reader, content.data() + done, content.size() - done);
    if (n < 0) {
      return archive_error(path, reader);
    }
    if (n == 0) {
      return Error{Errc::kCorrupt, path + ": " + archive_entry_pathname(entry) + " is cut short"};
    }
    done += static_cast<std::size_t>(n);
  }
  return content;
}

Result<ArchiveReader> open_archive(const std::string& path) {
  constexpr std::size_t kBlockBytes = std::size_t{1} << 16;
  ArchiveReader reader(archive_read_new());
  archive_read_support_format_tar(reader.get());
  archive_read_support_filter_gzip(reader.get());
  archive_read_support_filter_xz(reader.get());
  archive_read_support_filter_none(reader.get());
  if (archive_read_open_filename(reader.get(), path.c_str(), kBlockBytes) != ARCHIVE_OK) {
    return archive_error(path, reader.get());
  }
  return reader;
}

Result<void> read_entries(const std::string& path, archive* reader, EncodedImages& images) {
  std::size_t total = 0;
  for (;;) {
    archive_entry* entry = nullptr;
    const int status = archive_read_next_header(reader, &entry);
    if (status == ARCHIVE_EOF) {
      return {};
    }
    if (status != ARCHIVE_OK && status != ARCHIVE_WARN) {
      return archive_error(path, reader);
    }
    const char* name = archive_entry_pathname(entry);
    EncodedImage image;
    if (name == nullptr || archive_entry_filetype(entry) != AE_IFREG ||
        !parse_image_name(name, image)) {
      continue;
    }
    Result<Bytes> content = read_content(path, reader, entry);
    if (!content.ok()) {
      return std::move(content).error();
    }
    total += content.value().size();
    if (total > kTotalBytesMax) {
      return Error{Errc::kInvalidInput, path + " holds more than 4 GiB of images"};
    }
    image.content = std::move(content).value();
    image.in_memory = true;
    images.push_back(std::move(image));
  }
}

}  // namespace

Result<EncodedImages> read_image_tar(const std::string& path) {
  const Result<ArchiveReader> reader = open_archive(path);
  if (!reader.ok()) {
    return reader.error();
  }
  EncodedImages images;
  Result<void> done = read_entries(path, reader.value().get(), images);
  if (done.ok()) {
    done = arrange_images(path, images);
  }
  if (!done.ok()) {
    return std::move(done).error();
  }
  return images;
}

}  // namespace mayfly::datasets
