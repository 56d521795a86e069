#include "cloud_hooks/exec/exec_provider.hpp"

#include <gtest/gtest.h>
#include <signal.h>

#include "base/process/program.hpp"

namespace mayfly::cloud_hooks {
namespace {

const std::string kId = "6f1f3c1e-0000-4000-8000-000000000001";

/// A provider whose program is this shell script.
std::unique_ptr<Provider> script(const std::string& text, Duration timeout = seconds(20)) {
  ::signal(SIGPIPE, SIG_IGN);  // as the program's main does
  ExecProviderOptions options;
  options.argv = {"/bin/sh", "-c", text};
  options.job = "job";
  options.timeout = timeout;
  return make_exec_provider(std::move(options));
}

ServerRequest request_for(std::uint32_t count = 1) {
  ServerRequest request;
  request.request_id = kId;
  request.count = count;
  request.offer = {"gpu", "here", Market::kSpot};
  request.startup_text = "#!/bin/sh\necho 'quoted \"text\"'\n";
  request.lifetime_max = seconds(3600);
  return request;
}

ProviderErrorKind kind_of(const std::string& text, Duration timeout = seconds(20)) {
  const RequestOutcome outcome = script(text, timeout)->request(request_for());
  EXPECT_TRUE(outcome.error) << text;
  return outcome.error ? outcome.error->kind : ProviderErrorKind::kQuota;
}

TEST(ExecProvider, HandsTheWholeRequestOverAndTakesServersBack) {
  const auto provider = script(R"(
    read line
    for part in '"op":"request"' '"job":"job"' '"count":1' '"machine_type":"gpu"' '"zone":"here"' \
        '"market":"spot"' '"lifetime_max_s":3600' '"version":1' )" +
                               kId + R"(; do
      case "$line" in *"$part"*) ;; *) echo "missing $part" >&2; exit 78;; esac
    done
    echo '{"servers":[{"id":"a-1","state":"starting","price_per_hour":0.25,"uptime_s":1.5}]}')");
  const RequestOutcome outcome = provider->request(request_for());
  ASSERT_FALSE(outcome.error) << outcome.error->detail;
  ASSERT_EQ(outcome.servers.size(), 1u);
  EXPECT_EQ(outcome.servers[0].id, "a-1");
  EXPECT_EQ(outcome.servers[0].state, ServerState::kStarting);
  EXPECT_EQ(outcome.servers[0].request_id, kId);
  EXPECT_EQ(outcome.servers[0].price_per_hour, 0.25);
  EXPECT_EQ(outcome.servers[0].uptime, milliseconds(1500));
}

TEST(ExecProvider, AnErrorInTheAnswerIsPassedOn) {
  const RequestOutcome outcome =
      script(R"(echo '{"error":{"kind":"capacity","detail":"sold out","zones_available":["b"],
             "retry_after_s":30}}'; exit 1)")
          ->request(request_for());
  ASSERT_TRUE(outcome.error);
  EXPECT_EQ(outcome.error->kind, ProviderErrorKind::kCapacity);
  EXPECT_EQ(outcome.error->detail, "sold out");
  EXPECT_EQ(outcome.error->zones_available, std::vector<std::string>{"b"});
  EXPECT_EQ(outcome.error->retry_after, seconds(30));
}

TEST(ExecProvider, SilenceGarbageAndFailuresAreAllOneOfTheFiveKinds) {
  EXPECT_EQ(kind_of("sleep 100", milliseconds(50)), ProviderErrorKind::kRate);
  EXPECT_EQ(kind_of("sleep 100 & sleep 100", milliseconds(50)), ProviderErrorKind::kRate);
  EXPECT_EQ(kind_of("echo oops"), ProviderErrorKind::kRate);
  EXPECT_EQ(kind_of("true"), ProviderErrorKind::kRate);
  EXPECT_EQ(kind_of("kill -9 $$"), ProviderErrorKind::kRate);
  EXPECT_EQ(kind_of("exit 3"), ProviderErrorKind::kRate);
  EXPECT_EQ(kind_of("exit 69"), ProviderErrorKind::kCapacity);
  EXPECT_EQ(kind_of("exit 75"), ProviderErrorKind::kRate);
  EXPECT_EQ(kind_of("exit 77"), ProviderErrorKind::kAuth);
  EXPECT_EQ(kind_of("exit 78"), ProviderErrorKind::kConfig);
  EXPECT_EQ(kind_of("/no/such/program"), ProviderErrorKind::kConfig);
  EXPECT_EQ(kind_of("yes '{' | head -c 3000000"), ProviderErrorKind::kRate);
  EXPECT_EQ(kind_of(R"(echo '{"servers":[{"id":"x","state":"weird"}]}')"),
            ProviderErrorKind::kRate);
  EXPECT_EQ(kind_of(R"(echo '{"servers":[{"state":"running"}]}')"), ProviderErrorKind::kRate);
  EXPECT_EQ(kind_of(R"(echo '{"error":{"kind":"bad luck"}}')"), ProviderErrorKind::kRate);
  EXPECT_EQ(kind_of(R"(echo '[1]')"), ProviderErrorKind::kRate);
}

