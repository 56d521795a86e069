#include "cloud_hooks/bundle/program_bundle.hpp"

#include <fcntl.h>
#include <fmt/format.h>
#include <link.h>
#include <openssl/evp.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstdlib>
#include <filesystem>
#include <map>
#include <memory>
#include <span>
#include <sstream>
#include <string_view>
#include <utility>
#include <vector>

#include "base/check.hpp"
#include "base/digest.hpp"
#include "base/file.hpp"
#include "base/process/program.hpp"
#include "base/system_error.hpp"
#include "base/try_assign.hpp"
#include "base/unique_fd.hpp"
#include "cloud_hooks/http/message.hpp"

namespace mayfly::cloud_hooks {
namespace {

namespace fs = std::filesystem;

constexpr Duration kPackTimeout = seconds(300);

// The program finds its libraries by itself (cli/CMakeLists.txt), so that a user's program, which
// it may start with exec, uses those of the machine. The search for NVIDIA's libraries takes some
// milliseconds. It is made only if there is a GPU module and the loader does not know the library:
// Python's packages install them in folders that no loader searches.
constexpr const char* kStarter = R"sh(#!/bin/sh
here=$(dirname "$(readlink -f "$0")")
known=
find_library() {
  case $known in *"$1"*) return ;; esac
  for folder in "$here/lib" $(printf %s "${LD_LIBRARY_PATH-}" | tr : ' ') /usr/local/cuda/lib64 \
    /usr/local/cuda/lib "${CONDA_PREFIX:-/opt/conda}"/lib \
    "${VIRTUAL_ENV:-/opt/conda}"/lib/python3*/site-packages/nvidia/*/lib \
    "${HOME:-/root}"/.local/lib/python3*/site-packages/nvidia/*/lib \
    /usr/local/lib/python3*/*-packages/nvidia/*/lib /usr/lib/python3*/*-packages/nvidia/*/lib; do
    if [ -e "$folder/$1" ]; then
      export LD_LIBRARY_PATH="${LD_LIBRARY_PATH:+$LD_LIBRARY_PATH:}$folder"
      return
    fi
  done
}
if [ -e "$here/bin/libmayfly_cuda.so" ]; then
  known=$(PATH=$PATH:/sbin:/usr/sbin ldconfig -p 2>/dev/null)
  find_library libcudnn.so.9
  find_library libnccl.so.2
fi
if [ -d "$here/program" ]; then
  export MAYFLY_PROGRAM_DIR="$here/program"
fi
exec "$here/bin/mayfly" "$@"
)sh";

/// The C library must be that of the machine: the loader, which is part of it, accepts no other.
bool belongs_to_c_library(const std::string& name) {
  constexpr std::array<std::string_view, 9> kOwn = {"linux-vdso.", "ld-linux", "libc.",
                                                    "libm.",       "libdl.",   "libpthread.",
                                                    "librt.",      "libnss_",  "libresolv."};
  return std::any_of(kOwn.begin(), kOwn.end(),
                     [&](std::string_view own) { return name.starts_with(own); });
}

/// NVIDIA's libraries are large, must fit the machine's driver, and are installed where a GPU is
/// used.
bool is_nvidias(const std::string& name) {
  return name.starts_with("libcu") || name.starts_with("libnccl") || name.starts_with("libnv");
}

using Libraries = std::map<std::string, fs::path>;  // by the name that the loader asks for

Libraries loaded_libraries() {
  Libraries libraries;
  ::dl_iterate_phdr(
      [](dl_phdr_info* info, std::size_t, void* list) {
        const fs::path path = info->dlpi_name;
        const std::string name = path.filename();
        if (path.is_absolute() && !belongs_to_c_library(name) && !is_nvidias(name)) {
          static_cast<Libraries*>(list)->emplace(name, path);
        }
        return 0;
      },
      &libraries);
  return libraries;
}

fs::path own_executable() {
  std::error_code failure;
  return fs::read_symlink("/proc/self/exe", failure);
}

Result<void> run_to_end(std::vector<std::string> argv) {
  ProgramCall call;
  call.argv = std::move(argv);
  call.timeout = kPackTimeout;
  TRY_ASSIGN(const ProgramResult ran, run_program(call));
  return ran.succeeded() ? Result<void>()
                         : Result<void>(Error{Errc::kIo, call.argv[0] + ": " + ran.summary()});
}

/// The modules in the program's folder. They link the same libraries as the program, NVIDIA's
/// libraries, and an MPI, which belongs to the machine's launcher.
std::vector<fs::path> own_modules() {
  std::vector<fs::path> found;
  for (const char* name : {"cuda", "nccl", "mpi"}) {
    const std::string path = find_beside_program(fmt::format("libmayfly_{}.so", name));
    if (!path.empty()) {
      found.emplace_back(path);
    }
  }
  return found;
}

/// Adds the libraries in the folder of `library` whose names begin with `prefix` and have a
/// version.
void add_family(const fs::path& library, const std::string& prefix, Libraries& libraries) {
  for (const std::string& name : names_in(library.parent_path().string())) {
    if (name.starts_with(prefix) && name.find(".so.") != std::string::npos) {
      libraries.emplace(name, library.parent_path() / name);
    }
  }
}

/// cuDNN loads its parts by name while it runs, and NVRTC and cuBLASLt besides. Its part for
/// attention and recurrent networks is not among those that a ResNet needs.
void add_what_cudnn_loads(const fs::path& cudnn, Libraries& libraries) {
  for (const char* family : {"libcudnn_", "libnvrtc", "libcublasLt."}) {
    add_family(cudnn, family, libraries);
  }
  std::erase_if(libraries, [](const auto& library) {
    return library.first.starts_with("libcudnn_adv.") ||
           library.first.find(".alt.") != std::string::npos;
  });
}

/// NVIDIA's libraries that a module needs, as `ldd` finds them.
Result<void> add_nvidia_libraries(const fs::path& module, Libraries& libraries) {
  ProgramCall call;
  call.argv = {"ldd", module.string()};
  const Result<ProgramResult> ran = run_program(call);
  if (!ran.ok() || !ran.value().succeeded()) {
    return Error{Errc::kIo, "ldd: " + (ran.ok() ? ran.value().summary() : ran.error().detail)};
  }
  std::istringstream lines(ran.value().output);
  for (std::string line; std::getline(lines, line);) {
    std::istringstream words(line);
    std::string name;
    std::string arrow;
    std::string path;
    words >> name >> arrow >> path;
    if (!is_nvidias(name)) {
      continue;
    }
    if (!path.starts_with('/')) {
      return Error{Errc::kNotFound, fmt::format("{} of {} is not on this machine; put its folder "
                                                "into LD_LIBRARY_PATH",
                                                name, module.filename().string())};
    }
    libraries.emplace(name, path);
    if (name.starts_with("libcudnn.")) {
      add_what_cudnn_loads(path, libraries);
    }
  }
  return {};
}

/// Creates a copy without debugging information, or, if there is no strip, a link.
std::error_code place_program(const fs::path& program, const fs::path& copy) {
  std::error_code failure;
  if (!run_to_end({"strip", "--strip-debug", "-o", copy.string(), program.string()}).ok()) {
    fs::create_symlink(program, copy, failure);
  }
  return failure;
}

/// libmayfly finds the libraries that it needs in the folder above (library/CMakeLists.txt), so
/// that the programs that load it, such as Python, have those of their machine.
void place_library(const fs::path& folder, std::error_code& failure) {
  const std::string library = find_beside_program("libmayfly.so.0");
  const std::string package = find_beside_program("python/mayfly/__init__.py");
  const std::string installed = find_beside_program("python3/dist-packages/mayfly/__init__.py");
  if (!library.empty() && !failure) {
    fs::create_directories(folder / "lib/mayfly", failure);
    failure = place_program(library, folder / "lib/mayfly/libmayfly.so.0");
  }
  if (const fs::path first = package.empty() ? installed : package; !first.empty() && !failure) {
    fs::create_directories(folder / "lib/python", failure);
    fs::create_symlink(fs::canonical(first.parent_path()), folder / "lib/python/mayfly", failure);
  }
}

/// Files that git, Python and jobs leave in a user's folder. Archives are made in kPartsPrefix; a
/// folder with kRunMark is a run directory, with checkpoints and a token.
constexpr std::array<std::string_view, 4> kLeftBehind = {".git", ".venv", ".cache", "__pycache__"};
constexpr const char* kRunMark = "events.jsonl";
constexpr const char* kPartsPrefix = ".bundle-";

bool stays_behind(const fs::path& path) {
  const std::string name = path.filename();
  std::error_code absent;
  return std::ranges::find(kLeftBehind, std::string_view(name)) != kLeftBehind.end() ||
         name.starts_with(kPartsPrefix) || fs::exists(path / kRunMark, absent);
}

/// The files of a user's folder that are packed, in order.
Result<std::vector<fs::path>> files_of_folder(const fs::path& folder) {
  std::error_code failure;
  if (!fs::is_directory(folder, failure)) {
    return Error{Errc::kNotFound, folder.string() + " is not a folder"};
  }
  std::vector<fs::path> files;
  std::uint64_t bytes = 0;
  auto entry = fs::recursive_directory_iterator(
      folder, fs::directory_options::follow_directory_symlink, failure);
  for (; !failure && entry != fs::recursive_directory_iterator(); entry.increment(failure)) {
    struct stat about {};
    if (stays_behind(entry->path())) {
      entry.disable_recursion_pending();
    } else if (::stat(entry->path().c_str(), &about) == 0 && S_ISREG(about.st_mode)) {
      bytes += static_cast<std::uint64_t>(about.st_size);
      files.push_back(entry->path());
    }
    if (bytes > kProgramDirBytesMax) {
      return Error{
          Errc::kInvalidInput,
          fmt::format("the folder {} has more than {} MiB, too much to copy to every "
                      "server; name one with the program alone (--program-dir), and read "
                      "the data from where the servers have it",
                      fs::absolute(folder).lexically_normal().string(), kProgramDirBytesMax >> 20)};
    }
  }
  if (failure) {
    return Error{Errc::kIo, folder.string() + ": " + failure.message()};
  }
  std::ranges::sort(files);
  return files;
}

/// A line for each of the files, which changes with the file.
std::string facts_of(const std::vector<fs::path>& files) {
  std::string facts;
  for (const fs::path& file : files) {
    struct stat about {};
    if (::stat(file.c_str(), &about) == 0) {
      facts += fmt::format("{} {} {}.{:09}\n", file.string(), about.st_size, about.st_mtim.tv_sec,
                           about.st_mtim.tv_nsec);
    }
  }
  return facts;
}

/// Creates links to the files of a user's folder, except to an earlier archive in it with the name
/// of `output`.
Result<void> place_user_files(const fs::path& user, const fs::path& copy, const fs::path& output) {
  const fs::path from = fs::absolute(user).lexically_normal();
  TRY_ASSIGN(const std::vector<fs::path> files, files_of_folder(from));
  std::error_code failure;
  fs::create_directories(copy, failure);
  for (const fs::path& file : files) {
    const fs::path link = copy / file.lexically_relative(from);  // also of a symbolic link
    if (!failure && file != output) {
      fs::create_directories(link.parent_path(), failure);
      fs::create_symlink(file, link, failure);
    }
  }
  return failure ? Result<void>(Error{Errc::kIo, copy.string() + ": " + failure.message()})
                 : Result<void>();
}

/// Lays out the files to pack; those of the system and of the user are links.
Result<void> lay_out(const fs::path& folder, const BundleContents& contents,
                     const fs::path& output) {
  const fs::path executable = own_executable();
  Libraries libraries = loaded_libraries();
  std::error_code failure;
  fs::create_directories(folder / "lib", failure);
  fs::create_directories(folder / "bin", failure);
  if (!failure) {
    failure = place_program(executable, folder / "bin/mayfly");
  }
  for (const fs::path& module : own_modules()) {
    if (!failure) {
      failure = place_program(module, folder / "bin" / module.filename());
    }
    if (contents.nvidia == NvidiaLibraries::kPacked && module.filename() != "libmayfly_mpi.so") {
      TRY(add_nvidia_libraries(module, libraries));
    }
  }
  for (const auto& [name, path] : libraries) {
    if (!failure) {
      fs::create_symlink(path, folder / "lib" / name, failure);
    }
  }
  place_library(folder, failure);
  if (!contents.program_dir.empty() && !failure) {
    TRY(place_user_files(contents.program_dir, folder / "program", output));
  }
  if (failure) {
    return Error{Errc::kIo, folder.string() + ": " + failure.message()};
  }
  const std::string starter = (folder / "mayfly").string();
  TRY(write_file_atomic(starter, kStarter));
  return ::chmod(starter.c_str(), 0755) == 0 ? Result<void>()
                                             : Result<void>(Error{Errc::kIo, starter + ": chmod"});
}

constexpr std::size_t kBlockBytes = std::size_t{1} << 20;

struct FreeContext {
  void operator()(EVP_MD_CTX* context) const { ::EVP_MD_CTX_free(context); }
};

Error failure(const std::string& path, int number) {
  return system_error(path, number, number == ENOENT ? Errc::kNotFound : Errc::kIo);
}

/// The hash of exactly `bytes` bytes from the file's beginning.
Result<std::string> hash_of(int fd, std::uint64_t bytes, const std::string& path) {
  const std::unique_ptr<EVP_MD_CTX, FreeContext> context(::EVP_MD_CTX_new());
  ENSURE(context != nullptr && ::EVP_DigestInit_ex(context.get(), ::EVP_sha256(), nullptr) == 1,
         "OpenSSL has SHA-256");
  std::vector<char> block(kBlockBytes);
  for (std::uint64_t at = 0; at < bytes;) {
    const ssize_t count = ::pread(fd, block.data(), block.size(), static_cast<off_t>(at));
    if (count < 0 && errno == EINTR) {
      continue;
    }
    if (count <= 0) {
      return count < 0 ? failure(path, errno)
                       : Error{Errc::kIo, path + " became shorter while it was read"};
    }
    ::EVP_DigestUpdate(context.get(), block.data(), static_cast<std::size_t>(count));
    at += static_cast<std::uint64_t>(count);
  }
  std::array<unsigned char, EVP_MAX_MD_SIZE> digest{};
  unsigned int size = 0;
  ::EVP_DigestFinal_ex(context.get(), digest.data(), &size);
  return to_hex({reinterpret_cast<const char*>(digest.data()), size});
}

}  // namespace

Result<void> pack_own_program(const std::string& output, const BundleContents& contents) {
  const fs::path parent = fs::absolute(output).parent_path();
  std::error_code failure;
  fs::create_directories(parent, failure);
  std::string parts = (parent / kPartsPrefix).string() + "XXXXXX";
  if (failure || ::mkdtemp(parts.data()) == nullptr) {
    return Error{Errc::kIo, "cannot write into " + parent.string()};
  }
  const std::string packed = parts + "/packed";
  Result<void> done =
      lay_out(fs::path(parts) / "mayfly", contents, fs::absolute(output).lexically_normal());
  if (done.ok()) {
    done = run_to_end({"tar", "--sort=name", "--mtime=@0", "--owner=0", "--group=0",
                       "--numeric-owner", "--mode=u+rwX,go+rX,go-w", "--dereference",
                       "--use-compress-program=gzip -3n", "-C", parts, "-cf", packed, "mayfly"});
  }
  if (done.ok()) {
    const UniqueFd file(::open(packed.c_str(), O_RDONLY | O_CLOEXEC));
    if (file.valid()) {  // it must be complete under its final name, also after a loss of power
      ::fsync(file.get());
    }
    fs::rename(packed, output, failure);
    if (failure) {
      done = Error{Errc::kIo, output + ": " + failure.message()};
    }
  }
  fs::remove_all(parts, failure);
  return done;
}

Result<std::string> packed_own_program(const std::string& folder, const std::string& program_dir) {
  std::vector<fs::path> files = own_modules();
  files.push_back(own_executable());
  for (const auto& [name, path] : loaded_libraries()) {
    files.push_back(path);
  }
  if (!program_dir.empty()) {
    TRY_ASSIGN(const std::vector<fs::path> of_user,
               files_of_folder(fs::absolute(program_dir).lexically_normal()));
    files.insert(files.end(), of_user.begin(), of_user.end());
  }
  const std::string facts = facts_of(files);
  const std::string path = folder + "/program-" +
                           to_string(digest_of(std::as_bytes(std::span(facts)))).substr(0, 16) +
                           ".tar.gz";
  std::error_code failure;
  if (!fs::exists(path, failure)) {
    TRY(pack_own_program(path, {.program_dir = program_dir}));
  }
  return path;
}

Result<bool> has_cuda_module(const std::string& bundle) {
  constexpr std::size_t kListingBytesMax = std::size_t{1} << 30;  // it may list a user's folder
  ProgramCall call;
  call.argv = {"tar", "-tzf", bundle};
  call.timeout = kPackTimeout;
  call.output_bytes_max = kListingBytesMax;
  const Result<ProgramResult> ran = run_program(call);
  if (!ran.ok() || !ran.value().succeeded()) {
    return Error{Errc::kIo,
                 bundle + ": " + (ran.ok() ? ran.value().summary() : ran.error().detail)};
  }
  return ran.value().output.find("mayfly/bin/libmayfly_cuda.so\n") != std::string::npos;
}

Result<BundleFile> open_bundle(const std::string& path) {
  BundleFile bundle;
  // Non-blocking, because opening a named pipe would block before it is refused.
  bundle.fd = UniqueFd(::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK));
  struct stat about {};
  if (!bundle.fd.valid() || ::fstat(bundle.fd.get(), &about) != 0) {
    return failure(path, errno);
  }
  bundle.bytes = static_cast<std::uint64_t>(about.st_size);
  if (!S_ISREG(about.st_mode) || bundle.bytes == 0 || bundle.bytes > kBundleBytesMax) {
    return Error{Errc::kInvalidInput,
                 path + " is not a bundle: it is not a file, empty, or over 4 GiB"};
  }
  TRY_ASSIGN(bundle.sha256, hash_of(bundle.fd.get(), bundle.bytes, path));
  return bundle;
}

}  // namespace mayfly::cloud_hooks
