#include "cli/cli.hpp"

#include <gmock/gmock.h>

#include <algorithm>
#include <fstream>

#include "engine/cloud/hosts.hpp"
#include "tests/unit/cli/cli_fixture.hpp"
#include "tests/unit/engine/temporary_folder.hpp"

namespace mayfly::cli {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

TEST_F(CliTest, TrainReceivesItsFlags) {
  EXPECT_EQ(run({"train", "--workers", "4", "--global-batch", "256", "--lr-schedule=step",
                 "--no-augment", "--chaos", "kill@step=200:worker=1,join@step=300"}),
            0);
  EXPECT_EQ(started_, "train");
  EXPECT_EQ(config_.workers, 4u);
  EXPECT_EQ(config_.global_batch, 256u);
  EXPECT_EQ(config_.lr_schedule, "step");
  EXPECT_FALSE(config_.augment);
  EXPECT_EQ(config_.chaos, "kill@step=200:worker=1,join@step=300");
  EXPECT_EQ(sentinels_forked_, 0);
}

TEST_F(CliTest, FlagsBeatTheEnvironmentAndThatBeatsTheFile) {
  const test_support::TemporaryFolder folder;
  std::ofstream(folder / "job.toml") << "lr = 1\nseed = 1\nworkers = 2\n";
  context_.environment = {{"MAYFLY_LR", "2"}, {"MAYFLY_SEED", "2"}};
  EXPECT_EQ(run({"train", "--lr", "3", "--config", folder / "job.toml"}), 0) << err();
  EXPECT_EQ(config_.lr, 3);
  EXPECT_EQ(config_.seed, 2u);
  EXPECT_EQ(config_.workers, 2u);
}

TEST_F(CliTest, TheExitCodeIsTheJobs) {
  exit_code_ = 4;
  EXPECT_EQ(run({"train"}), 4);
}

TEST_F(CliTest, BadUsageIsExitCode2WithOneLineAndNothingStarted) {
  const test_support::TemporaryFolder folder;
  std::ofstream(folder / "bad.toml") << "workers = 2\nlrr = 1\n";
  const std::vector<std::pair<std::vector<std::string>, std::string>> cases = {
      {{"train", "--worker", "4"}, "did you mean '--workers'?"},
      {{"train", "--lr", "fast"}, "flag --lr: lr expects a number, got 'fast'"},
      {{"train", "--microbatch", "48"}, "global_batch 128 is not a multiple of microbatch 48"},
      {{"train", "--model", "resnet21"}, "did you mean 'resnet20'?"},
      {{"train", "--config", folder / "bad.toml"}, "bad.toml line 2: unknown setting 'lrr'"},
      {{"train", "--config", folder / "none.toml"}, "none.toml"},
      {{"train", "extra"}, "unexpected argument 'extra'"},
      {{"train", "--chaos", "kill@step=1", "--coordinator", "h:1"}, "chaos"},
      {{"trian"}, "unknown command 'trian'; did you mean 'train'?"},
      {{"worker"}, "needs --coordinator HOST:PORT"},
      {{"worker", "--coordinator", "nowhere"}, "is not HOST:PORT"},
      {{"coordinator", "--coordinator", "h:1"}, "--bind-host"},
      {{"coordinator", "--chaos", "kill@step=1"}, "start on this machine"},
      {{"coordinator", "--hosts", "a,b"}, "only with --cloud-provider ssh"},
      {{"status"}, "needs RUN_DIR, or ENDPOINT"},
      {{"digest"}, "needs CHECKPOINT"},
      {{"eval", "/nonexistent"}, "does not exist"},
  };
  for (const auto& [words, expected] : cases) {
    EXPECT_EQ(run(words), 2) << expected;
    const std::string text = err();
    EXPECT_THAT(text, HasSubstr(expected));
    EXPECT_EQ(std::count(text.begin(), text.end(), '\n'), 1) << text;
    EXPECT_EQ(started_, "");
    EXPECT_EQ(out(), "");
  }
}

TEST_F(CliTest, ACoordinatorOfProgramsIsAsPatientAsRun) {
  EXPECT_EQ(run({"coordinator", "--model", "program"}), 0) << err();
  EXPECT_EQ(config_.hang_max_ms, kProgramHangMaxMs);
  EXPECT_EQ(run({"coordinator", "--model", "program", "--hang-max-ms", "7000"}), 0);
  EXPECT_EQ(config_.hang_max_ms, 7000u);
  EXPECT_EQ(run({"coordinator"}), 0);
  EXPECT_EQ(config_.hang_max_ms, engine::JobConfig{}.hang_max_ms);
}

TEST_F(CliTest, AnUnknownEnvironmentVariableIsExitCode2) {
  context_.environment = {{"MAYFLY_WORKER", "3"}};
  EXPECT_EQ(run({"train"}), 2);
  EXPECT_THAT(err(), HasSubstr("environment MAYFLY_WORKER"));
}

TEST_F(CliTest, TrainWithACoordinatorIsAWorker) {
  EXPECT_EQ(run({"train", "--coordinator", "127.0.0.1:9"}), 0);
  EXPECT_EQ(started_, "worker");
  EXPECT_EQ(sentinels_forked_, 1);
}

TEST_F(CliTest, TrainInsideALauncherIsALaunchedRankWithTheSentinelOfMain) {
  inside_launcher_ = true;
  context_.sentinel = std::make_unique<NoSentinel>();
  EXPECT_EQ(run({"train"}), 0);
  EXPECT_EQ(started_, "launched_rank");
  EXPECT_EQ(sentinels_forked_, 0);
}

TEST_F(CliTest, InsideALauncherScriptedFaultsAreRefused) {
  inside_launcher_ = true;
  for (const std::vector<std::string>& words :
       std::vector<std::vector<std::string>>{{"train", "--chaos", "kill@step=1"},
                                             {"run", "--chaos", "kill@step=1", "--", "./train"}}) {
    EXPECT_EQ(run(words), 2);
    EXPECT_THAT(err(), HasSubstr("start on this machine"));
    EXPECT_EQ(started_, "");
  }
}

TEST_F(CliTest, ASwitchOrderIsSpelledOutWhereTheNumberOfWorkersIsKnown) {
  const std::vector<std::string> job = {"train", "--switch-order", "10", "--train-steps",
                                        "20,1140"};
  const auto run_with = [&](const std::vector<std::string>& more) {
    std::vector<std::string> words = job;
    words.insert(words.end(), more.begin(), more.end());
    return run(words);
  };
  EXPECT_EQ(run_with({"--workers", "4"}), 0) << err();
  EXPECT_EQ(config_.phases, "bsp:20steps,asp:280steps");
  EXPECT_EQ(run_with({"--hosts", "a,b"}), 0) << err();
  EXPECT_EQ(started_, "coordinator");
  EXPECT_EQ(config_.phases + config_.switch_order, "10") << "the hosts say how many";
  inside_launcher_ = true;
  EXPECT_EQ(run(job), 0) << err();
  EXPECT_EQ(started_, "launched_rank");
  EXPECT_EQ(config_.phases + config_.switch_order, "10") << "the launcher says how many";
  EXPECT_EQ(run_with({"--sync", "asp"}), 2) << "a contradiction for any number of them";
}

TEST_F(CliTest, ACoordinatorThatIsStartedAgainMayHaveItsSwitchOrderAgain) {
  const test_support::TemporaryFolder folder;
  const std::vector<std::string> words = {
      "coordinator",    "--run-dir", folder.path(),   "--workers", "4",
      "--switch-order", "10",        "--train-steps", "20,1140"};
  ASSERT_EQ(run(words), 0) << err();
  const std::string phases = config_.phases;
  std::ofstream(folder / "config.toml") << engine::to_toml(config_);
  std::ofstream(folder / "view.log") << "of a job that has not ended";
  EXPECT_EQ(run(words), 0) << err();
  EXPECT_EQ(config_.phases, phases);
  EXPECT_EQ(config_.steps, 300U);
  EXPECT_EQ(run({"coordinator", "--run-dir", folder.path()}), 0) << err();
  EXPECT_EQ(config_.phases, phases);
}

TEST_F(CliTest, AWorkerFindsTheCoordinatorOfItsRunDirectory) {
  const test_support::TemporaryFolder folder;
  std::ofstream(folder / "coordinator") << "127.0.0.1:4242\n";
  EXPECT_EQ(run({"worker", "--run-dir", folder.path()}), 0) << err();
  EXPECT_EQ(config_.coordinator, "127.0.0.1:4242");
}

TEST_F(CliTest, WhatACoordinatorIsGivenIsJudgedWithWhatItsRunHas) {
  const test_support::TemporaryFolder folder;
  std::ofstream(folder / "view.log") << "of a job that is not over";
  std::ofstream(folder / "config.toml") << "cloud_provider = \"local\"\nevaluators = 1\n";
  EXPECT_EQ(run({"coordinator", "--run-dir", folder.path(), "--evaluators", "1"}), 0) << err();
  EXPECT_EQ(config_.cloud_provider, "local");
  EXPECT_EQ(run({"coordinator", "--run-dir", folder / "other", "--evaluators", "1"}), 2);
  EXPECT_THAT(err(), HasSubstr("evaluators are servers of --cloud-provider"));
}

TEST_F(CliTest, AWorkerTakesTheJobsSettingsFromItsCoordinator) {
  engine::JobConfig job;
  job.lr = 7;
  job.seed = 7;
  job.sync = "bsp";
  told_settings_ = job;
  context_.environment = {{"MAYFLY_SEED", "2"}};
  EXPECT_EQ(run({"worker", "--coordinator", "h:1,i:2", "--momentum", "0.5"}), 0) << err();
  EXPECT_EQ(settings_asked_of_, "h:1,i:2");
  EXPECT_EQ(config_.coordinator, "h:1,i:2");
  EXPECT_EQ(config_.lr, 7);
  EXPECT_EQ(config_.seed, 2u) << "its own words are on top";
  EXPECT_EQ(config_.momentum, 0.5);
  EXPECT_FALSE(config_.ps_server);
  EXPECT_EQ(run({"ps-server", "--coordinator", "h:1"}), 0) << err();
  EXPECT_EQ(config_.sync, "bsp");
  EXPECT_TRUE(config_.ps_server);
}

TEST_F(CliTest, AWorkerOfALauncherIsToldEverythingByIt) {
  EXPECT_EQ(run({"worker", "--coordinator", "h:1", "--launched"}), 0) << err();
  EXPECT_EQ(settings_asked_of_, "");
  EXPECT_EQ(run({"worker", "--coordinator", "h:1", "--launched", "--server", "s"}), 0) << err();
  EXPECT_EQ(settings_asked_of_, "") << "all-reduce has no parameter servers";
}

TEST_F(CliTest, AMachineOfAProviderIsToldThatItIsAParameterServer) {
  engine::JobConfig told;
  told.sync = "bsp";
  told.ps = 2;
  told.ps_server = true;
  told.ps_index = 1;
  told.worker_number = 2;
  told_settings_ = told;
  const test_support::TemporaryFolder folder;  // the coordinator's file with all other settings
  std::ofstream(folder / "job.toml") << "sync = \"bsp\"\nps = 2\nps_server = false\n"
                                        "ps_index = 0\nworker_number = 0\nloader_threads = 3\n";
  EXPECT_EQ(run({"worker", "--coordinator", "h:1", "--launched", "--server", "s", "--config",
                 folder / "job.toml"}),
            0)
      << err();
  EXPECT_EQ(settings_asked_of_, "h:1");
  EXPECT_TRUE(config_.ps_server);
  EXPECT_EQ(config_.ps_index, 1u);
  EXPECT_EQ(config_.worker_number, 2u);
  EXPECT_EQ(config_.loader_threads, 3u);
}

TEST_F(CliTest, AWorkerThatIsRefusedTheSettingsIsExitCode2) {
  told_settings_ = Error{Errc::kRefused, "wrong token"};
  EXPECT_EQ(run({"worker", "--coordinator", "h:1"}), 2);
  EXPECT_EQ(err(), "mayfly: wrong token\n");
  told_settings_ = Error{Errc::kPeerLost, "cannot connect"};
  EXPECT_EQ(run({"worker", "--coordinator", "h:1"}), 1);
  EXPECT_EQ(started_, "");
}

TEST_F(CliTest, HelpListsEveryCommandAndEveryFlag) {
  EXPECT_EQ(run({"--help"}), 0);
  for (const char* command : {"train", "worker", "coordinator", "status", "scale", "drain", "pause",
                              "resume", "stop", "eval", "inspect", "digest", "version", "bench"}) {
    EXPECT_THAT(out(), HasSubstr(std::string("\n  ") + command + " "));
  }
  EXPECT_EQ(run({"train", "--help-all"}), 0);
  for (const engine::Setting& setting : engine::settings()) {
    EXPECT_THAT(out(), HasSubstr("--" + engine::flag_name(setting) + " "));
  }
  EXPECT_EQ(started_, "");
}

TEST_F(CliTest, EveryCommandAcceptsHelpAll) {
  EXPECT_EQ(run({"status", "--help"}), 0);
  const std::string short_help = out();
  EXPECT_EQ(run({"status", "--help-all"}), 0);
  EXPECT_EQ(out(), short_help);
  EXPECT_THAT(short_help, Not(HasSubstr("--help-all")));
}

TEST_F(CliTest, HelpShowsTheDefaultsOfTheCommand) {
  for (const char* command : {"compare", "tune-switch"}) {
    EXPECT_EQ(run({command, "--help"}), 0);
    for (const char* flag : {"--workers N [4] ", "--steps N [320] ", "[procedural:8192]"}) {
      EXPECT_THAT(out(), HasSubstr(flag)) << command;
    }
  }
  EXPECT_EQ(run({"run", "--help-all"}), 0);
  EXPECT_THAT(out(), HasSubstr("--hang-max-ms N [60000] "));
  EXPECT_EQ(run({"train", "--help-all"}), 0);
  EXPECT_THAT(out(), HasSubstr("--hang-max-ms N [5000] "));
}

TEST_F(CliTest, HelpOfACommandShowsUnderHeadingsWhatMostUsersNeed) {
  EXPECT_EQ(run({"train", "--help"}), 0);
  const std::string text = out();
  for (const char* part : {"\nJob:\n", "\nData:\n", "\nModel:\n", "\nWorkers:\n", "\nElasticity:\n",
                           "\nCloud:\n", "\nParameter servers:\n", "\nOutput:\n", "--help-all",
                           "--epochs ", "--steps ", "--hosts "}) {
    EXPECT_THAT(text, HasSubstr(part));
  }
  EXPECT_THAT(text, Not(HasSubstr("--silence-max-ms")));
  std::size_t longest = 0;
  for (std::size_t begin = 0, end = 0; end != std::string::npos; begin = end + 1) {
    end = text.find('\n', begin);
    longest = std::max(longest, std::min(end, text.size()) - begin);
  }
  EXPECT_LE(longest, 100U);
}

TEST_F(CliTest, HelpOfAServerNamesWhatItsCommandNeeds) {
  EXPECT_EQ(run({"ps-server", "--help"}), 0);
  for (const char* flag : {"--ps-index ", "--coordinator ", "--token-file "}) {
    EXPECT_THAT(out(), HasSubstr(flag));
  }
}

TEST_F(CliTest, WithoutACommandTheHelpIsAnError) {
  EXPECT_EQ(run({}), 2);
  EXPECT_THAT(err(), HasSubstr("Usage: mayfly COMMAND"));
}

TEST_F(CliTest, VersionIsPlainOrJson) {
  EXPECT_EQ(run({"version"}), 0);
  EXPECT_THAT(out(), HasSubstr("mayfly 0."));
  EXPECT_EQ(run({"--version"}), 0);
  EXPECT_EQ(run({"version", "--json"}), 0);
  EXPECT_THAT(out(), HasSubstr("{\"version\": \"0."));
}

TEST(StartsAWorker, IsDecidedByTheFirstWordAndTheLauncher) {
  EXPECT_TRUE(starts_a_worker({"worker"}, false));
  EXPECT_TRUE(starts_a_worker({"train"}, true));
  EXPECT_FALSE(starts_a_worker({"train"}, false));
  EXPECT_FALSE(starts_a_worker({"status", "worker"}, true));
  EXPECT_FALSE(starts_a_worker({}, true));
}

TEST_F(CliTest, BenchmarksAreAProgramOfTheirOwnThatGetsItsWordsAsTheyAre) {
  std::vector<std::string> started;
  context_.services.bench = [&started](const std::vector<std::string>& words, Context&) {
    started = words;
    return 1;
  };
  EXPECT_EQ(run({"bench", "step", "--no-such-flag"}), 1);
  EXPECT_EQ(started, (std::vector<std::string>{"step", "--no-such-flag"}));
}

TEST_F(CliTest, RunStartsAProgramWithAllItsWords) {
  EXPECT_EQ(run({"run", "--workers", "3", "--", "python3", "train.py", "--workers", "7"}), 0);
  EXPECT_EQ(started_, "program");
  EXPECT_EQ(config_.workers, 3u);
  EXPECT_TRUE(engine::is_program(config_));
  EXPECT_EQ(command_, (std::vector<std::string>{"python3", "train.py", "--workers", "7"}));
}

TEST_F(CliTest, RunRecordsAProgramWithLinesInItsWords) {
  const std::string script = "import mayfly\n\tprint(\"it's\\n\")\x7f\n";
  EXPECT_EQ(run({"run", "--", "python3", "-c", script}), 0) << err();
  EXPECT_EQ(command_.back(), script);
  engine::JobConfig read;
  const Result<void> applied = engine::apply_toml(read, engine::to_toml(config_), "config.toml");
  ASSERT_TRUE(applied.ok()) << applied.error().detail;
  EXPECT_EQ(read.cloud_program, config_.cloud_program);
  EXPECT_EQ(run({"run", "--", "./t", "caf\xe9"}), 2);
  EXPECT_THAT(err(), HasSubstr("the program's command is not valid UTF-8"));
}

TEST_F(CliTest, RunInsideALauncherIsOneRank) {
  inside_launcher_ = true;
  EXPECT_EQ(run({"run", "--", "./train"}), 0);
  EXPECT_EQ(started_, "launched_rank");
  EXPECT_EQ(command_, (std::vector<std::string>{"./train"}));
}

TEST_F(CliTest, AllAfterTheDashesIsThePrograms) {
  EXPECT_EQ(run({"run", "--quiet", "--", "./train", "--epochs", "4", "--", "x"}), 0) << err();
  EXPECT_TRUE(config_.quiet);
  EXPECT_EQ(command_, (std::vector<std::string>{"./train", "--epochs", "4", "--", "x"}));
}

TEST_F(CliTest, RunOnHostsIsACoordinatorWhoseWorkersAreTheProgram) {
  EXPECT_EQ(run({"run", "--hosts", "a:2,b", "--remote-program", "/m", "--", "./t", "it's"}), 0);
  EXPECT_EQ(started_, "coordinator");
  EXPECT_EQ(config_.cloud_provider, "ssh");
  EXPECT_EQ(config_.cloud_program, R"(./t 'it'\''s')");
  EXPECT_EQ(config_.workers, engine::kEverySlot);
  EXPECT_EQ(run({"run", "--hosts", "a", "--cloud-provider", "gce", "--", "./t"}), 2);
  EXPECT_EQ(run({"run", "--hosts", "a", "--chaos", "kill@step=3", "--", "./t"}), 2);
  EXPECT_EQ(run({"run", "--hosts", "a", "--program-dir", "/absent", "--", "./t"}), 2);
  EXPECT_THAT(err(), HasSubstr("/absent is not a folder"));
}

TEST_F(CliTest, OnHostsEverySlotGetsAWorkerUnlessANumberIsGiven) {
  for (const std::vector<std::string>& command :
       std::vector<std::vector<std::string>>{{"train"}, {"coordinator", "--cloud-provider=ssh"}}) {
    std::vector<std::string> words = command;
    words.insert(words.end(), {"--hosts", "a,b"});
    EXPECT_EQ(run(words), 0) << err();
    EXPECT_EQ(config_.workers, engine::kEverySlot);
    words.insert(words.end(), {"--workers", "1"});
    EXPECT_EQ(run(words), 0) << err();
    EXPECT_EQ(config_.workers, 1u);
  }
}

TEST_F(CliTest, RunOnHostsRefusesAProgramThatTheServersWouldNotHave) {
  const test_support::TemporaryFolder folder;
  std::ofstream(folder / "train.py") << "x";
  const std::string& place = folder.path();
  for (const std::vector<std::string>& command : std::vector<std::vector<std::string>>{
           {"python3", "trian.py", "--epochs", "4"}, {"./train"}, {"sh", "../train.sh"}}) {
    std::vector<std::string> words = {"run", "--hosts", "a", "--program-dir", place, "--"};
    words.insert(words.end(), command.begin(), command.end());
    EXPECT_EQ(run(words), 2);
    EXPECT_THAT(err(),
                HasSubstr("is not in the folder that the servers get (--program-dir " + place));
  }
}

TEST_F(CliTest, AWorkerBecomesAProgramWithItsSettings) {
  EXPECT_FALSE(starts_a_worker({"worker", "--", "./t"}, false)) << "it has a sentinel of its own";
  EXPECT_EQ(run({"worker", "--coordinator", "h:1", "--notice", "gce", "--", "./t", "-x"}), 0);
  EXPECT_EQ(started_, "become_program");
  EXPECT_EQ(config_.coordinator, "h:1");
  EXPECT_EQ(command_, (std::vector<std::string>{"./t", "-x"}));
  EXPECT_THAT(given_, ::testing::Contains(std::pair<std::string, std::string>{"notice", "gce"}));
  EXPECT_EQ(run({"worker", "--", "./t"}), 2);
  EXPECT_THAT(err(), HasSubstr("--coordinator"));
}

TEST_F(CliTest, SettingsOfNetworksAreNotForPrograms) {
  EXPECT_EQ(run({"run", "--help-all"}), 0);
  EXPECT_THAT(out(), ::testing::Not(HasSubstr("--global-batch")));
  EXPECT_THAT(out(), HasSubstr("--reduction"));
  EXPECT_EQ(run({"run", "--global-batch", "32", "--", "./t"}), 2);
  EXPECT_THAT(err(), HasSubstr("--global-batch applies to the networks of mayfly"));
}

TEST_F(CliTest, SettingsOfOurWorkersAreNotForPrograms) {
  EXPECT_EQ(run({"run", "--help-all"}), 0);
  for (const std::string flag : {"--threads", "--trace", "--inject"}) {
    EXPECT_THAT(out(), ::testing::Not(HasSubstr("\n  " + flag + " "))) << flag;
  }
  EXPECT_EQ(run({"run", "--threads", "4", "--", "./t"}), 2);
  EXPECT_THAT(err(),
              HasSubstr("--threads applies to the workers of mayfly, and has no effect on a"));
  EXPECT_EQ(run({"run", "--trace", "auto", "--", "./t"}), 2);
  EXPECT_THAT(err(), HasSubstr("--trace applies to the workers of mayfly"));
}

TEST_F(CliTest, RunWithoutAProgramOrWithANetworkIsRefused) {
  EXPECT_EQ(run({"run", "--workers", "3"}), 2);
  EXPECT_THAT(err_.str(), HasSubstr("run expects a program"));
  EXPECT_EQ(run({"run", "--model", "resnet20", "--", "./train"}), 2);
  EXPECT_THAT(err_.str(), HasSubstr("--model names a network of mayfly"));
  EXPECT_EQ(started_, "");
}

}  // namespace
}  // namespace mayfly::cli
