#pragma once

// Checkpoints on disk: <checkpoints>/step-N/ with the files of nn/checkpoint.hpp, and `latest`, a
// text file that names the newest. A folder named step-N is always complete: it is written as
// .step-N.tmp-HOST-PROCESS, synced and renamed. Where folders cannot change places, the one that it
// replaces is .step-N.old meanwhile, and gets its name back if the writer dies before the new one
// has it.

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
  /// A line that names the damaged checkpoint and the reason, if load_intact_checkpoint() had to
  /// load an earlier one; else empty.
  std::string passed_over{};
};

/// Reads a checkpoint: `path` is its folder, or a run directory or a folder of checkpoints, in
/// which `latest` names the checkpoint to read. If a job that runs removes that one meanwhile, its
/// next one is read. kNotFound if there is none, or if it is removed while its folder is read;
/// kCorrupt if the manifest is torn or a file is missing, with the name.
[[nodiscard]] Result<LoadedCheckpoint> load_checkpoint(const std::string& path);

/// Like load_checkpoint(), but also compares the hashes of the files. If `latest` names a damaged
/// checkpoint, the newest intact checkpoint of an earlier step is loaded instead. If `path` is the
/// folder of a checkpoint and that one is damaged, it is an error.
[[nodiscard]] Result<LoadedCheckpoint> load_intact_checkpoint(const std::string& path);

/// Like load_intact_checkpoint() in a folder of checkpoints; the loaded checkpoint becomes the
/// latest one. The damaged ones are renamed, so that their steps can be saved again, and the next
/// save removes them.
[[nodiscard]] Result<LoadedCheckpoint> set_damaged_aside(const std::string& checkpoints_dir);

/// The files of a checkpoint of this state of the job. The state must be drawn (nn::ModelState).
/// Pure.
[[nodiscard]] nn::CheckpointFiles checkpoint_of(const Job& job, const nn::ModelState& state);

/// Writes a checkpoint, makes it the latest and removes all but `keep` (at least 1): it stays, and
/// so do the newest ones of earlier steps. If there are checkpoints of later steps, because the job
/// has gone back, the newest of them stay as well, in up to half of the other places. Returns its
/// folder. On failure (a full disk) nothing changes: earlier checkpoints stay, `latest` names the
/// last good one, and the partial folder is removed. One process at a time.
[[nodiscard]] Result<std::string> save_checkpoint(const std::string& checkpoints_dir,
                                                  const nn::CheckpointFiles& files, Step committed,
                                                  std::uint32_t keep);

/// Makes the existing checkpoint of this step the latest one, if it is not yet. On failure `latest`
/// names the same checkpoint as before.
[[nodiscard]] Result<void> name_latest(const std::string& checkpoints_dir, Step committed);

/// The steps of all checkpoints in this folder, newest first.
[[nodiscard]] std::vector<std::uint64_t> steps_of_checkpoints(const std::string& checkpoints_dir);

/// A checkpoint that has arrived in the run directory of a coordinator.
struct ReceivedCheckpoint {
  Step step{};
  std::string path;
  std::string host;         ///< of the worker that had it
  std::uint64_t bytes = 0;  ///< transferred; 0: it existed here already, as on a shared disk
  Duration took{};
};

/// The path of the folder for a checkpoint of this step, whether or not it exists.
[[nodiscard]] std::string folder_of_checkpoint(const std::string& checkpoints_dir, Step committed);

/// The first setting that differs between this job and that of a checkpoint, human-readable. A
/// setting that is empty in `ours` matches any value.
[[nodiscard]] std::optional<std::string> difference(
    const std::vector<std::pair<std::string, std::string>>& ours,
    const std::vector<std::pair<std::string, std::string>>& theirs);

}  // namespace mayfly::engine
