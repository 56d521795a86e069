#include "observe/run_follower.hpp"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <filesystem>
#include <functional>
#include <limits>
#include <map>
#include <set>
#include <utility>
#include <vector>

#include "base/file.hpp"
#include "base/unique_fd.hpp"

namespace mayfly::observe {
namespace {

constexpr std::size_t kBlockBytes = std::size_t{1} << 20;
constexpr std::size_t kLineBytesMax = std::size_t{1} << 20;
constexpr std::size_t kSmallFileBytesMax = std::size_t{8} << 20;

using UseLine = std::function<void(std::string_view line, std::uint64_t offset)>;

/// The size of the file; 0 if there is none.
std::uint64_t size_of(const std::string& path) {
  struct stat facts {};
  return ::stat(path.c_str(), &facts) == 0 ? static_cast<std::uint64_t>(facts.st_size) : 0;
}

/// Passes every complete line from `file.offset` up to `end_max` to `use`, and advances the offset.
/// A line that is longer than any record is passed in pieces, none of which is a record.
bool read_lines(GrowingFile& file, const UseLine& use,
                std::uint64_t end_max = std::numeric_limits<std::uint64_t>::max()) {
  const UniqueFd fd(::open(file.path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK));
  struct stat facts {};
  if (!fd.valid() || ::fstat(fd.get(), &facts) != 0 ||
      static_cast<std::uint64_t>(facts.st_size) <= file.offset) {
    return false;
  }
  std::vector<char> block(kBlockBytes);
  bool any = false;
  while (true) {
    const std::size_t most =
        std::min<std::uint64_t>(block.size(), end_max - std::min(end_max, file.offset));
    const ssize_t count = ::pread(fd.get(), block.data(), most, static_cast<off_t>(file.offset));
    if (count < 0 && errno == EINTR) {
      continue;
    }
    const std::string_view bytes(block.data(), count > 0 ? static_cast<std::size_t>(count) : 0);
    std::size_t begin = 0;
    for (std::size_t end = 0; (end = bytes.find('\n', begin)) != std::string_view::npos;
         begin = end + 1) {
      use(bytes.substr(begin, end - begin), file.offset + begin);
    }
    if (begin == 0 && bytes.size() == kLineBytesMax) {
      use(bytes, file.offset);
      begin = bytes.size();
    }
    if (begin == 0) {
      return any;
    }
    any = true;
    file.offset += begin;
  }
}

/// A text that differs after every change of a small file; empty if there is no such file.
std::string stamp_of(const std::string& path) {
  struct stat facts {};
  if (::stat(path.c_str(), &facts) != 0) {
    return "";
  }
  return std::to_string(facts.st_ino) + " " + std::to_string(facts.st_size) + " " +
         std::to_string(facts.st_mtim.tv_sec) + " " + std::to_string(facts.st_mtim.tv_nsec);
}

/// True if there is another file at this path than the one that was read, or if the file has become
/// shorter.
bool was_replaced(GrowingFile& file) {
  struct stat facts {};
  if (::stat(file.path.c_str(), &facts) != 0) {
    return false;
  }
  const bool other = file.file != 0 && file.file != facts.st_ino;
  file.file = facts.st_ino;
  return other || static_cast<std::uint64_t>(facts.st_size) < file.offset;
}

/// The last names of a path.
std::string end_of_path(const std::filesystem::path& path, std::size_t names) {
  std::filesystem::path end = path.filename();
  std::filesystem::path above = path.parent_path();
  for (; names > 1 && above.has_filename(); --names, above = above.parent_path()) {
    end = above.filename() / end;
  }
  return end.string();
}

}  // namespace

RunFollower::RunFollower(const std::string& path)
    : path_(path),
      fold_(std::make_unique<RunFold>()),
      events_{path + "/events.jsonl", 0, 0},
      metrics_{path + "/metrics.jsonl", 0, 0},
      members_{path + "/members.jsonl", 0, 0} {
  std::error_code failure;
  const std::filesystem::path whole = std::filesystem::canonical(path, failure);
  whole_path_ = failure ? path : whole.string();
  name_ = failure ? path : whole.filename().string();
}

Result<std::unique_ptr<RunFollower>> RunFollower::open(const std::string& path) {
  std::error_code failure;
  if (!std::filesystem::exists(path, failure)) {
    return Error{Errc::kNotFound, "there is no run directory " + path};
  }
  if (!std::filesystem::is_regular_file(path + "/events.jsonl", failure)) {
    return Error{Errc::kInvalidInput, path + " is not a run directory: it has no events.jsonl"};
  }
  std::unique_ptr<RunFollower> follower(new RunFollower(path));
  follower->poll();
  if (!follower->fold().is_a_run() && follower->event_bytes() > 0) {
    return Error{Errc::kInvalidInput,
                 path + " is not a run directory: its events.jsonl has no records of a run"};
  }
  return follower;
}

bool RunFollower::begin_anew_if_replaced() {
  const bool events = was_replaced(events_);
  const bool metrics = was_replaced(metrics_);
  const bool members = was_replaced(members_);
  if (!events && !metrics && !members) {
    return false;
  }
  fold_ = std::make_unique<RunFold>();
  events_.offset = metrics_.offset = members_.offset = 0;
  for (SmallFile* file : {&config_, &facts_, &summary_}) {
    file->seen.clear();
  }
  anew_ = true;
  return true;
}

bool RunFollower::read_small(SmallFile& file) {
  const std::string path = path_ + file.name;
  const std::string stamp = stamp_of(path);
  if (stamp == file.seen) {
    return false;
  }
  file.seen = stamp;
  const Result<std::string> text = read_text_file(path, kSmallFileBytesMax);
  (*fold_.*file.use)(text.ok() ? text.value() : "");
  return true;
}

bool RunFollower::poll() {
  bool changed = begin_anew_if_replaced();
  // The summary is written last: if it exists, the records that are read after it are complete.
  for (SmallFile* file : {&config_, &facts_, &summary_}) {
    settings_read_ = read_small(*file) || settings_read_;
  }
  changed = settings_read_ || changed;
  // Steps that are written while the events are read are left for the next call, because the event
  // of the start of their part must be read before.
  const std::uint64_t steps_end = size_of(metrics_.path);
  changed = read_lines(events_, [this](std::string_view line,
                                       std::uint64_t offset) { fold_->event(line, offset); }) ||
            changed;
  changed =
      read_lines(
          metrics_,
          [this](std::string_view line, std::uint64_t offset) { fold_->metric(line, offset); },
          steps_end) ||
      changed;
  changed = read_lines(members_, [this](std::string_view line,
                                        std::uint64_t offset) { fold_->member(line, offset); }) ||
            changed;
  return changed;
}

bool RunFollower::take_begun_anew() {
  return std::exchange(anew_, false);
}

bool RunFollower::take_read_settings() {
  return std::exchange(settings_read_, false);
}

Result<void> name_apart(const std::vector<std::unique_ptr<RunFollower>>& runs) {
  std::set<std::string> folders;
  for (const auto& run : runs) {
    if (!folders.insert(run->whole_path_).second) {
      return Error{Errc::kInvalidInput, "the run directory " + run->path_ + " is given twice"};
    }
  }
  bool all_differ = false;
  for (std::size_t names = 2; !all_differ; ++names) {
    std::map<std::string, std::size_t> counts;
    for (const auto& run : runs) {
      ++counts[run->name_];
    }
    all_differ = counts.size() == runs.size();
    for (const auto& run : runs) {
      if (counts[run->name_] > 1) {
        run->name_ = end_of_path(run->whole_path_, names);
      }
    }
  }
  return {};
}

}  // namespace mayfly::observe
