#include "datasets/record_set.hpp"

#include <sys/mman.h>
#include <cstring>
#include <utility>

#include "base/check.hpp"
#include "base/file.hpp"
#include "base/try_assign.hpp"

namespace mayfly::datasets {

RecordSet::RecordSet(RecordLayout layout, std::vector<RecordChunk> chunks)
    : layout_(layout), chunks_(std::move(chunks)) {
  ENSURE(layout_.label_bytes >= (layout_.wide_labels ? 2U : 1U), "every record has a label");
  for (const RecordChunk& chunk : chunks_) {
    ENSURE(chunk.records.size() % layout_.record_bytes() == 0, "chunks hold whole records");
    size_ += chunk.records.size() / layout_.record_bytes();
  }
}

const std::uint8_t* RecordSet::record(std::size_t index) const {
  std::size_t offset = index * layout_.record_bytes();
  for (const RecordChunk& chunk : chunks_) {
    if (offset < chunk.records.size()) {
      return chunk.records.data() + offset;
    }
    offset -= chunk.records.size();
  }
  UNREACHABLE("the sample is in the data set");
}

Result<void> RecordSet::read(std::size_t index, std::span<std::uint8_t> pixels) const {
  ENSURE(pixels.size() == layout_.pixel_bytes(), "an image is 3 x size x size bytes");
  std::memcpy(pixels.data(), record(index) + layout_.label_bytes, pixels.size());
  return {};
}

std::uint16_t RecordSet::label(std::size_t index) const {
  const std::uint8_t* end = record(index) + layout_.label_bytes;
  const unsigned high = layout_.wide_labels ? end[-1] : 0U;
  const unsigned low = layout_.wide_labels ? end[-2] : end[-1];
  return static_cast<std::uint16_t>(high << 8 | low);
}

Result<std::shared_ptr<const MappedFile>> MappedFile::open(const std::string& path) {
  TRY_ASSIGN(ReadableFile file, open_to_read(path));
  void* data = nullptr;
  if (file.size > 0) {
    data = ::mmap(nullptr, file.size, PROT_READ, MAP_SHARED, file.fd.get(), 0);
    if (data == MAP_FAILED) {
      return file_error("cannot map", path);
    }
  }
  return std::shared_ptr<const MappedFile>(
      new MappedFile(std::move(file.fd), static_cast<const std::uint8_t*>(data), file.size));
}

MappedFile::~MappedFile() {
  if (data_ != nullptr) {
    ::munmap(const_cast<std::uint8_t*>(data_), size_);
  }
}

}  // namespace mayfly::datasets
