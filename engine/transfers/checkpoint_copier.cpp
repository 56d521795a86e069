#include "engine/transfers/checkpoint_copier.hpp"

#include <fmt/format.h>
#include <pthread.h>

#include <algorithm>
#include <filesystem>
#include <utility>

#include "base/bytes.hpp"
#include "base/digest.hpp"
#include "base/file.hpp"
#include "base/process/program.hpp"
#include "base/text.hpp"
#include "base/try_assign.hpp"
#include "engine/run/checkpoint_store.hpp"

namespace mayfly::engine {
namespace {

namespace fs = std::filesystem;

constexpr Duration kRetryFirst = seconds(2);
constexpr Duration kRetryMax = seconds(300);
constexpr int kAttemptsAtTheEnd = 3;
constexpr Duration kCommandMax = seconds(1800);
constexpr const char* kOutgoing = ".outgoing";  // in the run directory

void replace_all(std::string& text, const std::string& what, const std::string& by) {
  for (std::size_t at = 0; (at = text.find(what, at)) != std::string::npos; at += by.size()) {
    text.replace(at, what.size(), by);
  }
}

/// A second set of a checkpoint's files, which exists while the original may be pruned. The
/// destructor removes it.
class Held {
 public:
  /// Makes hard links where the file system supports them, otherwise copies. Other sets beside it
  /// are of processes that were killed, and are removed.
  static Result<Held> make(const fs::path& folder, const fs::path& place) {
    std::error_code failure;
    fs::remove_all(place.parent_path(), failure);
    TRY(make_directories(place.string()));
    Held held(place);
    for (fs::directory_iterator it(folder, failure), end; !failure && it != end;
         it.increment(failure)) {
      std::error_code no_link;
      std::error_code no_copy;
      fs::create_hard_link(it->path(), place / it->path().filename(), no_link);
      if (no_link && !fs::copy_file(it->path(), place / it->path().filename(), no_copy)) {
        return Error{Errc::kIo, "cannot copy " + it->path().string() + ": " + no_copy.message()};
      }
    }
    if (failure) {
      return Error{Errc::kIo, "cannot read " + folder.string() + ": " + failure.message()};
    }
    return held;
  }
  Held(Held&& other) noexcept : place_(std::exchange(other.place_, {})) {}
  Held& operator=(Held&&) = delete;
  ~Held() {
    std::error_code ignored;
    if (!place_.empty()) {
      fs::remove_all(place_, ignored);
      fs::remove(place_.parent_path(), ignored);
    }
  }

