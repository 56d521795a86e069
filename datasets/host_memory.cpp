#include "datasets/host_memory.hpp"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <sstream>
#include <string_view>
#include <utility>
#include <vector>

#include "base/file.hpp"
#include "base/lock_file.hpp"
#include "base/try_assign.hpp"

namespace mayfly::datasets {
namespace {

constexpr const char* kLockName = "/lock";
constexpr std::size_t kListBytesMax = 1 << 20;
constexpr Duration kListAgainAfter = seconds(3600);
constexpr Duration kMeasureAfter = milliseconds(100);
// The amount that is left for the rest of the machine: this part of the memory's size, but at most
// so many bytes.
constexpr std::uint64_t kMarginPart = 32;
constexpr std::uint64_t kMarginMost = std::uint64_t{1} << 30;

/// A process that has the memory open, its descriptor, and the upper bound on the memory.
struct Holder {
  ::pid_t process = 0;
  int fd = -1;
  std::uint64_t bytes_max = 0;

  [[nodiscard]] std::string path() const { return fmt::format("/proc/{}/fd/{}", process, fd); }
  [[nodiscard]] std::optional<struct stat> memory() const {
    struct stat info {};
    const bool is_there = ::stat(path().c_str(), &info) == 0 && S_ISREG(info.st_mode);
    return is_there ? std::optional(info) : std::nullopt;
  }
};

std::vector<Holder> read_list(const std::string& path) {
  std::vector<Holder> holders;
  const Result<std::string> text = read_text_file(path, kListBytesMax);
  std::istringstream lines(text.ok() ? text.value() : "");
  for (Holder holder; lines >> holder.process >> holder.fd >> holder.bytes_max;) {
    holders.push_back(holder);
  }
  return holders;
}

Result<void> write_list(const std::string& path, const std::vector<Holder>& holders) {
  std::string text;
  for (const Holder& holder : holders) {
    text += fmt::format("{} {} {}\n", holder.process, holder.fd, holder.bytes_max);
  }
  return write_file_atomic(path, std::string_view(text));
}

/// Removes processes that do not have this memory open any more, for example because they were
/// killed.
void remove_others(std::vector<Holder>& holders, int fd) {
  struct stat own {};
  (void)::fstat(fd, &own);
  std::erase_if(holders, [&](const Holder& holder) {
    const auto memory = holder.memory();
    return !memory || memory->st_ino != own.st_ino;
  });
}

/// Returns a folder to which only this user may write; otherwise another user could make this
/// process map their memory. XDG_RUNTIME_DIR is checked, because schedulers and containers pass on
/// one that does not exist, and sudo that of another user.
Result<std::string> own_folder() {
  const char* const runtime = std::getenv("XDG_RUNTIME_DIR");
  struct stat info {};
  const bool has_runtime = runtime != nullptr && ::stat(runtime, &info) == 0 &&
                           S_ISDIR(info.st_mode) && info.st_uid == ::getuid();
  const std::string folder =
      has_runtime ? std::string(runtime) + "/mayfly" : fmt::format("/tmp/mayfly-{}", ::getuid());
  if (::mkdir(folder.c_str(), 0700) != 0 && errno != EEXIST) {
    return file_error("cannot make the folder of stores", folder);
  }
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

/// The amounts that other memory of this user may still take.
struct Promised {
  std::uint64_t on_machine = 0;
  std::uint64_t in_group = 0;  ///< the part for processes of this process's control group
};

/// Checks the descriptor, because it may be another file if the process has ended.
std::uint64_t promised_to(const Holder& holder) {
  constexpr std::uint64_t kBlock = 512;
  std::error_code failure;
  const std::string what = std::filesystem::read_symlink(holder.path(), failure).string();
  const auto memory = holder.memory();
  if (!memory || !what.starts_with("/memfd:mayfly")) {
    return 0;
  }
  const std::uint64_t taken = static_cast<std::uint64_t>(memory->st_blocks) * kBlock;
  return holder.bytes_max - std::min(holder.bytes_max, taken);
}

std::string control_groups_of(const std::string& process) {
  std::ifstream file("/proc/" + process + "/cgroup");
  return {std::istreambuf_iterator<char>(file), std::istreambuf_iterator<char>()};
}

/// Must be called under the lock.
Promised promised_to_others(const std::string& folder) {
  Promised promised;
  const std::string own_groups = control_groups_of("self");
  for (const std::string& name : names_in(folder)) {
    const std::string path = folder + "/" + name;
    if (name.find(".tmp.") != std::string::npos) {
      (void)::unlink(path.c_str());  // left by a process that was killed while it wrote the list
      continue;
    }
    for (const Holder& holder : read_list(path)) {
      if (const std::uint64_t bytes = promised_to(holder); bytes > 0) {
        const bool is_near = control_groups_of(std::to_string(holder.process)) == own_groups;
        promised.on_machine += bytes;
        promised.in_group += is_near ? bytes : 0;
        break;  // all processes of this list have the same memory
      }
    }
  }
  return promised;
}

double gib(std::uint64_t bytes) {
  return static_cast<double>(bytes) / 0x1p30;
}

/// Rejects an amount that is not available.
Result<void> check_memory(const HostMemory::Options& options, const std::string& folder) {
  const Promised others = promised_to_others(folder);
  const std::uint64_t machine = usable_memory_of_machine();
  const std::uint64_t group = options.usable();
  const std::uint64_t left = std::min(machine - std::min(machine, others.on_machine),
                                      group - std::min(group, others.in_group));
  if (options.bytes_max <= left) {
    return {};
  }
  const std::string beside =
      others.on_machine == 0
          ? ""
          : fmt::format(" beside the {:.1f} GiB that other stores of this user may still take",
                        gib(others.on_machine));
  return Error{Errc::kInvalidInput,
               fmt::format("{} of {:.1f} GiB is more than the {:.1f} GiB of memory that this "
                           "machine, or the limit of this process's control group, leaves{}",
                           options.what, gib(options.bytes_max), gib(left), beside)};
}

}  // namespace

Result<std::unique_ptr<HostMemory>> HostMemory::join(const Options& options, const Map& map,
                                                     const Make& make) {
  std::string folder = options.folder;
  if (folder.empty()) {
    TRY_ASSIGN(folder, own_folder());
  }
  const std::string list = folder + "/" + options.name;
  // One lock for all lists, so that memory that one process creates is counted by the next process.
  TRY_ASSIGN(const LockFile lock, LockFile::take(folder + kLockName, seconds(30)));
  std::vector<Holder> holders = read_list(list);
  std::optional<Mapping> found;
  std::uint64_t bytes_max = options.bytes_max;
  std::erase_if(holders, [&](const Holder& holder) {
    std::optional<Mapping> mapping = mapping_of(holder, map);
    const bool is_gone = !mapping;
    if (!found && mapping) {
      found = std::move(mapping);
      bytes_max = holder.bytes_max;
    }
    return is_gone;
  });
  if (!found) {
    TRY(check_memory(options, folder));
    TRY_ASSIGN(found, make());
  }
  holders.push_back({::getpid(), found->fd.get(), bytes_max});
  TRY(write_list(list, holders));
  return std::unique_ptr<HostMemory>(
      new HostMemory(options, std::move(folder), bytes_max, std::move(*found)));
}

HostMemory::HostMemory(const Options& options, std::string folder, std::uint64_t bytes_max,
                       Mapping mapping)
    : list_(folder + "/" + options.name),
      lock_(std::move(folder) + kLockName),
      bytes_max_(bytes_max),
      usable_(options.usable),
      mapping_(std::move(mapping)) {}

HostMemory::~HostMemory() {
  const Result<LockFile> lock = LockFile::take(lock_);
  if (!lock.ok()) {
    return;  // the next process removes this process from the list
  }
  std::vector<Holder> others = read_list(list_);
  remove_others(others, fd());
  std::erase_if(others, [&](const Holder& holder) {
    return holder.process == ::getpid() && holder.fd == fd();
  });
  if (others.empty()) {
    (void)::unlink(list_.c_str());
    (void)::unlink(lock_.c_str());  // a process that waits for the lock creates the file again
  } else {
    (void)write_list(list_, others);
  }
}

Digest unshared_key() {
  Digester key;
  key.add_value(::getpid());
  key.add_value(monotonic_now().ns);
  return key.finish();
}

void HostMemory::stay_listed(Instant now) {
  Instant before = listed_;
  if (now - before < kListAgainAfter || !listed_.compare_exchange_strong(before, now)) {
    return;
  }
  const Result<LockFile> lock = LockFile::take(lock_);
  if (!lock.ok()) {
    return;
  }
  std::vector<Holder> holders = read_list(list_);
  const bool is_new = holders.empty();
  remove_others(holders, fd());
  if (holders.empty() && !is_new) {
    return;  // other processes have created new memory meanwhile
  }
  std::erase_if(holders, [&](const Holder& holder) {
    return holder.process == ::getpid() && holder.fd == fd();
  });
  holders.push_back({::getpid(), fd(), bytes_max_});
  (void)write_list(list_, holders);
}

/// Measures only now and then, because it reads some files.
void HostMemory::measure() {
  const Instant now = monotonic_now();
  if (measured_ && now - *measured_ < kMeasureAfter) {
    return;
  }
  const std::uint64_t margin = std::min(bytes_max_ / kMarginPart, kMarginMost);
  const std::uint64_t usable = usable_();
  measured_ = now;
  bytes_left_ = usable - std::min(usable, margin);
}

bool HostMemory::take(std::uint64_t bytes) {
  const std::lock_guard lock(mutex_);
  measure();
  const bool may_take = bytes <= bytes_left_;
  bytes_left_ -= may_take ? bytes : 0;
  return may_take;
}

void HostMemory::give_back(std::uint64_t bytes) {
  const std::lock_guard lock(mutex_);
  bytes_left_ += bytes;
}

std::uint64_t HostMemory::left() {
  const std::lock_guard lock(mutex_);
  measure();
  return bytes_left_;
}

}  // namespace mayfly::datasets
