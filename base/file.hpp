#pragma once

#include <cstddef>
#include <string>
#include <string_view>
#include <vector>

#include "base/bytes.hpp"
#include "base/result.hpp"
#include "base/unique_fd.hpp"

namespace mayfly {

/// An error "WHAT PATH: reason" for the current errno: kNotFound if there is no such file,
/// kInvalidInput if the path itself is invalid, otherwise kIo.
[[nodiscard]] Error file_error(const std::string& what, const std::string& path);

/// A regular file that is open for reading, and its size.
struct ReadableFile {
  UniqueFd fd;
  std::size_t size = 0;
};
/// Opens it. kInvalidInput if it is not a regular file; a named pipe or a device never blocks the
/// caller.
[[nodiscard]] Result<ReadableFile> open_to_read(const std::string& path);

/// Reads a whole file, as open_to_read() opens it. Fails with the path and both sizes if it is
/// larger than `size_max` bytes. Not for files under /proc and /sys, which have no size and seem
/// empty: see content_of_kernel_file() in base/control_group.hpp.
[[nodiscard]] Result<Bytes> read_file(const std::string& path, std::size_t size_max);
/// The same, as text.
[[nodiscard]] Result<std::string> read_text_file(const std::string& path, std::size_t size_max);

/// Replaces `path` so that after a crash at any moment the file has the old or the new content,
/// never a mixture: temporary file beside it, fsync, rename, fsync of the folder. On failure the
/// temporary file is removed. Any thread; if several writers do this at once, also on other hosts,
/// the last rename decides.
[[nodiscard]] Result<void> write_file_atomic(const std::string& path, ByteSpan content);
[[nodiscard]] Result<void> write_file_atomic(const std::string& path, std::string_view content);

/// Writes all of `content` to an open file, even if the system accepts only parts at a time.
/// Returns the number of bytes written: fewer, with errno set, if it failed.
[[nodiscard]] std::size_t write_all(int fd, ByteSpan content);

/// The path of the running program, or "mayfly" if the system does not provide it.
[[nodiscard]] std::string own_program();

/// The path of a file that belongs to the program (a module, an engine table, another program): in
/// the program's own folder, or beside that in ../lib/mayfly or ../lib. Empty if it is in none.
[[nodiscard]] std::string find_beside_program(const std::string& file);

/// The names of a folder's entries in order, as far as they can be read; empty if there is no such
/// folder.
[[nodiscard]] std::vector<std::string> names_in(const std::string& folder);

/// Creates a folder and its parents; succeeds if it already exists.
[[nodiscard]] Result<void> make_directories(const std::string& path);

}  // namespace mayfly
