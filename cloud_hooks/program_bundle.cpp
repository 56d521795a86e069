#include "cloud_hooks/program_bundle.hpp"

#include <fmt/format.h>
#include <link.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cstdlib>
#include <filesystem>
#include <span>
#include <string_view>
#include <vector>

#include "base/digest.hpp"
#include "base/file.hpp"
#include "cloud_hooks/program_runner.hpp"

namespace mayfly::cloud_hooks {
namespace {

namespace fs = std::filesystem;

constexpr Duration kPackTimeout = seconds(300);

constexpr const char* kStarter = R"sh(#!/bin/sh
here=$(dirname "$(readlink -f "$0")")
LD_LIBRARY_PATH=$here/lib${LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH}
export LD_LIBRARY_PATH
exec "$here/bin/mayfly" "$@"
)sh";

bool belongs_to_c_library(const std::string& name) {
  constexpr std::array<std::string_view, 9> kOwn = {"linux-vdso.", "ld-linux", "libc.",
                                                    "libm.",       "libdl.",   "libpthread.",
                                                    "librt.",      "libnss_",  "libresolv."};
  return std::any_of(kOwn.begin(), kOwn.end(),
                     [&](std::string_view own) { return name.starts_with(own); });
}

std::vector<fs::path> loaded_libraries() {
  std::vector<fs::path> paths;
  ::dl_iterate_phdr(
      [](dl_phdr_info* info, std::size_t, void* list) {
        const fs::path path = info->dlpi_name;
        if (path.is_absolute() && !belongs_to_c_library(path.filename().string())) {
          static_cast<std::vector<fs::path>*>(list)->push_back(path);
        }
        return 0;
      },
      &paths);
  return paths;
}

fs::path own_executable() {
  std::error_code failure;
  return fs::read_symlink("/proc/self/exe", failure);
}

Result<void> run_to_end(std::vector<std::string> argv) {
  ProgramCall call;
  call.argv = std::move(argv);
  call.timeout = kPackTimeout;
  const Result<ProgramResult> ran = run_program(call);
  if (!ran.ok()) {
    return ran.error();
  }
  return ran.value().succeeded()
             ? Result<void>()
             : Result<void>(Error{Errc::kIo, call.argv[0] + ": " + ran.value().summary()});
}

/// Lays out what is packed; files of the system are links.
Result<void> lay_out(const fs::path& folder) {
  const fs::path executable = own_executable();
  std::error_code failure;
  fs::create_directories(folder / "bin", failure);
  fs::create_directories(folder / "lib", failure);
  const std::string copy = (folder / "bin/mayfly").string();
  if (!run_to_end({"strip", "--strip-debug", "-o", copy, executable.string()}).ok()) {
    fs::create_symlink(executable, copy, failure);
  }
  for (const fs::path& library : loaded_libraries()) {
    if (!failure) {
      fs::create_symlink(library, folder / "lib" / library.filename(), failure);
    }
  }
  if (failure) {
    return Error{Errc::kIo, folder.string() + ": " + failure.message()};
  }
  const std::string starter = (folder / "mayfly").string();
  TRY(write_file_atomic(starter, kStarter));
  return ::chmod(starter.c_str(), 0755) == 0 ? Result<void>()
                                             : Result<void>(Error{Errc::kIo, starter + ": chmod"});
}

}  // namespace

Result<void> pack_own_program(const std::string& output) {
  const fs::path parent = fs::absolute(output).parent_path();
  std::error_code failure;
  fs::create_directories(parent, failure);
  std::string parts = (parent / ".bundle-XXXXXX").string();
  if (failure || ::mkdtemp(parts.data()) == nullptr) {
    return Error{Errc::kIo, "cannot write into " + parent.string()};
  }
  const std::string packed = parts + "/packed";
  Result<void> done = lay_out(fs::path(parts) / "mayfly");
  if (done.ok()) {
    done = run_to_end({"tar", "--sort=name", "--mtime=@0", "--owner=0", "--group=0",
                       "--numeric-owner", "--mode=u+rwX,go+rX,go-w", "--dereference",
                       "--use-compress-program=gzip -6n", "-C", parts, "-cf", packed, "mayfly"});
  }
  if (done.ok()) {
    fs::rename(packed, output, failure);
    if (failure) {
      done = Error{Errc::kIo, output + ": " + failure.message()};
    }
  }
  fs::remove_all(parts, failure);
  return done;
}

Result<std::string> packed_own_program(const std::string& folder) {
  std::vector<fs::path> files = loaded_libraries();
  files.push_back(own_executable());
  std::string facts;
  for (const fs::path& file : files) {
    struct stat facts_of {};
    if (::stat(file.c_str(), &facts_of) == 0) {
      facts += fmt::format("{} {} {}.{:09}\n", file.string(), facts_of.st_size,
                           facts_of.st_mtim.tv_sec, facts_of.st_mtim.tv_nsec);
    }
  }
  const std::string path = folder + "/program-" +
                           to_string(digest_of(std::as_bytes(std::span(facts)))).substr(0, 16) +
                           ".tar.gz";
  std::error_code failure;
  if (!fs::exists(path, failure)) {
    TRY(pack_own_program(path));
  }
  return path;
}

}  // namespace mayfly::cloud_hooks
