#include "cloud_hooks/local_provider.hpp"

#include <gtest/gtest.h>
#include <pthread.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>

#include <filesystem>
#include <thread>

#include "base/file.hpp"
#include "base/time.hpp"

namespace mayfly::cloud_hooks {
namespace {

constexpr Duration kHangBound = seconds(30);

std::string scratch_path(const std::string& name) {
  return std::filesystem::temp_directory_path() /
         ("mayfly_local_provider_" + std::to_string(::getpid()) + "_" + name);
}

/// Waits until the server has ended, and returns its status. Fails the test if it does not end.
ServerStatus wait_for_end(LocalProvider& provider, const std::string& id) {
  const Instant deadline = monotonic_now() + kHangBound;
  while (monotonic_now() < deadline) {
    for (const ServerStatus& server : provider.poll()) {
      if (server.id == id && !server.alive()) {
        return server;
      }
    }
    std::this_thread::yield();
  }
  ADD_FAILURE() << id << " still runs";
  return {};
}

std::vector<ServerStatus> listed(LocalProvider& provider) {
  return provider.list().value();
}

ServerRequest make_request(std::uint32_t count, const std::string& request_id) {
  ServerRequest request;
  request.request_id = request_id;
  request.count = count;
  return request;
}

std::string start(LocalProvider& provider, const std::vector<std::string>& argv,
                  const std::string& log_path = "") {
  Result<std::string> id = provider.start(argv, log_path);
  EXPECT_TRUE(id.ok()) << (id.ok() ? "" : id.error().detail);
  return id.ok() ? id.value() : "";
}

TEST(LocalProvider, ARunningServerHasAPidAndIsListed) {
  LocalProvider provider;
  const std::string id = start(provider, {"/bin/sleep", "1000"});
  EXPECT_EQ(id, "local-1");
  EXPECT_GT(provider.pid_of(id), 0);
  ASSERT_EQ(listed(provider).size(), 1u);
  EXPECT_EQ(listed(provider)[0].state, ServerState::kRunning);
  const auto status = provider.status(id).value();
  EXPECT_EQ(status.pid, provider.pid_of(id));
  EXPECT_GE(status.uptime.value(), Duration(0));
}

TEST(LocalProvider, ReportsTheExitCode) {
  LocalProvider provider;
  const std::string bad = start(provider, {"/bin/false"});
  const std::string good = start(provider, {"true"});
  EXPECT_EQ(wait_for_end(provider, bad).exit_code, 1);
  EXPECT_EQ(wait_for_end(provider, good).exit_code, 0);
  EXPECT_EQ(provider.pid_of(bad), 0);
}

// Goal: a job that replaces its servers for weeks does not fill its folder with their logs.
TEST(LocalProvider, KeepsTheNewestLogsOfWhatHasEnded) {
  const std::string folder = scratch_path("logs");
  std::filesystem::create_directory(folder);
  LocalProvider provider;
  const std::string lives = folder + "/lives.log";
  start(provider, {"/bin/sleep", "1000"}, lives);
  const auto log_of = [&](const char* how, std::size_t number) {
    return folder + "/" + how + std::to_string(number) + ".log";
  };
  constexpr std::size_t kStarted = 70;
  for (std::size_t i = 0; i < kStarted; ++i) {
    wait_for_end(provider, start(provider, {"/bin/true"}, log_of("well", i)));
    wait_for_end(provider, start(provider, {"/bin/false"}, log_of("failed", i)));
  }
  start(provider, {"/bin/sleep", "1000"}, folder + "/last.log");
  EXPECT_TRUE(std::filesystem::exists(lives)) << "the log of one that runs";
  for (std::size_t i = 0; i < kStarted; ++i) {
    EXPECT_EQ(std::filesystem::exists(log_of("well", i)),
              i >= kStarted - LocalProvider::kOtherLogsMax);
    EXPECT_EQ(std::filesystem::exists(log_of("failed", i)),
              i >= kStarted - LocalProvider::kFailedLogsMax);
  }
  std::filesystem::remove_all(folder);
}

TEST(LocalProvider, ReportsTheSignalThatEndedAServer) {
  LocalProvider provider;
  const std::string id = start(provider, {"/bin/sleep", "1000"});
  ASSERT_TRUE(provider.signal(id, SIGSTOP).ok());
  ASSERT_TRUE(provider.signal(id, SIGCONT).ok());
  ASSERT_TRUE(provider.signal(id, SIGKILL).ok());
  EXPECT_EQ(wait_for_end(provider, id).signal, SIGKILL);
  EXPECT_EQ(provider.signal(id, SIGKILL).error().code, Errc::kNotFound);
}

TEST(LocalProvider, OutputGoesToTheLogFileAndTheEnvironmentIsExtended) {
  LocalProviderOptions options;
  options.environment = {{"MAYFLY_TEST_WORD", "ephemera"}};
  LocalProvider provider(std::move(options));
  const std::string log = scratch_path("log");
  const std::string id =
      start(provider, {"/bin/sh", "-c", "echo $MAYFLY_TEST_WORD; echo error >&2"}, log);
  EXPECT_EQ(wait_for_end(provider, id).exit_code, 0);
  EXPECT_EQ(read_text_file(log, 1000).value(), "ephemera\nerror\n");
  std::filesystem::remove(log);
}

TEST(LocalProvider, AServerHasTheLowestSlotThatIsFree) {
  LocalProvider provider;
  const auto has = [&](const std::string& slot) {
    const std::string test = "test \"$MAYFLY_SLOT\" = " + slot;
    return wait_for_end(provider, start(provider, {"/bin/sh", "-c", test})).exit_code == 0;
  };
  const std::string first = start(provider, {"/bin/sleep", "1000"});
  EXPECT_TRUE(has("1"));
  EXPECT_TRUE(has("1")) << "the one before has ended";
  start(provider, {"/bin/sleep", "1000"});
  EXPECT_TRUE(has("2"));
  ASSERT_TRUE(provider.signal(first, SIGKILL).ok());
  wait_for_end(provider, first);
  EXPECT_TRUE(has("0"));
}

TEST(LocalProvider, InheritsNoDescriptor) {
  int ends[2];
  ASSERT_EQ(::pipe(ends), 0);  // without close-on-exec, as a careless library would
  LocalProvider provider;
  const std::string path = "/proc/self/fd/" + std::to_string(ends[1]);
  const std::string id = start(provider, {"/bin/sh", "-c", "test ! -e " + path});
  EXPECT_EQ(wait_for_end(provider, id).exit_code, 0);
  ::close(ends[0]);
  ::close(ends[1]);
}

TEST(LocalProvider, ProgramsThatCannotBeStartedAreErrors) {
  LocalProvider provider;
  EXPECT_EQ(provider.start({"/no/such/program"}, "").error().code, Errc::kNotFound);
  EXPECT_EQ(provider.start({}, "").error().code, Errc::kInvalidInput);
  EXPECT_TRUE(listed(provider).empty());
}

TEST(LocalProvider, DestructionKillsWhatStillRuns) {
  int pid = 0;
  {
    LocalProvider provider;
    pid = provider.pid_of(start(provider, {"/bin/sleep", "1000"}));
    ASSERT_EQ(::kill(pid, 0), 0);
  }
  EXPECT_NE(::kill(pid, 0), 0);
}

TEST(LocalProvider, RepeatingARequestStartsNothingTwice) {
  LocalProviderOptions options;
  options.argv = {"/bin/sleep", "1000"};
  LocalProvider provider(std::move(options));
  const RequestOutcome first = provider.request(make_request(2, "first"));
  EXPECT_FALSE(first.error);
  EXPECT_EQ(provider.request(make_request(2, "first")).servers, first.servers);
  EXPECT_EQ(listed(provider).size(), 2u);
  EXPECT_EQ(provider.request(make_request(3, "first")).servers.size(), 3u);
  EXPECT_EQ(provider.request(make_request(1, "second")).servers.size(), 1u);
  EXPECT_EQ(listed(provider).size(), 4u);
}

TEST(LocalProvider, ReleaseEndsAServerAndMayBeRepeated) {
  LocalProviderOptions options;
  options.argv = {"/bin/sleep", "1000"};
  LocalProvider provider(std::move(options));
  const std::string id = provider.request(make_request(1, "first")).servers.at(0).id;
  EXPECT_FALSE(provider.release(id));
  EXPECT_EQ(wait_for_end(provider, id).signal, SIGTERM);
  EXPECT_FALSE(provider.release(id));
  EXPECT_FALSE(provider.release("local-99"));
}

TEST(LocalProvider, AWrongRequestIsAConfigurationError) {
  LocalProviderOptions options;
  options.argv = {"/no/such/program", "{id}"};
  LocalProvider provider(std::move(options));
  const RequestOutcome outcome = provider.request(make_request(2, "first"));
  EXPECT_TRUE(outcome.servers.empty());
  ASSERT_TRUE(outcome.error);
  EXPECT_EQ(outcome.error->kind, ProviderErrorKind::kConfig);
  EXPECT_FALSE(provider.status("local-1").value().alive());
}

TEST(LocalProvider, MayBeUsedFromThreadsThatEnd) {
  LocalProvider provider;
  std::string id;
  std::thread([&] { id = start(provider, {"/bin/sleep", "1000"}); }).join();
  EXPECT_GT(provider.pid_of(id), 0);
}

TEST(LauncherBond, DoesNothingWithoutALauncher) {
  ::unsetenv(kLauncherPidVariable);
  die_with_launcher();
}

TEST(LauncherBondDeathTest, AProcessWhoseLauncherIsGoneExits) {
  EXPECT_EXIT(
      {
        ::setenv(kLauncherPidVariable, "1000000000", 1);
        die_with_launcher();
      },
      testing::ExitedWithCode(1), "process 1000000000 .* has ended, or has not started it");
}

/// Starts a process that starts a worker and waits, as a shell does. The worker writes "w" when
/// die_with_launcher() has returned, and "t" when it is asked to leave.
pid_t start_script(int output) {
  const std::string launcher = std::to_string(::getpid());
  const pid_t script = ::fork();
  if (script != 0) {
    return script;
  }
  if (::fork() == 0) {
    sigset_t asked;
    sigemptyset(&asked);
    sigaddset(&asked, SIGTERM);
    ::pthread_sigmask(SIG_BLOCK, &asked, nullptr);
    ::setenv(kLauncherPidVariable, launcher.c_str(), 1);
    die_with_launcher();
    (void)!::write(output, "w", 1);
    int signal = 0;
    ::sigwait(&asked, &signal);
    (void)!::write(output, "t", 1);
    ::_exit(0);
  }
  ::close(output);
  while (true) {
    ::pause();
  }
}

TEST(LauncherBond, AWorkerOfAScriptIsAskedToLeaveWhenTheScriptEnds) {
  int ends[2] = {-1, -1};
  ASSERT_EQ(::pipe(ends), 0);
  const pid_t script = start_script(ends[1]);
  ::close(ends[1]);
  char said = 0;
  ASSERT_EQ(::read(ends[0], &said, 1), 1);
  EXPECT_EQ(said, 'w');
  ::kill(script, SIGKILL);
  ASSERT_EQ(::waitpid(script, nullptr, 0), script);
  ASSERT_EQ(::read(ends[0], &said, 1), 1);
  EXPECT_EQ(said, 't');
  EXPECT_EQ(::read(ends[0], &said, 1), 0);
  ::close(ends[0]);
}

}  // namespace
}  // namespace mayfly::cloud_hooks
