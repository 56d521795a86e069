#include "engine/run/line_file.hpp"

#include <fcntl.h>
#include <unistd.h>

#include <cerrno>
#include <span>

#include "base/file.hpp"
#include "base/system_error.hpp"

namespace mayfly::engine {
Result<std::unique_ptr<LineFile>> LineFile::open(const std::string& path, Content content) {
  UniqueFd fd(::open(path.c_str(), O_RDWR | O_CREAT | O_APPEND | O_CLOEXEC, 0644));
  if (!fd.valid()) {
    return system_error("cannot open " + path, errno);
  }
  std::unique_ptr<LineFile> file(new LineFile(path, std::move(fd), content));
  if (content == Content::kLines) {
    TRY(file->cut_torn_line());
  }
  return file;
}

Result<void> LineFile::cut_torn_line() {
  const off_t size = ::lseek(fd_.get(), 0, SEEK_END);
  off_t keep = size;
  for (char last = 0; keep > 0 && last != '\n'; --keep) {
    if (::pread(fd_.get(), &last, 1, keep - 1) != 1) {
      return system_error("cannot read " + path_, errno);
    }
    if (last == '\n') {
      break;
    }
  }
  if (keep != size && ::ftruncate(fd_.get(), keep) != 0) {
    return system_error("cannot cut the torn last line of " + path_, errno);
  }
  return {};
}

Result<void> LineFile::append(std::string_view record) {
  std::string whole(record);
  if (content_ == Content::kLines) {
    whole += '\n';
  }
  if (torn_at_) {
    TRY(cut_torn_record());
  }
  const off_t before = ::lseek(fd_.get(), 0, SEEK_END);
  const std::size_t done = write_all(fd_.get(), std::as_bytes(std::span(whole)));
  if (done == whole.size()) {
    return {};
  }
  const Error failure = system_error("cannot write " + path_, errno);
  if (done > 0) {
    torn_at_ = before;
    if (const Result<void> cut = cut_torn_record(); !cut.ok()) {
      return Error{Errc::kIo, failure.detail + "; " + cut.error().detail};
    }
  }
  return failure;
}

Result<void> LineFile::cut_torn_record() {
  if (::ftruncate(fd_.get(), *torn_at_) != 0) {
    return system_error("cannot cut the torn last record of " + path_, errno);
  }
  torn_at_.reset();
  return {};
}

}  // namespace mayfly::engine
