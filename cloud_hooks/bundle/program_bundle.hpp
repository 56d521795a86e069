#pragma once

// The bundle: an archive of this program for machines that have neither it nor its libraries.

#include <cstdint>
#include <string>

#include "base/result.hpp"
#include "base/unique_fd.hpp"

namespace mayfly::cloud_hooks {

/// NVIDIA's libraries that the GPU modules need (cuDNN, NCCL, and the libraries that cuDNN loads
/// itself).
enum class NvidiaLibraries {
  kOfTheServer,  ///< the server has them; the archive's start script looks for them
  kPacked,       ///< the archive contains them: about 1 GB more
};

/// Optional contents of an archive.
struct BundleContents {
  NvidiaLibraries nvidia = NvidiaLibraries::kOfTheServer;
  /// The folder of a program of the user's own, which servers start in a copy of the folder; empty
  /// = none.
  std::string program_dir = {};
};

/// Upper limit of the sizes of all files of a user's folder; training data is sent in other ways.
inline constexpr std::uint64_t kProgramDirBytesMax = std::uint64_t{256} << 20;

/// Writes a gzipped tar with one folder, `mayfly`, in which the script `mayfly` starts this program
/// with its modules (libmayfly_*.so), libmayfly and its Python package, and the shared libraries
/// that the program has loaded. The C library is not packed, because it must match the loader of
/// the machine, whose glibc must not be older than ours. The same files give the same archive.
/// Files that git, Python and runs leave in the user's folder are not packed (.git, .venv,
/// __pycache__, .cache, run directories). Needs tar and gzip; strip, if there is one, removes
/// debugging information. kNotFound if a library or the user's folder does not exist, kInvalidInput
/// if the folder has more than kProgramDirBytesMax, kIo with the reason; no partial archive is
/// left. Takes some ten seconds, with NVIDIA's libraries a minute or two. Any thread.
[[nodiscard]] Result<void> pack_own_program(const std::string& output,
                                            const BundleContents& contents);

/// The archive of this program in `folder`, without NVIDIA's libraries; `folder` is created if
/// necessary. The archive is packed again only when the program, a module, a library or the user's
/// folder has changed.
[[nodiscard]] Result<std::string> packed_own_program(const std::string& folder,
                                                     const std::string& program_dir);

/// Whether an archive of pack_own_program() has the module for --device cuda. kIo if it cannot be
/// read. Reads all of it.
[[nodiscard]] Result<bool> has_cuda_module(const std::string& bundle);

inline constexpr std::uint64_t kBundleBytesMax = std::uint64_t{4} << 30;

struct BundleFile {
  UniqueFd fd;              ///< refers to the same file even if another one gets its name
  std::uint64_t bytes = 0;  ///< size when it was opened
  std::string sha256;       ///< hash of these bytes, in hexadecimal
};

/// Opens and hashes the file. kNotFound, kIo; kInvalidInput if it is not a regular file, empty, or
/// larger than kBundleBytesMax. Any thread.
[[nodiscard]] Result<BundleFile> open_bundle(const std::string& path);

}  // namespace mayfly::cloud_hooks
