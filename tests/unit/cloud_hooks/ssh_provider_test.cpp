#include "cloud_hooks/ssh/ssh_provider.hpp"

#include <gtest/gtest.h>
#include <signal.h>
#include <sys/stat.h>
#include <unistd.h>

#include <chrono>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <thread>
#include <utility>

#include "base/file.hpp"
#include "base/lock_file.hpp"
#include "base/time.hpp"
#include "cloud_hooks/ssh/ssh_text.hpp"

namespace mayfly::cloud_hooks {
namespace {

namespace fs = std::filesystem;

using ssh::Host;

const std::string kSshId = "6f1f3c1e-0000-4000-8000-000000000001";
const std::string kOther = "7a2f3c1e-0000-4000-8000-000000000002";

TEST(SshHosts, AreNamesWithSlotsAndCommas) {
  const auto hosts = ssh::parse_hosts("a, me@b:2,[fd00::1]:4,fd00::2,10.0.0.1:1");
  ASSERT_TRUE(hosts.ok());
  EXPECT_EQ(
      hosts.value(),
      (std::vector<Host>{{"a", 1}, {"me@b", 2}, {"fd00::1", 4}, {"fd00::2", 1}, {"10.0.0.1", 1}}));
}

TEST(SshHosts, AreRefusedIfAShellOrSshCouldTakeThemForSomethingElse) {
  for (const char* text : {"", "a,", "-oProxyCommand=x", "a b", "a;b", "$(x)", "a:0", "a:x", "[a",
                           "[a]x", "a,a", "a:1,a:2", "../x"}) {
    EXPECT_FALSE(ssh::parse_hosts(text).ok()) << text;
  }
}

TEST(SshHostfile, IsReadAsMpirunReadsIt) {
  const auto hosts = ssh::parse_hostfile("# ours\n\n a slots=2 # two\nb:3\nc max_slots=4\n");
  ASSERT_TRUE(hosts.ok());
  EXPECT_EQ(hosts.value(), (std::vector<Host>{{"a", 2}, {"b", 3}, {"c", 1}}));
  for (const char* text : {"", "# nobody\n", "a\nb slots=0\n", "a more words\n", "a\na\n"}) {
    EXPECT_FALSE(ssh::parse_hostfile(text).ok()) << text;
  }
}

TEST(SshReport, LeavesOutWhatALoginScriptSays) {
  const auto report = ssh::parse_report(
      "Welcome!\nmayfly-host Linux/x86_64 512 flock tar\nmayfly-program\nmayfly-server "
      "a.b.6f1f3c1e "
      "gone id mayfly: no data set\nmayfly-server a.c running id2\nmayfly-end\n");
  ASSERT_TRUE(report);
  EXPECT_EQ(report->system, "Linux/x86_64");
  EXPECT_EQ(report->free_mib, 512u);
  EXPECT_EQ(report->missing, "flock tar");
  EXPECT_TRUE(report->has_program);
  ASSERT_EQ(report->servers.size(), 2u);
  EXPECT_EQ(report->servers[0].detail, "mayfly: no data set");
  EXPECT_EQ(report->servers[0].state, ServerState::kGone);
  EXPECT_EQ(ssh::host_of(report->servers[0].id), "a.b");
  EXPECT_EQ(report->servers[1].state, ServerState::kRunning);
  EXPECT_FALSE(ssh::parse_report("mayfly-host Linux/x86_64 512\n")) << "cut off";
}

/// Folders take the place of hosts, and a program that runs commands in them takes that of ssh.
class SshProviderTest : public ::testing::Test {
 protected:
  SshProviderTest() {
    ::signal(SIGPIPE, SIG_IGN);
    folder_ = fs::temp_directory_path() / ("mayfly_ssh_" + std::to_string(::getpid()));
    for (const char* host : {"a", "b"}) {
      fs::create_directories(folder_ / host);
    }
    fs::create_directories(folder_ / "logs");
    const std::string program = (folder_ / "ssh").string();
    std::ofstream(program) << "#!/bin/sh\ncd " << folder_.string()
                           << "/\"$1\" && [ ! -e off ] || { echo 'No route to host' >&2; exit 255; "
                              "}\nexport HOME=$PWD; shift\n"
                           << "[ -e slow ] || exec sh -c \"$*\"\n"
                           << "sed \"s/^pid=.*/&; sleep 0.2/\" | sh -c \"$*\"\n";
    ::chmod(program.c_str(), 0755);
    options_.hosts = {{"a", 1}, {"b", 1}};
    options_.words = {program};
    options_.places = {"mf", "job", "", "/bin/sh"};
    options_.log_dir = (folder_ / "logs").string();
    request_.request_id = kSshId;
    request_.startup_text = "echo began; exec sleep 60\n";
  }
  ~SshProviderTest() override {
    for (const ServerStatus& server : listed()) {
      (void)provider()->release(server.id);
    }
    fs::remove_all(folder_);
  }