 private:
  explicit Held(fs::path place) : place_(std::move(place)) {}
  fs::path place_;
};

std::string name_of_run(const std::string& run_dir) {
  const fs::path path = fs::absolute(run_dir).lexically_normal();
  return (path.has_filename() ? path : path.parent_path()).filename().string();
}

}  // namespace

CopyTarget copy_target_of(const JobConfig& config) {
  CopyTarget target;
  if (config.checkpoint_to.find("{}") != std::string::npos) {
    target.command = config.checkpoint_to;
  } else {
    target.folder = (fs::path(config.checkpoint_to) / name_of_run(config.run_dir)).string();
  }
  return target;
}

Result<void> check_copy_target(const CopyTarget& target, const Fingerprint& fingerprint) {
  if (target.folder.empty()) {
    return {};
  }
  const auto refused = [](const std::string& why) {
    return Error{Errc::kInvalidInput, "--checkpoint-to: " + why};
  };
  const std::string checkpoints = target.folder + "/checkpoints";
  if (Result<void> made = make_directories(checkpoints); !made.ok()) {
    return refused(made.error().detail);
  }
  const std::string probe = checkpoints + "/.probe";
  if (Result<void> written = write_file_atomic(probe, std::string("mayfly\n")); !written.ok()) {
    return refused(written.error().detail);
  }
  std::error_code ignored;
  fs::remove(probe, ignored);
  const Result<LoadedCheckpoint> there = load_checkpoint(target.folder);
  const std::optional<std::string> other =
      there.ok() && !fingerprint.empty() ? difference(fingerprint, there.value().info.fingerprint)
                                         : std::nullopt;
  return other ? Result<void>(refused(fmt::format(
                     "{} holds checkpoints of another job ({}); name another folder, or another "
                     "--run-dir",
                     target.folder, *other)))
               : Result<void>();
}

CheckpointCopier::CheckpointCopier(const JobConfig& config, Hooks hooks)
    : target_(copy_target_of(config)),
      run_dir_(config.run_dir),
      keep_(config.keep_checkpoints),
      hooks_(std::move(hooks)),
      thread_([this] { run(); }) {}

CheckpointCopier::~CheckpointCopier() {
  {
    const std::lock_guard lock(mutex_);
    is_closing_ = true;
  }
  changed_.notify_all();
  thread_.join();
}

void CheckpointCopier::copy(Step step, const std::string& folder) {
  Item item{step, folder, {}};
  if (const Result<Bytes> manifest =
          read_file(folder + "/" + nn::kManifestFile, kCheckpointFileBytesMax);
      manifest.ok()) {
    item.manifest = digest_of(ByteSpan(manifest.value()));
  }
  {
    const std::lock_guard lock(mutex_);
    wanted_ = std::move(item);
  }
  changed_.notify_all();
}

Result<void> CheckpointCopier::finish() {
  std::unique_lock lock(mutex_);
  attempts_left_ = kAttemptsAtTheEnd;
  changed_.notify_all();
  changed_.wait(lock, [this] { return !wanted_ || *attempts_left_ <= 0; });
  return wanted_ ? Result<void>(*failure_) : Result<void>();
}

void CheckpointCopier::run() {
  pthread_setname_np(pthread_self(), "copies");
  Duration retry = kRetryFirst;
  std::unique_lock lock(mutex_);
  while (true) {
    changed_.wait(lock, [this] { return is_closing_ || (wanted_ && attempts_left_ != 0); });
    if (is_closing_) {
      return;
    }
    const Item item = *wanted_;
    lock.unlock();
    const Instant began = monotonic_now();
    const Result<std::string> where = attempt(item);
    if (where.ok()) {
      hooks_.on_copied(item.step, where.value(), monotonic_now() - began);
    } else {
      hooks_.on_failed(
          fmt::format("the checkpoint of step {} could not be copied to its other place: {}",
                      value(item.step), where.error().detail));
    }
    lock.lock();
    if (where.ok()) {
      retry = kRetryFirst;
      if (*wanted_ == item) {
        wanted_.reset();
      }
      changed_.notify_all();
      continue;
    }
    failure_ = where.error();
    if (attempts_left_ && --*attempts_left_ == 0) {
      changed_.notify_all();
      continue;
    }
    const Duration pause = attempts_left_ ? kRetryFirst : retry;
    const bool is_at_the_end = attempts_left_.has_value();
    changed_.wait_for(lock, pause, [&] {
      return is_closing_ || *wanted_ != item || attempts_left_.has_value() != is_at_the_end;
    });
    retry = std::min(2 * retry, kRetryMax);
  }
}

Result<std::string> CheckpointCopier::attempt(const Item& item) const {
  return target_.command.empty() ? copy_into_folder(item) : run_command(item);
}

/// Reads the copy back, because writes to a disk that is gone may seem to succeed. The original is
/// verified, too: its disk may be damaged, or the checkpoint was replaced while it was read.
Result<std::string> CheckpointCopier::copy_into_folder(const Item& item) const {
  TRY_ASSIGN(const LoadedCheckpoint ours, load_checkpoint(item.folder));
  TRY(nn::check_files(ours.files));
  const std::string checkpoints = target_.folder + "/checkpoints";
  const std::string there = folder_of_checkpoint(checkpoints, item.step);
  const auto is_there = [&] {
    const Result<LoadedCheckpoint> copy = load_checkpoint(there);
    return copy.ok() && copy.value().files == ours.files;
  };
  if (is_there()) {
    TRY(name_latest(checkpoints, item.step));
    return there;
  }
  Result<std::string> saved = save_checkpoint(checkpoints, ours.files, item.step, keep_);
  if (saved.ok() && !is_there()) {
    return Error{Errc::kCorrupt, there + " does not contain what was written"};
  }
  return saved;
}

Result<std::string> CheckpointCopier::run_command(const Item& item) const {
  const std::string name = fs::path(item.folder).filename().string();
  const fs::path place = fs::absolute(fs::path(run_dir_) / kOutgoing / name);
  TRY_ASSIGN(const Held held, Held::make(item.folder, place));
  std::string line = target_.command;
  replace_all(line, "{name}", shell_quoted(name));
  replace_all(line, "{}", shell_quoted(place.string()));
  ProgramCall call;
  call.argv = {"sh", "-c", "exec 1>&2\n" + line};  // copy commands may print each file's name
  call.timeout = kCommandMax;
  TRY_ASSIGN(const ProgramResult done, run_program(call));
  return done.succeeded() ? Result<std::string>(line)
                          : Result<std::string>(Error{Errc::kIo, line + ": " + done.summary()});
}

}  // namespace mayfly::engine
