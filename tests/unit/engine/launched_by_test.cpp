#include "engine/launch/launched_by.hpp"

#include <gmock/gmock.h>

#include <map>

namespace mayfly::engine {
namespace {

using ::testing::HasSubstr;
using Set = std::map<std::string, std::string>;

Result<std::optional<LaunchedBy>> ask(const Set& set) {
  return launched_by([&set](const char* name) -> const char* {
    const auto found = set.find(name);
    return found == set.end() ? nullptr : found->second.c_str();
  });
}

/// The answer for a process that a launcher started as one of several.
LaunchedBy found(const Set& set) {
  const Result<std::optional<LaunchedBy>> answer = ask(set);
  EXPECT_TRUE(answer.ok()) << (answer.ok() ? "" : answer.error().detail);
  EXPECT_TRUE(answer.ok() && answer.value().has_value());
  return answer.ok() ? answer.value().value_or(LaunchedBy{}) : LaunchedBy{};
}

bool is_alone(const Set& set) {
  const Result<std::optional<LaunchedBy>> answer = ask(set);
  return answer.ok() && !answer.value().has_value();
}

std::string refusal(const Set& set) {
  const Result<std::optional<LaunchedBy>> answer = ask(set);
  return answer.ok() ? "not refused" : answer.error().detail;
}

Set with(Set set, const Set& more) {
  for (const auto& [name, text] : more) {
    set[name] = text;
  }
  return set;
}

// The variables that Open MPI 4.1's mpirun, MPICH 4.0's mpiexec and Slurm 22.05's srun set.
const Set kOpenMpi = {{"OMPI_COMM_WORLD_SIZE", "4"},
                      {"OMPI_COMM_WORLD_RANK", "3"},
                      {"OMPI_COMM_WORLD_LOCAL_SIZE", "2"},
                      {"OMPI_COMM_WORLD_LOCAL_RANK", "1"},
                      {"PMIX_NAMESPACE", "77"},
                      {"PMIX_RANK", "3"}};
const Set kMpich = {{"PMI_RANK", "1"},
                    {"PMI_SIZE", "3"},
                    {"PMI_FD", "7"},
                    {"MPI_LOCALNRANKS", "3"},
                    {"MPI_LOCALRANKID", "1"}};
const Set kSrun = {{"SLURM_JOB_ID", "12"},        {"SLURM_STEP_ID", "0"},
                   {"SLURM_STEPID", "0"},         {"SLURM_PROCID", "2"},
                   {"SLURM_NTASKS", "3"},         {"SLURM_STEP_NUM_TASKS", "3"},
                   {"SLURM_STEP_NUM_NODES", "2"}, {"SLURM_STEP_TASKS_PER_NODE", "2,1"},
                   {"SLURM_NODEID", "1"},         {"SLURM_STEP_NODELIST", "node[1-2]"},
                   {"SLURM_LOCALID", "0"}};
// The variables of a batch script, and of the shell that salloc starts.
const Set kBatch = {{"SLURM_JOB_ID", "12"}, {"SLURM_NTASKS", "3"}, {"SLURM_NPROCS", "3"},
                    {"SLURM_PROCID", "0"},  {"SLURM_NODEID", "0"}, {"SLURM_TASKS_PER_NODE", "2,1"}};

TEST(LaunchedBy, NothingSetIsAProcessByItself) {
  EXPECT_TRUE(is_alone({}));
}

TEST(LaunchedBy, MpirunOfOpenMpi) {
  const LaunchedBy rank = found(kOpenMpi);
  EXPECT_EQ(rank.launcher, Launcher::kOpenMpi);
  EXPECT_EQ(rank.rank, 3U);
  EXPECT_EQ(rank.size, 4U);
  EXPECT_EQ(rank.local_size, 2U);
  EXPECT_EQ(rank.local_rank, 1U);
  EXPECT_EQ(rank.job, "mpi-77");
  EXPECT_FALSE(rank.is_on_one_host());
}

TEST(LaunchedBy, OneRankOfMpirunIsOneToo) {
  const LaunchedBy rank =
      found(with(kOpenMpi, {{"OMPI_COMM_WORLD_SIZE", "1"}, {"OMPI_COMM_WORLD_RANK", "0"}}));
  EXPECT_EQ(rank.size, 1U);
  EXPECT_TRUE(rank.is_on_one_host());
}

TEST(LaunchedBy, MpiexecOfMpich) {
  const LaunchedBy rank = found(kMpich);
  EXPECT_EQ(rank.launcher, Launcher::kPmi);
  EXPECT_EQ(rank.rank, 1U);
  EXPECT_EQ(rank.size, 3U);
  EXPECT_EQ(rank.local_rank, 1U);
  EXPECT_TRUE(rank.is_on_one_host());
  EXPECT_FALSE(found({{"PMI_RANK", "1"}, {"PMI_SIZE", "3"}}).is_on_one_host());
}

TEST(LaunchedBy, Srun) {
  const LaunchedBy task = found(kSrun);
  EXPECT_EQ(task.launcher, Launcher::kSlurm);
  EXPECT_EQ(task.rank, 2U);
  EXPECT_EQ(task.size, 3U);
  EXPECT_EQ(task.local_size, 1U);
  EXPECT_EQ(task.local_rank, 0U);
  EXPECT_EQ(task.job, "slurm-12.0");
  EXPECT_EQ(task.hosts, "node[1-2]");
  EXPECT_TRUE(found(with(kSrun, {{"SLURM_STEP_NUM_NODES", "1"}})).is_on_one_host());
}

TEST(LaunchedBy, SrunCountsTheTasksOfItsOwnNode) {
  const auto on_node = [](const char* list, const char* node) {
    return found(with(kSrun, {{"SLURM_STEP_NUM_NODES", "9"},
                              {"SLURM_STEP_TASKS_PER_NODE", list},
                              {"SLURM_NODEID", node}}))
        .local_size;
  };
  EXPECT_EQ(on_node("4(x2),3", "0"), 4U);
  EXPECT_EQ(on_node("4(x2),3", "1"), 4U);
  EXPECT_EQ(on_node("4(x2),3", "2"), 3U);
  EXPECT_EQ(on_node("4(x2),3", "3"), 0U);
  EXPECT_EQ(on_node("", "0"), 0U);
  EXPECT_EQ(on_node("(x", "0"), 0U);
}

TEST(LaunchedBy, AStepHasItsOwnNumberOfTasks) {
  EXPECT_EQ(found(with(kSrun, {{"SLURM_NTASKS", "8"}})).size, 3U);
}

TEST(LaunchedBy, SrunWithPmi2OrPmixIsSrun) {
  EXPECT_EQ(found(with(kSrun, {{"PMI_RANK", "2"}, {"PMI_SIZE", "3"}})).launcher, Launcher::kSlurm);
  EXPECT_EQ(found(with(kSrun, {{"PMIX_RANK", "2"}})).launcher, Launcher::kSlurm);
}

TEST(LaunchedBy, BatchScriptsAndShellsOfAnAllocationAreByThemselves) {
  EXPECT_TRUE(is_alone(kBatch));
  EXPECT_TRUE(is_alone(with(kBatch, {{"SLURM_STEP_ID", "4294967291"}})));  // batch
  EXPECT_TRUE(is_alone(with(kBatch, {{"SLURM_STEPID", "4294967290"}})));   // interactive
  EXPECT_TRUE(is_alone({{"SLURM_JOB_ID", "12"}, {"SLURM_NTASKS", "3"}}));  // salloc
}

TEST(LaunchedBy, TheOnlyTaskMayStartWorkersOfItsOwn) {
  EXPECT_TRUE(is_alone(with(kSrun, {{"SLURM_PROCID", "0"}, {"SLURM_STEP_NUM_TASKS", "1"}})));
  EXPECT_TRUE(is_alone({{"PMI_RANK", "0"}, {"PMI_SIZE", "1"}}));
}

TEST(LaunchedBy, MpirunAndMpiexecInsideAnAllocationStartTheirDaemonsWithSrun) {
  EXPECT_EQ(found(with(kSrun, kOpenMpi)).launcher, Launcher::kOpenMpi);
  EXPECT_EQ(found(with(kSrun, kMpich)).launcher, Launcher::kPmi);
  EXPECT_EQ(found(with(kBatch, kOpenMpi)).rank, 3U);
  EXPECT_EQ(found(with(kMpich, kOpenMpi)).launcher, Launcher::kOpenMpi);
}

TEST(LaunchedBy, ALeftoverOfAnOuterLauncherDoesNotMakeAJobOfEachTask) {
  const Set alone = {{"OMPI_COMM_WORLD_SIZE", "1"}, {"OMPI_COMM_WORLD_RANK", "0"}};
  EXPECT_THAT(refusal(with(kSrun, alone)), HasSubstr("srun that it is one of 3"));
  EXPECT_THAT(refusal(with(kMpich, alone)), HasSubstr("mpiexec that it is one of 3"));
  EXPECT_THAT(refusal(with(kSrun, {{"PMI_RANK", "0"}, {"PMI_SIZE", "1"}})),
              HasSubstr("mpiexec says that this process is its only one"));
}

TEST(LaunchedBy, HalfOfWhatIsNeededIsRefused) {
  EXPECT_THAT(refusal({{"OMPI_COMM_WORLD_SIZE", "4"}}), HasSubstr("OMPI_COMM_WORLD_RANK is ''"));
  EXPECT_THAT(refusal({{"PMI_RANK", "0"}}), HasSubstr("PMI_SIZE is ''"));
  EXPECT_THAT(refusal({{"PMI_ID", "1"}}), HasSubstr("PMI_RANK is ''"));
  EXPECT_THAT(refusal({{"PMI_SIZE", "2"}}), HasSubstr("PMI_RANK is ''"));
  EXPECT_THAT(refusal({{"SLURM_STEP_ID", "0"}, {"SLURM_PROCID", "1"}}),
              HasSubstr("SLURM_PROCID is '1'"));
  EXPECT_THAT(refusal({{"PMIX_RANK", "1"}}), HasSubstr("do not give their number"));
}

TEST(LaunchedBy, WhatCannotBeIsRefused) {
  for (const char* rank : {"3", "-1", "x", "", "1 ", "99999999999"}) {
    EXPECT_THAT(refusal(with(kMpich, {{"PMI_RANK", rank}})), HasSubstr("name no rank of a job"))
        << rank;
  }
  EXPECT_THAT(refusal(with(kSrun, {{"PMIX_RANK", "0"}})), HasSubstr("two nested launchers"));
}

}  // namespace
}  // namespace mayfly::engine
