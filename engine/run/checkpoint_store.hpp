#pragma once

// Checkpoints on disk: <checkpoints>/step-N/ with the files of nn/checkpoint.hpp, and `latest`, a
// text file that names the newest. A folder named step-N is always complete: it is written as
// .step-N.tmp, synced and renamed. Where folders cannot change places, the one that it replaces is
// .step-N.old meanwhile, and gets its name back if the writer dies before the new one has it.

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "base/ids.hpp"
#include "base/result.hpp"
#include "base/time.hpp"
#include "engine/job/job.hpp"
#include "nn/checkpoint.hpp"
#include "nn/model_state.hpp"

namespace mayfly::engine {

/// Upper bound on one file of a checkpoint, and on a file of weights.
inline constexpr std::size_t kCheckpointFileBytesMax = std::size_t{1} << 40;

struct LoadedCheckpoint {
  nn::CheckpointInfo info;
  nn::CheckpointFiles files;  ///< restore with nn::decode_checkpoint, which checks every hash
  std::string path;           ///< of the folder
  /// If load_intact_checkpoint() had to take an earlier one: a line that says so and why.
  std::string passed_over{};
};

/// Reads a checkpoint: `path` is its folder, or a run directory or a folder of checkpoints, of
/// which the one named by `latest` is taken. kNotFound if there is none; kCorrupt if the manifest
/// is torn or a file is missing, with the name.
[[nodiscard]] Result<LoadedCheckpoint> load_checkpoint(const std::string& path);

/// The same, and its files have their hashes. If that which `latest` names is damaged, the newest
/// intact one of an earlier step is taken instead. A checkpoint whose folder is `path` is taken, or
/// it is an error.
[[nodiscard]] Result<LoadedCheckpoint> load_intact_checkpoint(const std::string& path);

/// The same in a folder of checkpoints, and makes that the latest. Those that are passed over lose
/// their names, so that they can be saved again, and go with the next save.
[[nodiscard]] Result<LoadedCheckpoint> set_damaged_aside(const std::string& checkpoints_dir);

/// The checkpoint of a state of this job. The state is drawn. Pure.
[[nodiscard]] nn::CheckpointFiles checkpoint_of(const Job& job, const nn::ModelState& state);

/// Writes a checkpoint, makes it the latest and removes all but the `keep` newest (at least 1).
/// Returns its folder. On failure (a full disk) everything is as it was: the checkpoints before
/// stay, `latest` names the last good one, and the partial one is gone. One process at a time.
[[nodiscard]] Result<std::string> save_checkpoint(const std::string& checkpoints_dir,
                                                  const nn::CheckpointFiles& files, Step committed,
                                                  std::uint32_t keep);

/// Makes the checkpoint of this step, which is there, the latest, if it is not. On failure the one
/// before stays it.
[[nodiscard]] Result<void> name_latest(const std::string& checkpoints_dir, Step committed);

/// All steps that have a checkpoint there, newest first.
[[nodiscard]] std::vector<std::uint64_t> steps_of_checkpoints(const std::string& checkpoints_dir);

/// A checkpoint that is in the run directory of a coordinator now.
struct ReceivedCheckpoint {
  Step step{};
  std::string path;
  std::string host;         ///< of the worker that had it
  std::uint64_t bytes = 0;  ///< that travelled; 0: it was there already, as on a shared disk
  Duration took{};
};

/// Where a checkpoint of this step is, or would be.
[[nodiscard]] std::string folder_of_checkpoint(const std::string& checkpoints_dir, Step committed);

/// The first setting in which a checkpoint's job is another one, human-readable; a setting that is
/// empty in `ours` may be anything.
[[nodiscard]] std::optional<std::string> difference(
    const std::vector<std::pair<std::string, std::string>>& ours,
    const std::vector<std::pair<std::string, std::string>>& theirs);

}  // namespace mayfly::engine
