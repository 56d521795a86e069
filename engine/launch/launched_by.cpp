#include "engine/launch/launched_by.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <optional>
#include <string_view>

#include "base/parse.hpp"
#include "base/try_assign.hpp"

namespace mayfly::engine {
namespace {

// Slurm's step numbers from here on are not of an srun, but of a batch script, an interactive
// shell, ....
constexpr std::uint32_t kSpecialStepsFrom = 0xfffffff0;

constexpr const char* kAnotherWay =
    "start all ranks with mpirun, mpiexec or srun, or `mayfly coordinator` and N times `mayfly "
    "worker --coordinator HOST:PORT --token-file FILE`";

std::string text_of(const Variables& variables, const char* name) {
  const char* text = variables(name);
  return text == nullptr ? "" : text;
}

std::optional<std::uint32_t> number_of(const Variables& variables, const char* name) {
  return number_in<std::uint32_t>(text_of(variables, name));
}

/// The first of these variables that is set; the last one if none is.
const char* first_set(const Variables& variables, std::initializer_list<const char*> names) {
  const auto found = std::find_if(names.begin(), names.end(),
                                  [&](const char* name) { return variables(name) != nullptr; });
  return found == names.end() ? *(names.end() - 1) : *found;
}

/// Reads rank and size from two variables of one launcher.
Result<LaunchedBy> place(const Variables& variables, Launcher launcher, const char* rank_name,
                         const char* size_name) {
  const std::optional<std::uint32_t> rank = number_of(variables, rank_name);
  const std::optional<std::uint32_t> size = number_of(variables, size_name);
  if (!rank || !size || *rank >= *size) {
    return Error{Errc::kInvalidInput,
                 fmt::format("{} is '{}' and {} is '{}', which name no rank of a job; {}",
                             rank_name, text_of(variables, rank_name), size_name,
                             text_of(variables, size_name), kAnotherWay)};
  }
  LaunchedBy found;
  found.launcher = launcher;
  found.rank = *rank;
  found.size = *size;
  return found;
}

/// The number of tasks on a host, from a list like "4(x2),3": four on each of two hosts, three on
/// the third.
std::uint32_t tasks_on_node(std::string_view list, std::uint32_t node) {
  while (!list.empty()) {
    const std::size_t comma = std::min(list.find(','), list.size());
    std::string_view entry = list.substr(0, comma);
    list.remove_prefix(std::min(comma + 1, list.size()));
    std::uint32_t hosts = 1;
    if (const std::size_t times = entry.find("(x"); times != std::string_view::npos) {
      const std::string_view count = entry.substr(times + 2);
      hosts = number_in<std::uint32_t>(count.substr(0, count.find(')'))).value_or(0);
      entry = entry.substr(0, times);
    }
    if (node < hosts) {
      return number_in<std::uint32_t>(entry).value_or(0);
    }
    node -= hosts;
  }
  return 0;
}

/// True in a task of an srun; batch scripts and the shells of salloc have some of its variables.
bool is_task_of_srun(const Variables& variables) {
  const char* step = first_set(variables, {"SLURM_STEP_ID", "SLURM_STEPID"});
  const std::optional<std::uint32_t> number = number_of(variables, step);
  return number && *number < kSpecialStepsFrom && variables("SLURM_PROCID") != nullptr;
}

Result<LaunchedBy> from_slurm(const Variables& variables) {
  TRY_ASSIGN(LaunchedBy task,
             place(variables, Launcher::kSlurm, "SLURM_PROCID",
                   first_set(variables, {"SLURM_STEP_NUM_TASKS", "SLURM_NTASKS", "SLURM_NPROCS"})));
  const char* nodes = first_set(variables, {"SLURM_STEP_NUM_NODES", "SLURM_NNODES"});
  const char* per_node =
      first_set(variables, {"SLURM_STEP_TASKS_PER_NODE", "SLURM_TASKS_PER_NODE"});
  task.local_size = number_of(variables, nodes) == 1U
                        ? task.size
                        : tasks_on_node(text_of(variables, per_node),
                                        number_of(variables, "SLURM_NODEID").value_or(0));
  task.local_rank = number_of(variables, "SLURM_LOCALID");
  task.hosts =
      text_of(variables, first_set(variables, {"SLURM_STEP_NODELIST", "SLURM_JOB_NODELIST"}));
  task.job = fmt::format(
      "slurm-{}.{}", text_of(variables, first_set(variables, {"SLURM_JOB_ID", "SLURM_JOBID"})),
      text_of(variables, first_set(variables, {"SLURM_STEP_ID", "SLURM_STEPID"})));
  return task;
}

Result<LaunchedBy> from_pmi(const Variables& variables) {
  TRY_ASSIGN(LaunchedBy found, place(variables, Launcher::kPmi, "PMI_RANK", "PMI_SIZE"));
  found.local_size = number_of(variables, "MPI_LOCALNRANKS").value_or(0);
  found.local_rank = number_of(variables, "MPI_LOCALRANKID");
  return found;
}

Result<LaunchedBy> from_open_mpi(const Variables& variables) {
  TRY_ASSIGN(LaunchedBy found,
             place(variables, Launcher::kOpenMpi, "OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE"));
  found.local_size = number_of(variables, "OMPI_COMM_WORLD_LOCAL_SIZE").value_or(0);
  found.local_rank = number_of(variables, "OMPI_COMM_WORLD_LOCAL_RANK");
  const char* job = first_set(variables, {"PMIX_NAMESPACE", "OMPI_MCA_ess_base_jobid"});
  found.job = "mpi-" + (variables(job) == nullptr ? "unnamed" : text_of(variables, job));
  return found;
}

/// The place of this process by the variables of each launcher, the innermost launcher first:
/// mpirun and mpiexec may start their daemons with srun, but not vice versa.
struct Claims {
  std::optional<LaunchedBy> open_mpi;
  std::optional<LaunchedBy> pmi;
  std::optional<LaunchedBy> slurm;
};

Result<Claims> read_claims(const Variables& variables) {
  Claims claims;
  const auto has = [&](const char* name) { return variables(name) != nullptr; };
  if (has("OMPI_COMM_WORLD_SIZE") || has("OMPI_COMM_WORLD_RANK")) {
    TRY_ASSIGN(claims.open_mpi, from_open_mpi(variables));
  }
  if (has("PMI_RANK") || has("PMI_SIZE") || has("PMI_ID")) {
    TRY_ASSIGN(claims.pmi, from_pmi(variables));
  }
  if (is_task_of_srun(variables)) {
    TRY_ASSIGN(claims.slurm, from_slurm(variables));
  }
  return claims;
}

/// If the variables of the presumed inner launcher describe a single process, and those of the
/// other launcher several, the former may be left over from a launcher that is really the outer
/// one.
Result<void> check_agreement(const LaunchedBy& inner, const std::optional<LaunchedBy>& other) {
  if (!other || inner.size > 1 || other->size == 1) {
    return {};
  }
  return Error{Errc::kInvalidInput,
               fmt::format("{} says that this process is its only one, {} that it is one of {}; "
                           "start mayfly by one of them only, without the variables of the other",
                           name_of(inner.launcher), name_of(other->launcher), other->size)};
}

/// PMIx sets a variable for the rank but none for the size.
Result<void> check_pmix(const Variables& variables, const std::optional<LaunchedBy>& found) {
  const char* rank = variables("PMIX_RANK");
  if (rank == nullptr || (found && found->launcher != Launcher::kSlurm)) {
    return {};
  }
  if (!found) {
    return Error{Errc::kInvalidInput,
                 fmt::format("PMIX_RANK is {}: a launcher started this process as one of several, "
                             "but its variables do not give their number; {}",
                             rank, kAnotherWay)};
  }
  if (number_in<std::uint32_t>(rank) != found->rank) {
    return Error{Errc::kInvalidInput,
                 fmt::format("PMIX_RANK is {} and SLURM_PROCID is {}: two nested launchers; {}",
                             rank, found->rank, kAnotherWay)};
  }
  return {};
}

}  // namespace

Result<std::optional<LaunchedBy>> launched_by(const Variables& variables) {
  TRY_ASSIGN(const Claims read, read_claims(variables));
  const auto& [open_mpi, pmi, slurm] = read;
  std::optional<LaunchedBy> found = open_mpi ? open_mpi : pmi ? pmi : slurm;
  if (slurm && pmi && !open_mpi && slurm->rank == pmi->rank && slurm->size == pmi->size) {
    found = slurm;  // srun --mpi=pmi2 sets both
  }
  for (const std::optional<LaunchedBy>& other : {pmi, slurm}) {
    TRY(found ? check_agreement(*found, other) : Result<void>());
  }
  TRY(check_pmix(variables, found));
  if (found && found->launcher != Launcher::kOpenMpi && found->size == 1) {
    return std::optional<LaunchedBy>();
  }
  return found;
}

const char* name_of(Launcher launcher) {
  switch (launcher) {
    case Launcher::kOpenMpi: return "mpirun";
    case Launcher::kPmi: return "mpiexec";
    case Launcher::kSlurm: return "srun";
  }
  return "a launcher";
}

}  // namespace mayfly::engine