TEST(ExecProvider, ItsLastWordsAreInTheErrorWithoutControlCharacters) {
  const auto outcome =
      script("printf 'first\\nsecond \\033[31mred\\n' >&2; exit 3")->request(request_for());
  ASSERT_TRUE(outcome.error);
  EXPECT_NE(outcome.error->detail.find("exit code 3: second  [31mred"), std::string::npos)
      << outcome.error->detail;
}

TEST(ExecProvider, MoreServersThanAskedForIsAnError) {
  const auto outcome = script(R"(echo '{"servers":[{"id":"a","state":"running"},
                                                   {"id":"b","state":"running"}]}')")
                           ->request(request_for());
  EXPECT_EQ(outcome.servers.size(), 2u);  // both exist, so both are reported
  ASSERT_TRUE(outcome.error);
  EXPECT_EQ(outcome.error->kind, ProviderErrorKind::kConfig);
}

TEST(ExecProvider, ListsReleasesAndExamines) {
  const auto provider = script(R"(read line; case "$line" in
    *'"op":"list"'*) echo '{"servers":[{"id":"a","state":"running","request_id":"r"}]}';;
    *'"op":"release"'*'"server":"a"'*) echo '{}';;
    *'"op":"doctor"'*) echo '{"findings":[{"ok":false,"text":"no login"}]}';;
    *'"op":"status"'*) echo '{"servers":[]}';;
    esac)");
  const auto servers = provider->list().value();
  ASSERT_EQ(servers.size(), 1u);
  EXPECT_EQ(servers[0].request_id, "r");
  EXPECT_FALSE(provider->release("a"));
  EXPECT_FALSE(provider->status("b").value().alive());
  EXPECT_EQ(provider->examine(), (std::vector<Finding>{{false, "no login"}}));
}

TEST(ExecProvider, AListMaySayHowManyServersAreWantedBack) {
  const auto provider = script(R"(echo '{"servers":[{"id":"a","state":"running"}],"give_up":1}')");
  EXPECT_EQ(provider->wanted_back(), 0u) << "before the first list";
  ASSERT_TRUE(provider->list().ok());
  EXPECT_EQ(provider->wanted_back(), 1u);
  for (const char* bad : {"-1", "1.5", "20000", "true", "[]"}) {
    EXPECT_FALSE(exec::parse_answer(std::string(R"({"give_up":)") + bad + "}").ok()) << bad;
  }
}

TEST(ExecProvider, AMissingProgramIsAConfigurationError) {
  ExecProviderOptions options;
  options.argv = {"/no/such/program"};
  const RequestOutcome outcome = make_exec_provider(options)->request(request_for());
  ASSERT_TRUE(outcome.error);
  EXPECT_EQ(outcome.error->kind, ProviderErrorKind::kConfig);
}

TEST(ProgramRunner, FeedsLargeInputToAProgramThatAnswersMeanwhile) {
  ::signal(SIGPIPE, SIG_IGN);
  ProgramCall call;
  call.argv = {"cat"};
  call.input = std::string(900'000, 'x');
  const Result<ProgramResult> result = run_program(call);
  ASSERT_TRUE(result.ok());
  EXPECT_TRUE(result.value().succeeded());
  EXPECT_EQ(result.value().output, call.input);
}

TEST(ProgramRunner, AProgramThatDoesNotReadIsNotWaitedFor) {
  ::signal(SIGPIPE, SIG_IGN);
  ProgramCall call;
  call.argv = {"true"};
  call.input = std::string(900'000, 'x');
  ASSERT_TRUE(run_program(call).ok());
}

TEST(ProgramRunner, WhatIsCalledOffIsKilledAlsoWhenItHasClosedItsOutput) {
  for (const char* words : {"sleep 600", "exec >&- 2>&-; sleep 600"}) {
    ProgramCall call;
    call.argv = {"sh", "-c", words};
    call.timeout = seconds(300);
    call.is_called_off = [begun = monotonic_now()] {
      return monotonic_now() - begun > milliseconds(50);
    };
    const Result<ProgramResult> result = run_program(call);
    ASSERT_TRUE(result.ok());
    EXPECT_EQ(result.value().end, ProgramResult::End::kCalledOff);
    EXPECT_EQ(result.value().summary(), "called off");
  }
}

}  // namespace
}  // namespace mayfly::cloud_hooks
