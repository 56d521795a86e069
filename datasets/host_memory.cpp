#include "datasets/host_memory.hpp"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstdlib>
#include <sstream>
#include <utility>
#include <vector>

#include "base/file.hpp"
#include "base/lock_file.hpp"
#include "base/time.hpp"
#include "base/try_assign.hpp"
#include "base/usable_memory.hpp"

namespace mayfly::datasets {
namespace {

constexpr std::size_t kListBytesMax = 1 << 20;

/// A process that has the memory, and its descriptor there.
struct Holder {
  ::pid_t process = 0;
  int fd = -1;

  [[nodiscard]] std::string path() const { return fmt::format("/proc/{}/fd/{}", process, fd); }
};

std::vector<Holder> read_list(const std::string& path) {
  std::vector<Holder> holders;
  const Result<std::string> text = read_text_file(path, kListBytesMax);
  std::istringstream lines(text.ok() ? text.value() : "");
  for (Holder holder; lines >> holder.process >> holder.fd;) {
    holders.push_back(holder);
  }
  return holders;
}

Result<void> write_list(const std::string& path, const std::vector<Holder>& holders) {
  std::string text;
  for (const Holder& holder : holders) {
    text += fmt::format("{} {}\n", holder.process, holder.fd);
  }
  return write_file_atomic(path, std::string_view(text));
}

/// A folder that nobody else may write to; others could make us map what is not ours.
Result<std::string> own_folder() {
  const char* const runtime = std::getenv("XDG_RUNTIME_DIR");
  const std::string folder = runtime != nullptr && *runtime != '\0'
                                 ? std::string(runtime) + "/mayfly"
                                 : fmt::format("/tmp/mayfly-{}", ::getuid());
  if (::mkdir(folder.c_str(), 0700) != 0 && errno != EEXIST) {
    return file_error("cannot make the folder of stores", folder);
  }
  struct stat info {};
  if (::lstat(folder.c_str(), &info) != 0 || !S_ISDIR(info.st_mode) || info.st_uid != ::getuid() ||
      (info.st_mode & 0022) != 0) {
    return Error{Errc::kIo, folder +
                                " is not a folder of this user alone, so no store of images "
                                "can be found there; remove it, or set XDG_RUNTIME_DIR"};
  }
  return folder;
}

std::optional<HostMemory::Mapping> mapping_of(const Holder& holder, const HostMemory::Map& map) {
  UniqueFd fd(::open(holder.path().c_str(), O_RDWR | O_CLOEXEC | O_NONBLOCK));
  struct stat info {};
  const bool is_memory = fd.valid() && ::fstat(fd.get(), &info) == 0 && S_ISREG(info.st_mode);
  return is_memory ? map(std::move(fd), static_cast<std::uint64_t>(info.st_size)) : std::nullopt;
}

}  // namespace

Result<std::unique_ptr<HostMemory>> HostMemory::join(const std::string& name, std::string folder,
                                                     const Map& map, const Make& make) {
  if (folder.empty()) {
    TRY_ASSIGN(folder, own_folder());
  }
  std::string list = folder + "/" + name;
  TRY_ASSIGN(const LockFile lock, LockFile::take(list + ".lock", seconds(30)));
  std::vector<Holder> holders = read_list(list);
  std::optional<Mapping> found;
  std::erase_if(holders, [&](const Holder& holder) {
    std::optional<Mapping> mapping = mapping_of(holder, map);
    const bool is_gone = !mapping;
    if (!found) {
      found = std::move(mapping);
    }
    return is_gone;
  });
  if (!found) {
    TRY_ASSIGN(found, make());
  }
  holders.push_back({::getpid(), found->fd.get()});
  TRY(write_list(list, holders));
  return std::unique_ptr<HostMemory>(new HostMemory(std::move(list), std::move(*found)));
}

HostMemory::~HostMemory() {
  const std::string lock_path = list_ + ".lock";
  const Result<LockFile> lock = LockFile::take(lock_path);
  if (!lock.ok()) {
    return;  // the next process finds our entry dead
  }
  struct stat own {};
  (void)::fstat(fd(), &own);
  std::vector<Holder> others = read_list(list_);
  std::erase_if(others, [&](const Holder& holder) {  // us, and who has ended without a word
    struct stat info {};
    const bool is_us = holder.process == ::getpid() && holder.fd == fd();
    return is_us || ::stat(holder.path().c_str(), &info) != 0 || info.st_ino != own.st_ino;
  });
  if (others.empty()) {
    (void)::unlink(list_.c_str());
    (void)::unlink(lock_path.c_str());  // who waits for the lock makes it again
  } else {
    (void)write_list(list_, others);
  }
}

Result<void> check_memory(const char* what, std::uint64_t bytes) {
  const std::uint64_t usable = usable_memory();
  if (bytes <= usable) {
    return {};
  }
  return Error{
      Errc::kInvalidInput,
      fmt::format("{} of {:.1f} GiB is more than the {:.1f} GiB of memory that this "
                  "machine, or the limit of this process's control group, leaves",
                  what, static_cast<double>(bytes) / 0x1p30, static_cast<double>(usable) / 0x1p30)};
}

}  // namespace mayfly::datasets