  /// Returns another object for each call, because each thread of the coordinator has its own.
  std::unique_ptr<SshProvider> provider() { return make_ssh_provider(options_, memory_); }
  std::vector<ServerStatus> listed() { return provider()->list().value(); }
  std::string log_of(const std::string& id) {
    const Result<std::string> text = read_text_file(options_.log_dir + "/" + id + ".log", 1 << 20);
    return text.ok() ? text.value() : "";
  }

  /// From now on, hosts get an archive with this version of a program that does nothing.
  void use_program(int version) {
    fs::create_directories(folder_ / "pack/mayfly");
    const fs::path program = folder_ / "pack/mayfly/mayfly";
    std::ofstream(program) << "#!/bin/sh\n# version " << version << "\n";
    fs::permissions(program, fs::perms::owner_all);
    options_.places.program.clear();
    options_.bundle = (folder_ / ("program-" + std::to_string(version))).string();
    const std::string command = "tar -czf " + options_.bundle + " -C " +
                                (folder_ / "pack").string() + " mayfly && sha256sum <" +
                                options_.bundle + " >" + (folder_ / "hash").string();
    EXPECT_EQ(std::system(command.c_str()), 0);
    std::ifstream(folder_ / "hash") >> options_.places.sha256;
  }

  fs::path folder_;
  SshProviderOptions options_;
  std::shared_ptr<SshMemory> memory_ = make_ssh_memory();
  ServerRequest request_;
};

TEST_F(SshProviderTest, ARepeatedRequestFindsItsServer) {
  const RequestOutcome first = provider()->request(request_);
  ASSERT_EQ(first.servers.size(), 1u) << first.error->detail;
  const RequestOutcome again = provider()->request(request_);
  ASSERT_EQ(again.servers.size(), 1u);
  EXPECT_EQ(again.servers[0].id, first.servers[0].id);
  EXPECT_EQ(listed().size(), 1u);
}

TEST_F(SshProviderTest, EachHostHasAsManyAsItHasRoomFor) {
  ASSERT_EQ(provider()->request(request_).servers.size(), 1u);
  request_.request_id = kOther;
  ASSERT_EQ(provider()->request(request_).servers.size(), 1u);
  const auto servers = listed();
  ASSERT_EQ(servers.size(), 2u);
  EXPECT_NE(ssh::host_of(servers[0].id), ssh::host_of(servers[1].id));
  request_.request_id = "8a2f3c1e-0000-4000-8000-000000000003";
  const RequestOutcome third = provider()->request(request_);
  ASSERT_TRUE(third.error);
  EXPECT_EQ(third.error->kind, ProviderErrorKind::kCapacity);
  EXPECT_EQ(third.error->detail, "a: has no room; b: has no room");
}

TEST_F(SshProviderTest, AServerHasTheLowestSlotThatIsFreeOnItsHost) {
  options_.hosts = {{"a", 3}};
  request_.startup_text = "echo $MAYFLY_SLOT; exec sleep 60\n";
  const auto slot_of = [&](const std::string& request_id) {
    request_.request_id = request_id;
    const RequestOutcome begun = provider()->request(request_);
    EXPECT_EQ(begun.servers.size(), 1u);
    const fs::path server = folder_ / "a/mf/servers" / ("job." + ssh::server_id("a", request_id));
    std::string said;
    for (int tries = 0; tries < 200 && said.empty(); ++tries) {
      std::this_thread::sleep_for(milliseconds(50));
      said = read_text_file(server / "log", 100).value();
    }
    return said;
  };
  EXPECT_EQ(slot_of(kSshId), "0\n");
  EXPECT_EQ(slot_of(kOther), "1\n");
  EXPECT_FALSE(provider()->release(ssh::server_id("a", kSshId)));
  EXPECT_EQ(slot_of("8a2f3c1e-0000-4000-8000-000000000003"), "0\n");
  EXPECT_EQ(slot_of("9a2f3c1e-0000-4000-8000-000000000004"), "2\n");
}

TEST_F(SshProviderTest, ReleaseEndsTheWholeGroupBringsTheLogAndLeavesNothing) {
  request_.startup_text = "echo began; sleep 61 & sleep 62; echo never\n";
  const RequestOutcome begun = provider()->request(request_);
  ASSERT_EQ(begun.servers.size(), 1u);
  const std::string id = begun.servers[0].id;
  const fs::path server = folder_ / ssh::host_of(id) / "mf/servers" / ("job." + id);
  pid_t pid = 0;
  std::ifstream(server / "process") >> pid;
  ASSERT_GT(pid, 1);
  EXPECT_FALSE(provider()->release(id));
  for (int tries = 0; tries < 200 && ::kill(-pid, 0) == 0; ++tries) {
    std::this_thread::sleep_for(milliseconds(50));  // until its parent has reaped it
  }
  EXPECT_NE(::kill(-pid, 0), 0) << "the group is gone";
  EXPECT_FALSE(fs::exists(server));
  EXPECT_EQ(log_of(id), "began\n");
  EXPECT_TRUE(listed().empty());
  EXPECT_FALSE(provider()->release(id)) << "again";
}

/// The script of a worker that saves this step and marks it, as if no coordinator came back.
std::string left_alone_at(int step) {
  return "echo secret >token; mkdir -p run/checkpoints; echo step-" + std::to_string(step) +
         " >run/checkpoints/latest; : >run/left_alone; exec sleep 60\n";
}

TEST_F(SshProviderTest, OfWorkersThatWereLeftAloneTheNewestStateIsKept) {
  options_.hosts = {{"a", 2}};
  request_.startup_text = left_alone_at(12);
  const RequestOutcome newer = provider()->request(request_);
  request_.request_id = kOther;
  request_.startup_text = left_alone_at(7);
  const RequestOutcome older = provider()->request(request_);
  ASSERT_EQ(newer.servers.size() + older.servers.size(), 2u);
  for (const ServerStatus& server : {newer.servers[0], older.servers[0]}) {
    const fs::path mark = folder_ / "a/mf/servers" / ("job." + server.id) / "run/left_alone";
    for (int tries = 0; tries < 200 && !fs::exists(mark); ++tries) {
      std::this_thread::sleep_for(milliseconds(50));
    }
    EXPECT_FALSE(provider()->release(server.id));
  }
  EXPECT_TRUE(fs::is_empty(folder_ / "a/mf/servers"));
  const std::string latest = (folder_ / "a/mf/saved/job/run/checkpoints/latest").string();
  EXPECT_EQ(read_text_file(latest, 100).value(), "step-12\n");
}

TEST_F(SshProviderTest, AStartLeavesNoOlderStateThatALaterOneWouldOffer) {
  options_.hosts = {{"a", 2}};
  for (const auto& [id, step] : {std::pair("a.newer", 12), std::pair("a.older", 7)}) {
    const fs::path server = folder_ / "a/mf/servers" / (std::string("job.") + id);
    fs::create_directories(server / "run/checkpoints");
    std::ofstream(server / "token") << "secret\n";
    std::ofstream(server / "run/checkpoints/latest") << "step-" << step << "\n";
    std::ofstream(server / "run/left_alone") << "";
  }
  ASSERT_EQ(provider()->request(request_).servers.size(), 1u);
  const std::string latest = (folder_ / "a/mf/saved/job/run/checkpoints/latest").string();
  EXPECT_EQ(read_text_file(latest, 100).value(), "step-12\n");
  EXPECT_EQ(std::distance(fs::directory_iterator(folder_ / "a/mf/servers"), {}), 1);
}

TEST_F(SshProviderTest, NothingIsSavedOrRemovedWhileAnotherStartsOrReleases) {
  options_.hosts = {{"a", 1}};
  request_.startup_text = left_alone_at(7);
  const RequestOutcome begun = provider()->request(request_);
  ASSERT_EQ(begun.servers.size(), 1u);
  const fs::path server = folder_ / "a/mf/servers" / ("job." + begun.servers[0].id);
  for (int tries = 0; tries < 200 && !fs::exists(server / "run/left_alone"); ++tries) {
    std::this_thread::sleep_for(milliseconds(50));
  }
  std::thread releasing;
  {
    const Result<LockFile> held = LockFile::take((folder_ / "a/mf/lock").string(), seconds(20));
    ASSERT_TRUE(held.ok());
    releasing = std::thread([&] { EXPECT_FALSE(provider()->release(begun.servers[0].id)); });
    std::this_thread::sleep_for(milliseconds(500));
    EXPECT_TRUE(fs::exists(server));
  }
  releasing.join();
  EXPECT_TRUE(fs::exists(folder_ / "a/mf/saved/job/run/left_alone"));
}

TEST_F(SshProviderTest, OneThatEndsAtOnceHasFailedAndItsHostRests) {
  options_.hosts = {{"a", 1}};
  request_.startup_text = "echo 'mayfly: no data set'; exit 2\n";
  ASSERT_EQ(provider()->request(request_).servers.size(), 1u);
  std::vector<ServerStatus> servers = listed();
  for (int tries = 0; tries < 200 && !servers.empty() && servers[0].alive(); ++tries) {
    std::this_thread::sleep_for(milliseconds(50));
    servers = listed();
  }
  ASSERT_EQ(servers.size(), 1u);
  EXPECT_EQ(servers[0].state, ServerState::kGone);
  EXPECT_TRUE(servers[0].failed);
  EXPECT_NE(servers[0].detail.find("no data set (log: "), std::string::npos) << servers[0].detail;
  EXPECT_EQ(log_of(servers[0].id), "mayfly: no data set\n");
  request_.request_id = kOther;
  const RequestOutcome next = provider()->request(request_);
  ASSERT_TRUE(next.error);
  EXPECT_EQ(next.error->detail, "a: its last worker ended at once: mayfly: no data set");
}

TEST_F(SshProviderTest, OneThatEndsBeforeItIsNotedHasFailedToo) {
  options_.hosts = {{"a", 1}};
  std::ofstream(folder_ / "a/slow") << "";
  request_.startup_text = "exit 2\n";
  ASSERT_EQ(provider()->request(request_).servers.size(), 1u);
  const std::vector<ServerStatus> servers = listed();
  ASSERT_EQ(servers.size(), 1u);
  EXPECT_EQ(servers[0].state, ServerState::kGone);
  EXPECT_TRUE(servers[0].failed);
}

TEST_F(SshProviderTest, AServerWhoseStartIsUnderWayIsWaitedFor) {
  options_.hosts = {{"a", 1}};
  std::ofstream(folder_ / "a/slow") << "";
  std::thread start([this] { EXPECT_EQ(provider()->request(request_).servers.size(), 1u); });
  std::vector<ServerStatus> servers;
  for (int tries = 0; tries < 1000 && servers.empty(); ++tries) {
    servers = listed();
  }
  start.join();
  ASSERT_EQ(servers.size(), 1u);
  EXPECT_TRUE(servers[0].alive());
}

TEST_F(SshProviderTest, AHostThatDoesNotAnswerKeepsItsServerForAWhile) {
  options_.hosts = {{"a", 1}};
  const RequestOutcome begun = provider()->request(request_);
  ASSERT_EQ(begun.servers.size(), 1u);
  ASSERT_EQ(listed().size(), 1u);
  EXPECT_FALSE(listed()[0].is_remembered);
  std::ofstream(folder_ / "a/off") << "";
  const auto servers = listed();
  ASSERT_EQ(servers.size(), 1u);
  EXPECT_TRUE(servers[0].is_remembered);
  EXPECT_EQ(servers[0].state, ServerState::kRunning);
  EXPECT_EQ(servers[0].detail, "No route to host");
  const auto refused = provider()->release(begun.servers[0].id);
  ASSERT_TRUE(refused);
  EXPECT_EQ(refused->kind, ProviderErrorKind::kRate);
  fs::remove(folder_ / "a/off");
}

TEST_F(SshProviderTest, AHostThatIsSilentRightAfterAStartKeepsThatServer) {
  const RequestOutcome begun = provider()->request(request_);
  ASSERT_EQ(begun.servers.size(), 1u);
  const std::string& id = begun.servers[0].id;
  const fs::path off = folder_ / ssh::host_of(id) / "off";
  std::ofstream(off).put('x');
  const auto servers = listed();
  ASSERT_EQ(servers.size(), 1u);
  EXPECT_EQ(servers[0].id, id);
  EXPECT_TRUE(servers[0].alive());
  fs::remove(off);
}

TEST_F(SshProviderTest, AReusedProcessIdIsNotItsServer) {
  options_.hosts = {{"a", 1}};
  const RequestOutcome begun = provider()->request(request_);
  ASSERT_EQ(begun.servers.size(), 1u);
  const fs::path server = folder_ / "a/mf/servers" / ("job." + begun.servers[0].id);
  pid_t pid = 0;
  std::string born;
  std::string boot;
  std::ifstream(server / "process") >> pid >> born >> boot;
  ::kill(-pid, SIGKILL);
  std::ofstream(server / "process") << ::getpid() << " " << born << "0 " << boot << "\n";
  const auto servers = listed();
  ASSERT_EQ(servers.size(), 1u);
  EXPECT_EQ(servers[0].state, ServerState::kGone);
}

TEST_F(SshProviderTest, OneWhoseHostWasRestartedHasNotFailed) {
  options_.hosts = {{"a", 1}};
  const RequestOutcome begun = provider()->request(request_);
  ASSERT_EQ(begun.servers.size(), 1u);
  const fs::path server = folder_ / "a/mf/servers" / ("job." + begun.servers[0].id);
  pid_t pid = 0;
  std::string born;
  std::ifstream(server / "process") >> pid >> born;
  ::kill(-pid, SIGKILL);
  std::ofstream(server / "process") << pid << " " << born << " of-the-boot-before\n";
  const auto servers = listed();
  ASSERT_EQ(servers.size(), 1u);
  EXPECT_EQ(servers[0].state, ServerState::kGone);
  EXPECT_FALSE(servers[0].failed);
  request_.request_id = kOther;
  EXPECT_EQ(provider()->request(request_).servers.size(), 1u) << "the host is used again at once";
}

TEST_F(SshProviderTest, CopiesToOneHostAtATimeDoNotDisturbEachOther) {
  options_.hosts = {{"a", 1}};
  use_program(0);
  const auto install = [this] {
    const std::vector<Finding> findings = provider()->install();
    EXPECT_TRUE(findings[0].ok) << findings[0].text;
  };
  std::thread other(install);
  install();
  other.join();
}

TEST_F(SshProviderTest, WhatACopyThatBrokeOffHasLeftIsRemovedWhenItIsOld) {
  options_.hosts = {{"a", 1}};
  use_program(0);
  const fs::path mf = folder_ / "a/mf";
  fs::create_directories(mf / "programs/.copy-old/mayfly");
  for (const char* name : {"copy-old", "copy-under-way"}) {
    std::ofstream(mf / name) << "half";
  }
  for (const char* name : {"copy-old", "programs/.copy-old"}) {
    fs::last_write_time(mf / name, fs::file_time_type::clock::now() - std::chrono::hours(2));
  }
  EXPECT_EQ(provider()->install(), (std::vector<Finding>{{true, "a: has received the program"}}));
  EXPECT_FALSE(fs::exists(mf / "copy-old"));
  EXPECT_FALSE(fs::exists(mf / "programs/.copy-old"));
  EXPECT_TRUE(fs::exists(mf / "copy-under-way"));
}

TEST_F(SshProviderTest, AProgramThatRunsStaysHoweverManyCome) {
  options_.hosts = {{"a", 1}};
  use_program(0);
  const std::string running = options_.places.sha256;
  ASSERT_EQ(provider()->request(request_).servers.size(), 1u);
  for (int version = 1; version <= 5; ++version) {
    use_program(version);
    EXPECT_EQ(provider()->install(), (std::vector<Finding>{{true, "a: has received the program"}}));
  }
  EXPECT_TRUE(fs::exists(folder_ / "a/mf/programs" / running / "mayfly/mayfly"));
  const fs::directory_iterator programs(folder_ / "a/mf/programs");
  EXPECT_EQ(std::distance(begin(programs), end(programs)), 5) << "it and four more";
}

TEST(SshLook, AsksForToolsThatUnpackOnlyWhereAProgramIsUnpacked) {
  EXPECT_NE(ssh::look_script({"mf", "job", "5a", ""}).find(" tar "), std::string::npos);
  EXPECT_EQ(ssh::look_script({"mf", "job", "", "/opt/mayfly"}).find(" tar "), std::string::npos);
}

TEST_F(SshProviderTest, SaysWhatAHostLacks) {
  options_.places.program = "/nowhere/mayfly";
  std::ofstream(folder_ / "b/off") << "";
  const std::vector<Finding> findings = provider()->examine();
  ASSERT_EQ(findings.size(), 2u);
  EXPECT_EQ(findings[0], (Finding{false, "a: there is no program /nowhere/mayfly"}));
  EXPECT_EQ(findings[1], (Finding{false, "b: No route to host"}));
  fs::remove(folder_ / "b/off");
}

}  // namespace
}  // namespace mayfly::cloud_hooks
