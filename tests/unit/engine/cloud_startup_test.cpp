#include "engine/cloud/cloud_startup.hpp"

#include <gtest/gtest.h>

#include <chrono>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <thread>

#include "base/file.hpp"
#include "base/lock_file.hpp"
#include "cloud_hooks/http/message.hpp"
#include "tests/unit/engine/temporary_folder.hpp"

namespace mayfly::engine {
namespace {

using mayfly::test_support::TemporaryFolder;

bool holds(const std::string& text, const std::string& part) {
  return text.find(part) != std::string::npos;
}

JobConfig config_for(const std::string& provider) {
  JobConfig config;
  config.cloud_provider = provider;
  config.cloud_worker_args = "--data /data --threads 8";
  config.run_dir = "/shared/runs/a";
  config.token_file = "/shared/runs/a/token";
  return config;
}

/// The errors that a shell finds in a script without running it; empty = none.
std::string complaint_about(const std::string& script) {
  const TemporaryFolder folder;
  std::ofstream(folder / "script") << script;
  const std::string command =
      "sh -n '" + (folder / "script") + "' >'" + (folder / "said") + "' 2>&1";
  const int code = std::system(command.c_str());
  return code == 0 ? "" : read_text_file(folder / "said", 10'000).value() + script;
}

TEST(CloudStartup, AFetchingServerKnowsAddressTokenAndHashOnly) {
  const std::string text =
      fetching_text(config_for("gce"), "10.0.0.2:7001", "secret", std::string(64, 'a'));
  EXPECT_TRUE(text.starts_with("#!"));
  EXPECT_EQ(complaint_about(text), "");
  EXPECT_TRUE(holds(text, "address='10.0.0.2:7001'\n"));
  EXPECT_TRUE(holds(text, "token='secret'\n"));
  EXPECT_TRUE(holds(text, "sha256='" + std::string(64, 'a') + "'\n"));
  EXPECT_FALSE(holds(text, "--data ")) << "the rest is the start script's";
  EXPECT_LT(text.size(), 4096u) << "EC2 takes 16 KiB, encoded twice";
}

TEST(CloudStartup, OnlyAMachineOfACloudShutsItselfDown) {
  const std::string hash(64, 'a');
  EXPECT_TRUE(holds(fetching_text(config_for("gce"), "a:1", "t", hash), "shutdown"));
  EXPECT_TRUE(holds(fetching_text(config_for("ec2"), "a:1", "t", hash), "shutdown"));
  EXPECT_FALSE(holds(fetching_text(config_for("exec"), "a:1", "t", hash), "shutdown"));
}

void write_program(const TemporaryFolder& folder, const std::string& name,
                   const std::string& text) {
  std::ofstream(folder / name) << "#!/bin/sh\n" << text;
  std::filesystem::permissions(folder / name, std::filesystem::perms::owner_all);
}

/// Runs the program `script` in the folder, whose other programs replace those of this machine.
void run_script(const TemporaryFolder& folder) {
  const std::string path = "PATH='" + folder.path() + "':\"$PATH\" TMPDIR='" + folder.path() + "' ";
  (void)std::system((path + "sh '" + (folder / "script") + "' >/dev/null 2>&1").c_str());
}

TEST(CloudStartup, AServerThatIsNotServedYetWaitsForItsTurn) {
  const TemporaryFolder folder;
  const std::string start = "echo started >'" + (folder / "ran") + "'\n";
  std::ofstream(folder / "served") << start;
  // This curl gets the status 503 more often than it may get no answer.
  write_program(folder, "curl",
                "cd '" + folder.path() + "'\necho >>calls\n" +
                    "if [ \"$(wc -l <calls)\" -le 95 ]; then\n  printf 503\n  "
                    "exit 22\nfi\ncp served \"$OLDPWD/start\"\nprintf 200\n");
  write_program(folder, "sleep", "");
  write_program(folder, "script",
                fetching_text(config_for("exec"), "a:1", "t",
                              cloud_hooks::to_hex(cloud_hooks::sha256(start))));
  run_script(folder);
  EXPECT_EQ(read_text_file(folder / "ran", 100).value(), "started\n");
}

TEST(CloudStartup, AMachineShutsItselfDownAlsoIfNobodyHearsWhyItsWorkerFailed) {
  const TemporaryFolder folder;
  const std::string start = "set -eu\necho the reason\nexit 3\n";
  std::ofstream(folder / "served") << start;
  // This curl fetches the start script, and fails when it reports the worker's failure, as if the
  // coordinator had ended.
  write_program(folder, "curl",
                "for word; do\n  if [ \"$word\" = start ]; then\n    cp '" + (folder / "served") +
                    "' start\n    exit 0\n  fi\ndone\ncat >'" + (folder / "told") + "'\nexit 7\n");
  write_program(folder, "shutdown", "echo \"$*\" >'" + (folder / "shut") + "'\n");
  write_program(folder, "script",
                fetching_text(config_for("gce"), "a:1", "t",
                              cloud_hooks::to_hex(cloud_hooks::sha256(start))));
  run_script(folder);
  EXPECT_EQ(read_text_file(folder / "told", 100).value(), "the reason\n");
  EXPECT_EQ(read_text_file(folder / "shut", 100).value(), "-P now\n");
}

TEST(CloudStartup, WhatIsServedHoldsTheBundlesHashAndNoSecret) {
  for (const char* provider : {"gce", "ec2", "exec", "slurm"}) {
    const Result<std::string> text =
        served_start(config_for(provider), "10.0.0.2:7000,10.0.0.3:7000", std::string(64, 'b'));
    ASSERT_TRUE(text.ok());
    EXPECT_EQ(complaint_about(text.value()), "") << provider;
    EXPECT_TRUE(holds(text.value(), "fetch bundle " + std::string(64, 'b')));
    EXPECT_TRUE(holds(text.value(), "--coordinator '10.0.0.2:7000,10.0.0.3:7000' "));
    EXPECT_TRUE(holds(text.value(), "--data /data --threads 8"));
    EXPECT_EQ(holds(text.value(), "MAYFLY_SERVER"), provider[1] == 'c') << "gce and ec2 say it";
  }
}

TEST(CloudStartup, AJobOfSlurmLeavesNothingOnItsNodeAndItsLastWordsInItsComment) {
  const JobConfig config = config_for("slurm");
  const std::string fetching = fetching_text(config, "a:1", "t", std::string(64, 'a'));
  EXPECT_EQ(complaint_about(fetching), "");
  EXPECT_TRUE(holds(fetching, "rm -rf \"$home\""));
  EXPECT_TRUE(holds(fetching, "scontrol update"));
  const std::string start = served_start(config, "a:1", std::string(64, 'b')).value();
  EXPECT_FALSE(holds(start, "exec ")) << "somebody has to clean up";
  EXPECT_TRUE(holds(start, "--bind-host \"${WORKER_HOST:-auto}\""));
}

/// Runs the end of the script of served_start() with another program in place of the worker.
/// Returns the exit code.
int code_of_ended_worker(const std::string& worker) {
  std::string start = served_start(config_for("slurm"), "a:1", "b").value();
  const std::size_t begin = start.find("./mayfly/mayfly");
  const std::size_t end = start.find(" &\n", begin);
  start.replace(begin, end - begin, worker);
  start.replace(0, begin, "");
  const TemporaryFolder folder;
  // A warning signal that arrives before the script waits for its worker must not end it.
  std::ofstream(folder / "script") << "set -eu\ntrap '' USR1\n" << start;
  return WEXITSTATUS(std::system(("sh '" + (folder / "script") + "'").c_str()));
}

TEST(CloudStartup, AJobOfSlurmEndsAsItsWorkerDoesAndPassesWarningsOn) {
  EXPECT_EQ(code_of_ended_worker("sh -c 'exit 0'"), 0);
  EXPECT_EQ(code_of_ended_worker("sh -c 'exit 7'"), 7);
  EXPECT_EQ(code_of_ended_worker("sh -c 'trap \"sleep 0.1; exit 5\" TERM; "
                                 "while kill -USR1 $PPID; do sleep 0.01; done'"),
            5);
}

TEST(CloudStartup, AUsersScriptIsServedWithItsMarksButNeverWithTheToken) {
  const TemporaryFolder folder;
  JobConfig config = config_for("gce");
  config.cloud_startup = folder / "start.sh";
  std::ofstream(config.cloud_startup)
      << "fetch bundle {bundle_sha256}\nrun {coordinator} {worker_args}";
  EXPECT_EQ(served_start(config, "c:1", "hash").value(),
            "fetch bundle hash\nrun c:1 --data /data --threads 8");
  std::ofstream(config.cloud_startup) << "echo '{token}'";
  const Result<std::string> refused = served_start(config, "c:1", "hash");
  ASSERT_FALSE(refused.ok());
  EXPECT_TRUE(holds(refused.error().detail, "$token")) << refused.error().detail;
  EXPECT_EQ(startup_text(config, "c:1", "secret").value(), "echo 'secret'");
}

TEST(CloudStartup, AMachineOfEc2TakesAnEndpointAsAwsToolsDo) {
  const TemporaryFolder folder;
  std::ofstream(folder / "curl") << "#!/bin/sh\nfor last; do :; done\necho \"$last\" >>'"
                                 << (folder / "asked") << "'\n";
  std::filesystem::permissions(folder / "curl", std::filesystem::perms::owner_all);
  const std::string start = served_start(config_for("ec2"), "10.0.0.2:1", "5a").value();
  const std::size_t begin = start.find("\naws=");
  ASSERT_NE(begin, std::string::npos);
  std::ofstream(folder / "script")
      << "PATH='" << folder.path() << "':$PATH\n"
      << "AWS_EC2_METADATA_SERVICE_ENDPOINT=http://127.0.0.1:8/\n"
      << start.substr(begin, start.find("\nexport", begin) - begin) << "\n";
  EXPECT_EQ(std::system(("sh '" + (folder / "script") + "'").c_str()), 0);
  EXPECT_EQ(read_text_file(folder / "asked", 1000).value(),
            "http://127.0.0.1:8/latest/api/token\n"
            "http://127.0.0.1:8/latest/meta-data/instance-id\n");
}

TEST(CloudStartup, WithoutABundleACloudNeedsAScriptAndOthersSeeOurFiles) {
  EXPECT_TRUE(holds(startup_text(config_for("gce"), "c:1", "t").error().detail, "cloud_bundle"));
  const std::string text = startup_text(config_for("slurm"), "10.0.0.2:1", "secret").value();
  EXPECT_EQ(complaint_about(text), "");
  EXPECT_TRUE(holds(text, "--token-file '/shared/runs/a/token'"));
  EXPECT_FALSE(holds(text, "secret"));
}

TEST(CloudStartup, OurEnvironmentIsNotTheWorkers) {
  ::setenv("MAYFLY_LR", "0.2", 1);
  ::setenv("MAYFLY_SERVER", "node1", 1);
  const std::string seen = startup_text(config_for("slurm"), "10.0.0.2:1", "secret").value();
  const std::string fetching = fetching_text(config_for("slurm"), "10.0.0.2:1", "secret", "5a");
  const std::string served = served_start(config_for("slurm"), "10.0.0.2:1", "5a").value();
  const std::string machine = fetching_text(config_for("ec2"), "10.0.0.2:1", "secret", "5a");
  ::unsetenv("MAYFLY_LR");
  ::unsetenv("MAYFLY_SERVER");
  for (const std::string& text : {seen, fetching}) {
    EXPECT_EQ(complaint_about(text), "");
    EXPECT_TRUE(holds(text, "\nunset MAYFLY_LR\n")) << text;
  }
  EXPECT_FALSE(holds(machine, "unset MAYFLY_")) << "it has no environment of ours";
  EXPECT_EQ(served, served_start(config_for("slurm"), "10.0.0.2:1", "5a").value())
      << "a coordinator that is started again serves those who know the hash";
}

TEST(CloudStartup, AProgramOfTheUsersEndsTheArgumentsOfAWorker) {
  JobConfig config = config_for("gce");
  config.cloud_program = "'python3' 'train.py'";
  EXPECT_TRUE(holds(served_start(config, "c:1", "hash").value(),
                    "--data /data --threads 8 -- 'python3' 'train.py'\n"));
}

TEST(CloudStartup, WhatIsFilledInIsNotReadAgain) {
  JobConfig config = config_for("exec");
  config.cloud_worker_args = "{bundle_sha256}{name}";
  EXPECT_TRUE(holds(served_start(config, "c:1", "hash").value(), "{bundle_sha256}{name}\n"));
}

/// A host of two workers, with the checkpoint that an earlier worker saved when no coordinator came
/// back. The program writes its arguments to a file.
class WorkersOnAHost : public ::testing::Test {
 protected:
  WorkersOnAHost() {
    for (const char* name : {"servers/job.a", "servers/job.b", "saved/job/run/checkpoints"}) {
      std::filesystem::create_directories(folder_ / name);
    }
    std::ofstream(folder_ / "saved/job/token") << "secret\n";
    std::ofstream(folder_ / "saved/job/run/checkpoints/latest") << "step-7\n";
    std::ofstream(folder_ / "program") << "#!/bin/sh\necho \"$@\" >arguments\n";
    std::filesystem::permissions(folder_ / "program", std::filesystem::perms::owner_all);
    for (const char* name : {"servers/job.a/start", "servers/job.b/start"}) {
      std::ofstream(folder_ / name) << startup_text(config_for("ssh"), "c:1", "secret").value();
    }
  }

  /// Starts the worker; returns the arguments of its program.
  std::string start(const std::string& server) {
    const std::string command = "cd '" + (folder_ / "servers/") + server + "' && sh ./start '" +
                                (folder_ / "program") + "' 1";
    EXPECT_EQ(std::system(command.c_str()), 0);
    return read_text_file(folder_ / ("servers/" + server + "/arguments"), 10'000).value();
  }

  TemporaryFolder folder_;
};

TEST_F(WorkersOnAHost, OneOfThemOffersWhatWasSavedThere) {
  EXPECT_TRUE(holds(start("job.a"), "--resume ../../saved/job.offered/run"));
  EXPECT_FALSE(holds(start("job.b"), "--resume"));
  EXPECT_TRUE(std::filesystem::exists(folder_ / "saved/job.offered/run/checkpoints/latest"));
}

TEST_F(WorkersOnAHost, NobodyMovesWhatWasSavedWhileAnotherStartsOrReleases) {
  std::thread starting;
  {
    const Result<LockFile> held = LockFile::take(folder_ / "lock");
    ASSERT_TRUE(held.ok());
    starting = std::thread([this] { EXPECT_TRUE(holds(start("job.a"), "--resume")); });
    std::this_thread::sleep_for(std::chrono::milliseconds(200));
    EXPECT_TRUE(std::filesystem::exists(folder_ / "saved/job"));
  }
  starting.join();
  EXPECT_FALSE(std::filesystem::exists(folder_ / "saved/job"));
}

TEST(CloudStartup, AllCoordinatorsAreNamedIfThereAreStandbys) {
  JobConfig config = config_for("gce");
  EXPECT_EQ(worker_coordinators(config, "own:1"), "own:1");
  config.cloud_coordinators = "own:1,other:1";
  EXPECT_EQ(worker_coordinators(config, "own:1"), "own:1,other:1");
}

}  // namespace
}  // namespace mayfly::engine
