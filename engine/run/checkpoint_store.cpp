#include "engine/run/checkpoint_store.hpp"

#include <fcntl.h>
#include <fmt/format.h>
#include <signal.h>
#include <sys/file.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <filesystem>
#include <optional>
#include <vector>

#include "base/file.hpp"
#include "base/net/addresses.hpp"
#include "base/parse.hpp"
#include "base/try_assign.hpp"
#include "base/unique_fd.hpp"

namespace mayfly::engine {
namespace {

namespace fs = std::filesystem;

constexpr std::size_t kFolderNameBytesMax = 256;
constexpr std::string_view kPrefix = "step-";

bool is_there(const fs::path& path) {
  std::error_code ignored;
  return fs::exists(path, ignored);
}

void remove_tree(const fs::path& path) {
  std::error_code ignored;
  fs::remove_all(path, ignored);
}

void sync_folder(const fs::path& path) {
  const UniqueFd fd(::open(path.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  if (fd.valid()) {
    ::fsync(fd.get());
  }
}

Result<void> rename_folder(const fs::path& from, const fs::path& to) {
  std::error_code failure;
  fs::rename(from, to, failure);
  if (failure) {
    return Error{Errc::kIo, "cannot rename " + from.string() + " to " + to.string() + ": " +
                                failure.message()};
  }
  return {};
}

/// N of a folder named step-N.
std::optional<std::uint64_t> step_of(const std::string& name) {
  return name.starts_with(kPrefix)
             ? number_in<std::uint64_t>(std::string_view(name).substr(kPrefix.size()))
             : std::nullopt;
}

fs::path folder_of(const fs::path& checkpoints, std::uint64_t step) {
  return checkpoints / (std::string(kPrefix) + std::to_string(step));
}

/// A name beside `target` that no reader takes for a checkpoint.
fs::path hidden(const fs::path& target, std::string_view suffix) {
  return target.parent_path() / std::string(".").append(target.filename().string()).append(suffix);
}

constexpr std::string_view kPartial = ".tmp-";  // of one that is being written, before its writer
constexpr std::string_view kReplaced = ".old";  // of one that makes room, see publish()
constexpr std::string_view kDamaged = ".damaged";  // of one that is gone with the next save
constexpr std::string_view kRemoved = ".removed";  // of one that is being removed

/// The ends of the names of folders in which processes of this host write, before their numbers.
std::string partial_here() {
  return std::string(kPartial) + host_name() + '-';
}

/// The folder in which this process writes a checkpoint.
fs::path partial_of(const fs::path& target) {
  return hidden(target, partial_here() + std::to_string(::getpid()));
}

/// Whether another process may be writing this folder: it is on another host, or lives, and the
/// step is at least `saved`, the one that this process has just saved.
bool may_be_in_progress(const std::string& name, std::uint64_t saved) {
  const std::size_t mark = name.find(kPartial);
  if (mark == std::string::npos || step_of(name.substr(1, mark - 1)).value_or(0) < saved) {
    return false;
  }
  const std::string here = partial_here();
  if (name.compare(mark, here.size(), here) != 0) {
    return true;
  }
  const auto process = number_in<::pid_t>(std::string_view(name).substr(mark + here.size()));
  return process.has_value() && (::kill(*process, 0) == 0 || errno != ESRCH);
}

/// On a shared disk several workers may save into one folder at the same time, after the
/// coordinator is permanently lost. Held until it is destroyed. On a file system without locks the
/// workers save without one, and NFS has none for folders between hosts, so each process writes
/// into a folder of its own (partial_of()).
class FolderLock {
 public:
  explicit FolderLock(const fs::path& checkpoints)
      : fd_(::open(checkpoints.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC)) {
    while (fd_.valid() && ::flock(fd_.get(), LOCK_EX) != 0 && errno == EINTR) {
    }
  }
  /// Closing the descriptor is not enough: a process that the user's program has forked meanwhile,
  /// such as one that reads samples, has a copy of it.
  ~FolderLock() { (void)::flock(fd_.get(), LOCK_UN); }
  FolderLock(const FolderLock&) = delete;
  FolderLock& operator=(const FolderLock&) = delete;

 private:
  const UniqueFd fd_;
};

bool is_replaced(const std::string& name) {
  return name.starts_with(".step-") && name.ends_with(kReplaced);
}

/// Gives checkpoints their names again whose writers crashed between the two renames of publish().
/// With the lock.
void put_back(const fs::path& checkpoints) {
  for (const std::string& name : names_in(checkpoints.string())) {
    if (!is_replaced(name)) {
      continue;
    }
    const fs::path target = checkpoints / name.substr(1, name.size() - 1 - kReplaced.size());
    if (!is_there(target)) {
      (void)rename_folder(checkpoints / name, target);
    }
  }
}

/// The same for a reader.
void put_back_if_crashed(const fs::path& checkpoints) {
  if (std::ranges::any_of(names_in(checkpoints.string()), is_replaced)) {
    const FolderLock lock(checkpoints);  // the writer may live
    put_back(checkpoints);
  }
}

/// The folder that `latest` names; if there is none (after a crash), the newest.
Result<fs::path> latest_in(const fs::path& checkpoints) {
  if (is_there(checkpoints / "latest")) {
    TRY_ASSIGN(std::string text,
               read_text_file((checkpoints / "latest").string(), kFolderNameBytesMax));
    std::string name = text;
    name.erase(name.find_last_not_of(" \r\n") + 1);
    if (!step_of(name)) {
      return Error{Errc::kCorrupt, (checkpoints / "latest").string() +
                                       " does not name a checkpoint folder (step-N)"};
    }
    if (is_there(checkpoints / name)) {
      return checkpoints / name;
    }  // else a crash interrupted the replacement of this folder
  }
  const std::vector<std::uint64_t> steps = steps_of_checkpoints(checkpoints.string());
  if (steps.empty()) {
    return Error{Errc::kNotFound, "no checkpoint in " + checkpoints.string()};
  }
  return folder_of(checkpoints, steps.front());
}

Result<fs::path> resolve(const fs::path& path) {
  if (step_of(path.filename().string())) {
    put_back_if_crashed(path.parent_path());
  }
  const Error absent{Errc::kNotFound, "checkpoint " + path.string() + " does not exist"};
  if (!is_there(path)) {
    return absent;
  }
  if (is_there(path / nn::kManifestFile)) {
    return path;
  }
  if (is_there(path / "checkpoints")) {
    put_back_if_crashed(path / "checkpoints");
    return latest_in(path / "checkpoints");
  }
  if (step_of(path.filename().string())) {
    return is_there(path) ? Error{Errc::kCorrupt,
                                  "checkpoint " + path.string() + " has no " + nn::kManifestFile}
                          : absent;  // it has just been removed
  }
  put_back_if_crashed(path);
  return latest_in(path);
}

Result<void> write_files(const fs::path& folder, const nn::CheckpointFiles& files) {
  TRY(make_directories(folder.string()));
  for (const auto& [name, content] : files) {
    const Result<void> written = write_file_atomic((folder / name).string(), ByteSpan(content));
    if (!written.ok()) {
      return written;
    }
  }
  sync_folder(folder);
  return {};
}

/// Renames a complete folder to its final name. An existing checkpoint of the same step (saved
/// again after a resume) is kept until the new one is in place: the two folders are exchanged
/// atomically if the file system supports that.
Result<void> publish(const fs::path& temporary, const fs::path& target) {
  if (is_there(target) &&
      ::renameat2(AT_FDCWD, temporary.c_str(), AT_FDCWD, target.c_str(), RENAME_EXCHANGE) == 0) {
    remove_tree(temporary);
    return {};
  }
  const fs::path old = hidden(target, kReplaced);
  remove_tree(old);
  if (is_there(target)) {
    TRY(rename_folder(target, old));
  }
  Result<void> moved = rename_folder(temporary, target);
  if (!moved.ok() && is_there(old)) {
    (void)rename_folder(old, target);
  }
  return moved;
}

Result<void> write_latest(const fs::path& checkpoints, const fs::path& folder) {
  return write_file_atomic((checkpoints / "latest").string(), folder.filename().string() + "\n");
}

/// Removes a checkpoint. Its folder loses its name first, because a folder named step-N is
/// complete, also for readers and if this process is killed meanwhile.
void remove_checkpoint(const fs::path& folder) {
  const fs::path removed = hidden(folder, kRemoved);
  remove_tree(removed);  // left by a process that was killed
  const bool is_renamed = rename_folder(folder, removed).ok();
  remove_tree(is_renamed ? removed : folder);
}

/// Removes all checkpoints but `keep`, and the partial folders of crashed writers. The checkpoint
/// that was just saved and the newest ones of earlier steps are kept. Those of later steps belong
/// to a part of the job that was undone, or that a resumed job computes again: they get half of the
/// other places, and the places that are free.
void prune(const fs::path& checkpoints, std::uint64_t saved, std::uint32_t keep) {
  const std::vector<std::uint64_t> steps = steps_of_checkpoints(checkpoints.string());
  const auto later = static_cast<std::size_t>(std::ranges::find(steps, saved) - steps.begin());
  const std::size_t spare = keep - std::min<std::size_t>(keep, steps.size() - later);
  const std::size_t later_kept = std::min(later, std::max<std::size_t>((keep - 1) / 2, spare));
  for (std::size_t i = 0; i < steps.size(); ++i) {
    if (i < later ? i >= later_kept : i - later >= keep - later_kept) {
      remove_checkpoint(folder_of(checkpoints, steps[i]));
    }
  }
  for (const std::string& name : names_in(checkpoints.string())) {
    if (name.starts_with(".step-") && !may_be_in_progress(name, saved)) {
      remove_tree(checkpoints / name);
    }
  }
}

Result<LoadedCheckpoint> load_folder(const fs::path& folder) {
  LoadedCheckpoint loaded;
  loaded.path = folder.string();
  for (const char* name : {nn::kManifestFile, nn::kModelFile, nn::kOptimizerFile}) {
    Result<Bytes> content = read_file((folder / name).string(), kCheckpointFileBytesMax);
    if (!content.ok()) {
      const Errc code =
          content.error().code == Errc::kNotFound ? Errc::kCorrupt : content.error().code;
      return Error{code, "checkpoint " + loaded.path + ": " + content.error().detail};
    }
    loaded.files[name] = std::move(content).value();
  }
  Result<nn::CheckpointInfo> info = nn::decode_manifest(loaded.files[nn::kManifestFile]);
  if (!info.ok()) {
    return Error{info.error().code, "checkpoint " + loaded.path + ": " + info.error().detail};
  }
  loaded.info = std::move(info).value();
  return loaded;
}

Result<LoadedCheckpoint> load_and_check(const fs::path& folder) {
  TRY_ASSIGN(LoadedCheckpoint loaded, load_folder(folder));
  if (const auto checked = nn::check_files(loaded.files); !checked.ok()) {
    return Error{checked.error().code, "checkpoint " + loaded.path + ": " + checked.error().detail};
  }
  return loaded;
}

bool is_damage(const Error& error) {
  return error.code == Errc::kCorrupt || error.code == Errc::kIo;
}

/// This one, or the newest intact one of an earlier step.
Result<LoadedCheckpoint> intact_up_to(const fs::path& latest) {
  Result<LoadedCheckpoint> loaded = load_and_check(latest);
  if (loaded.ok() || !is_damage(loaded.error())) {
    return loaded;
  }
  const std::uint64_t last = step_of(latest.filename().string()).value_or(0);
  for (const std::uint64_t step : steps_of_checkpoints(latest.parent_path().string())) {
    if (step >= last) {
      continue;
    }
    Result<LoadedCheckpoint> earlier = load_and_check(folder_of(latest.parent_path(), step));
    if (earlier.ok()) {
      earlier.value().passed_over =
          fmt::format("{}; that of step {} is used instead", loaded.error().detail, step);
      return earlier;
    }
  }
  return loaded;
}

/// Loads the checkpoint that `path` names. A job that runs may remove it while it is read: then it
/// has written a newer one, which is loaded, unless `path` is the folder of the removed one.
template <typename Load>
Result<LoadedCheckpoint> load_named(const std::string& path, const Load& load) {
  constexpr int kAttemptsMax = 20;
  for (int attempt = 1;; ++attempt) {
    TRY_ASSIGN(const fs::path folder, resolve(path));
    Result<LoadedCheckpoint> loaded = load(folder);
    if ((loaded.ok() && loaded.value().passed_over.empty()) || attempt == kAttemptsMax) {
      return loaded;
    }
    const Result<fs::path> now = resolve(path);
    if (!now.ok() && folder == fs::path(path)) {
      return now.error();
    }
    if (!now.ok() || now.value() == folder) {
      return loaded;
    }
  }
}

}  // namespace

Result<LoadedCheckpoint> load_checkpoint(const std::string& path) {
  return load_named(path, load_folder);
}

Result<LoadedCheckpoint> load_intact_checkpoint(const std::string& path) {
  return load_named(path, [&path](const fs::path& folder) {
    return folder == fs::path(path) ? load_and_check(folder) : intact_up_to(folder);
  });
}

Result<LoadedCheckpoint> set_damaged_aside(const std::string& checkpoints_dir) {
  const fs::path checkpoints = checkpoints_dir;
  const FolderLock lock(checkpoints);
  put_back(checkpoints);
  TRY_ASSIGN(const fs::path latest, latest_in(checkpoints));
  TRY_ASSIGN(LoadedCheckpoint intact, intact_up_to(latest));
  if (intact.path == latest) {
    return intact;
  }
  const std::uint64_t last = step_of(latest.filename().string()).value_or(0);
  for (const std::uint64_t step : steps_of_checkpoints(checkpoints_dir)) {
    if (const fs::path folder = folder_of(checkpoints, step);
        step <= last && step > value(intact.info.committed)) {
      remove_tree(hidden(folder, kDamaged));
      TRY(rename_folder(folder, hidden(folder, kDamaged)));
    }
  }
  TRY(write_latest(checkpoints, intact.path));
  return intact;
}

std::vector<std::uint64_t> steps_of_checkpoints(const std::string& checkpoints_dir) {
  std::vector<std::uint64_t> steps;
  for (const std::string& name : names_in(checkpoints_dir)) {
    if (const auto step = step_of(name)) {
      steps.push_back(*step);
    }
  }
  std::sort(steps.rbegin(), steps.rend());
  return steps;
}

std::string folder_of_checkpoint(const std::string& checkpoints_dir, Step committed) {
  return folder_of(checkpoints_dir, value(committed)).string();
}

nn::CheckpointFiles checkpoint_of(const Job& job, const nn::ModelState& state) {
  return nn::encode_checkpoint(job.model, state, job.config.seed, job.fingerprint);
}

Result<std::string> save_checkpoint(const std::string& checkpoints_dir,
                                    const nn::CheckpointFiles& files, Step committed,
                                    std::uint32_t keep) {
  const fs::path checkpoints = checkpoints_dir;
  const fs::path target = folder_of(checkpoints, value(committed));
  const fs::path temporary = partial_of(target);
  Result<void> done = make_directories(checkpoints.string());
  const FolderLock lock(checkpoints);
  put_back(checkpoints);
  const bool is_new = !is_there(target);
  remove_tree(temporary);
  if (done.ok()) {
    done = write_files(temporary, files);
  }
  if (done.ok()) {
    done = publish(temporary, target);
  }
  if (done.ok()) {
    sync_folder(checkpoints);
    done = write_latest(checkpoints, target);
    if (!done.ok() && is_new) {
      remove_checkpoint(target);  // `latest` does not name it, and the disk is full
    }
  }
  if (!done.ok()) {
    remove_tree(temporary);
    return Error{done.error().code, "checkpoint of step " + std::to_string(value(committed)) +
                                        " not saved: " + done.error().detail};
  }
  prune(checkpoints, value(committed), keep);
  return target.string();
}

Result<void> name_latest(const std::string& checkpoints_dir, Step committed) {
  const fs::path checkpoints = checkpoints_dir;
  const fs::path folder = folder_of(checkpoints, value(committed));
  const FolderLock lock(checkpoints);
  put_back(checkpoints);
  const Result<fs::path> named = latest_in(checkpoints);
  if (is_there(checkpoints / "latest") && named.ok() && named.value() == folder) {
    return {};
  }
  return write_latest(checkpoints, folder);
}

std::optional<std::string> difference(
    const std::vector<std::pair<std::string, std::string>>& ours,
    const std::vector<std::pair<std::string, std::string>>& theirs) {
  for (const auto& [name, value] : ours) {
    const auto other = std::find_if(theirs.begin(), theirs.end(),
                                    [&](const auto& each) { return each.first == name; });
    if (other == theirs.end()) {
      return fmt::format("{}: the checkpoint does not contain it", name);
    }
    if (!value.empty() && value != other->second) {
      return fmt::format("{}: the job has {}, the checkpoint {}", name, value, other->second);
    }
  }
  return std::nullopt;
}

}  // namespace mayfly::engine
