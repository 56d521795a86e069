// Checkpoints that workers send to a coordinator or request from it: which ones it accepts, sends
// and refuses, and that an interrupted transfer is resumed where it stopped. Whole jobs are tested
// in tests/integration/engine/results_home_test.py.

#include "engine/transfers/checkpoint_receiver.hpp"

#include <gmock/gmock.h>
#include <sys/socket.h>

#include <atomic>
#include <mutex>

#include "base/net/sockets.hpp"
#include "elastic/net/frame.hpp"
#include "engine/network/prepare_job.hpp"
#include "engine/reduction/model_layout.hpp"
#include "engine/run/checkpoint_store.hpp"
#include "engine/run/job_facts.hpp"
#include "engine/state/starting_state.hpp"
#include "engine/transfers/checkpoint_transfer.hpp"
#include "tests/unit/engine/temporary_folder.hpp"

namespace mayfly::engine {
namespace {

using ::testing::HasSubstr;

/// A receiver, and the worker's end of connections to it.
class Receiving : public ::testing::Test {
 protected:
  void SetUp() override {
    JobConfig config;
    config.data = "procedural:64";
    config.global_batch = 16;
    config.microbatch = 4;
    config.steps = 40;
    config.run_dir = folder / "run";
    job = prepare_job(config).value();
    open();
  }

  void open(StartingPoint start = {}, std::optional<Step> newest = {}) {
    receiver.emplace(*job, std::move(start), newest, "lr = 7\n",
                     CheckpointReceiver::Hooks{[this](const ReceivedCheckpoint& one) {
                                                 const std::lock_guard lock(mutex);
                                                 received.push_back(one);
                                               },
                                               [this](const std::string& why) {
                                                 const std::lock_guard lock(mutex);
                                                 refusals.push_back(why);
                                               },
                                               [this] {
                                                 return lost_at.load() > 0 || is_unheld_at_start
                                                            ? std::optional(Step{lost_at.load()})
                                                            : std::nullopt;
                                               },
                                               [this] {
                                                 return held_at.load() > 0
                                                            ? std::optional(Step{held_at.load()})
                                                            : std::nullopt;
                                               },
                                               {}});
  }

  nn::CheckpointFiles files(std::uint64_t step) const {
    const ReductionLayout layout = layout_of(job->model);
    nn::ModelState state = starting_state(*job, layout).value().state;
    state.committed = Step{step};
    return nn::encode_checkpoint(job->model, state, job->config.seed, job->fingerprint);
  }

  UniqueFd connect() {
    int ends[2] = {-1, -1};
    EXPECT_EQ(::socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0, ends), 0);
    receiver->take(UniqueFd(ends[1]), "host-b");
    UniqueFd own(ends[0]);
    EXPECT_TRUE(elastic::receive_message(own.get(), monotonic_now() + seconds(60)).ok());
    return own;
  }

  static TransferAnswer ask(int fd, const TransferRequest& request) {
    EXPECT_TRUE(send_frame(fd, encode(request)).ok());
    return decode_transfer_answer(receive_frame(fd).value()).value();
  }

  static TransferRequest offering(std::uint64_t step, const nn::CheckpointFiles& files) {
    TransferRequest request;
    request.offer = offer_of(Step{step}, files);
    return request;
  }

  static Bytes all_of(const TransferOffer& offer, const nn::CheckpointFiles& files) {
    Bytes all;
    for (const TransferOffer::File& file : offer.files) {
      const Bytes& content = files.at(file.name);
      all.insert(all.end(), content.begin(), content.end());
    }
    return all;
  }

  static Result<void> send(int fd, ByteSpan bytes) {
    return send_exactly(fd, bytes, monotonic_now() + seconds(60));
  }

  const mayfly::test_support::TemporaryFolder folder;
  std::unique_ptr<Job> job;
  std::mutex mutex;
  std::vector<ReceivedCheckpoint> received;
  std::vector<std::string> refusals;
  std::atomic<std::uint64_t> lost_at{0};
  std::atomic<std::uint64_t> held_at{0};
  std::atomic<bool> is_unheld_at_start{false};
  std::optional<CheckpointReceiver> receiver;
};

TEST_F(Receiving, WhatBreaksGoesOnWhereItWas) {
  const nn::CheckpointFiles own = files(20);
  const TransferRequest request = offering(20, own);
  const Bytes all = all_of(request.offer, own);
  const std::size_t sent = all.size() / 2;
  {
    const UniqueFd fd = connect();
    const TransferAnswer answer = ask(fd.get(), request);
    ASSERT_EQ(answer.verdict, TransferAnswer::Verdict::kTransfer);
    EXPECT_EQ(answer.first, 0U);
    ASSERT_TRUE(send(fd.get(), ByteSpan(all).first(sent)).ok());
  }
  const UniqueFd fd = connect();
  const TransferAnswer answer = ask(fd.get(), request);
  ASSERT_EQ(answer.verdict, TransferAnswer::Verdict::kTransfer);
  EXPECT_GT(answer.first, 0U);
  EXPECT_LE(answer.first, sent);
  ASSERT_TRUE(send(fd.get(), ByteSpan(all).subspan(answer.first)).ok());
  EXPECT_TRUE(decode_transfer_receipt(receive_frame(fd.get()).value()).value().is_safe);
  EXPECT_EQ(load_checkpoint(job->config.run_dir).value().files, own);

  const UniqueFd again = connect();  // another worker, or one on the same disk
  EXPECT_EQ(ask(again.get(), request).verdict, TransferAnswer::Verdict::kNothing);
  const std::lock_guard lock(mutex);
  ASSERT_EQ(received.size(), 2U);
  EXPECT_EQ(received[0].host, "host-b");
  EXPECT_EQ(received[0].bytes, all.size() - answer.first);
  EXPECT_EQ(received[1].bytes, 0U);
}

// A worker that was cut off sends its older checkpoint when it is connected again.
TEST_F(Receiving, AnOlderOneThatComesLateIsNotTakenForTheNewest) {
  const nn::CheckpointFiles newest = files(40);
  const TransferRequest request = offering(40, newest);
  {
    const UniqueFd fd = connect();
    ASSERT_EQ(ask(fd.get(), request).verdict, TransferAnswer::Verdict::kTransfer);
    ASSERT_TRUE(send(fd.get(), all_of(request.offer, newest)).ok());
    ASSERT_TRUE(decode_transfer_receipt(receive_frame(fd.get()).value()).value().is_safe);
  }
  EXPECT_EQ(ask(connect().get(), offering(30, files(30))).verdict,
            TransferAnswer::Verdict::kNothing);
  EXPECT_EQ(load_checkpoint(job->config.run_dir).value().files, newest);
  receiver.reset();
  ASSERT_EQ(received.size(), 1u);
  open({}, Step{40});  // as after a restart of the coordinator
  EXPECT_EQ(ask(connect().get(), offering(30, files(30))).verdict,
            TransferAnswer::Verdict::kNothing);
  receiver.reset();
  open({});  // as in a part that is resumed from an earlier step
  EXPECT_EQ(ask(connect().get(), offering(30, files(30))).verdict,
            TransferAnswer::Verdict::kTransfer);
}

TEST_F(Receiving, ExponentsThatNoSumCanHaveAreNotBegunWith) {
  const ReductionLayout layout = layout_of(job->model);
  nn::ModelState state = starting_state(*job, layout).value().state;
  state.committed = Step{5};
  for (const auto& [exponent, is_legal] : {std::pair(3, true), {1000, false}, {-1000, false}}) {
    state.exponents.assign(state.exponents.size(), exponent);
    const nn::CheckpointFiles made =
        nn::encode_checkpoint(job->model, state, job->config.seed, job->fingerprint);
    EXPECT_EQ(state_of_checkpoint(*job, layout, made, "it").ok(), is_legal) << exponent;
  }
}

TEST_F(Receiving, AnotherBatchOrSeedThanTheCheckpointsIsRemarked) {
  const ReductionLayout layout = layout_of(job->model);
  nn::ModelState state = starting_state(*job, layout).value().state;
  const auto remark_of = [&](const char* name, Step committed) {
    state.committed = committed;
    Fingerprint theirs = job->fingerprint;
    for (auto& field : theirs) {
      field.second = field.first == name ? "7" : field.second;
    }
    const nn::CheckpointFiles made =
        nn::encode_checkpoint(job->model, state, job->config.seed, theirs);
    return state_of_checkpoint(*job, layout, made, "it").value().remark;
  };
  EXPECT_NE(remark_of("global_batch", Step{5}).find("global_batch 7"), std::string::npos);
  EXPECT_NE(remark_of("seed", Step{5}).find("seed 7"), std::string::npos);
  EXPECT_NE(remark_of("data content", Step{5}).find("another data set:"), std::string::npos);
  EXPECT_EQ(remark_of("backend", Step{5}), "");
  EXPECT_EQ(remark_of("global_batch", Step{0}), "");  // no sample was used
}

// A coordinator that dies between saving and naming a checkpoint leaves this behind.
TEST_F(Receiving, OneThatIsThereButWasNotNamedTheLatestIsNamedWhenItIsOffered) {
  const std::string checkpoints = job->config.run_dir + "/checkpoints";
  const nn::CheckpointFiles newest = files(40);
  ASSERT_TRUE(save_checkpoint(checkpoints, newest, Step{40}, 3).ok());
  ASSERT_TRUE(save_checkpoint(checkpoints, files(20), Step{20}, 3).ok());
  EXPECT_EQ(ask(connect().get(), offering(40, newest)).verdict, TransferAnswer::Verdict::kNothing);
  EXPECT_EQ(load_checkpoint(job->config.run_dir).value().files, newest);
}

// A network may change a byte. The last weights of a job must not be lost for that reason.
TEST_F(Receiving, WhatIsNotWhatWasOfferedIsSentOnceMore) {
  const nn::CheckpointFiles own = files(20);
  const auto end_of = [&](const TransferRequest& offered, bool is_damaged) {
    Bytes bytes = all_of(offered.offer, own);
    bytes[bytes.size() / 3] ^= std::byte(is_damaged ? 1 : 0);
    const UniqueFd fd = connect();
    EXPECT_EQ(ask(fd.get(), offered).first, 0U);
    EXPECT_TRUE(send(fd.get(), bytes).ok());
    return receive_frame(fd.get());
  };
  EXPECT_EQ(end_of(offering(20, own), true).error().code, Errc::kPeerLost) << "no receipt";
  EXPECT_FALSE(load_checkpoint(job->config.run_dir).ok());
  EXPECT_TRUE(decode_transfer_receipt(end_of(offering(20, own), false).value()).value().is_safe);
  EXPECT_EQ(load_checkpoint(job->config.run_dir).value().files, own);
  EXPECT_FALSE(end_of(offering(30, own), true).ok());
  EXPECT_THAT(decode_transfer_receipt(end_of(offering(30, own), true).value()).value().text,
              HasSubstr("arrived damaged"));
}

TEST_F(Receiving, RefusesAnotherJobsCheckpoint) {
  const ReductionLayout layout = layout_of(job->model);
  nn::ModelState state = starting_state(*job, layout).value().state;
  state.committed = Step{20};
  Fingerprint other = job->fingerprint;
  other.front().second = "something else";
  const nn::CheckpointFiles foreign =
      nn::encode_checkpoint(job->model, state, job->config.seed, other);
  const TransferRequest request = offering(20, foreign);
  const UniqueFd fd = connect();
  (void)ask(fd.get(), request);
  ASSERT_TRUE(send(fd.get(), all_of(request.offer, foreign)).ok());
  const TransferReceipt receipt = decode_transfer_receipt(receive_frame(fd.get()).value()).value();
  EXPECT_FALSE(receipt.is_safe);
  EXPECT_THAT(receipt.text, HasSubstr("something else"));
  EXPECT_FALSE(load_checkpoint(job->config.run_dir).ok());
}

TEST_F(Receiving, RefusesAStepBeyondTheEnd) {
  const UniqueFd fd = connect();
  const TransferAnswer answer = ask(fd.get(), offering(41, files(41)));
  EXPECT_EQ(answer.verdict, TransferAnswer::Verdict::kRefused);
  EXPECT_EQ(answer.text, "it is of step 41, the job's last is 40");
}

TransferRequest question(std::uint64_t step, bool has_state, bool is_foreign, Digest digest = {}) {
  TransferRequest request;
  request.kind = TransferRequest::Kind::kQuestion;
  request.question = {Step{step}, digest, is_foreign, has_state};
  return request;
}

TEST_F(Receiving, GivesTheNewestCheckpointWhenNobodyHasTheState) {
  ASSERT_TRUE(save_checkpoint(job->config.run_dir + "/checkpoints", files(20), Step{20}, 3).ok());
  EXPECT_EQ(ask(connect().get(), question(0, false, false)).verdict,
            TransferAnswer::Verdict::kNothing)
      << "somebody has it";
  lost_at = 19;
  EXPECT_EQ(ask(connect().get(), question(0, false, false)).verdict,
            TransferAnswer::Verdict::kNothing)
      << "the checkpoint is of another part of the job";
  lost_at = 26;
  const UniqueFd fd = connect();
  TransferAnswer answer = ask(fd.get(), question(0, false, false));
  ASSERT_EQ(answer.verdict, TransferAnswer::Verdict::kTransfer);
  EXPECT_EQ(answer.offer.step, Step{20});
  IncomingCheckpoint incoming(answer.offer);
  ASSERT_TRUE(incoming.receive(fd.get()).ok());
  EXPECT_EQ(incoming.take().value(), files(20));
  EXPECT_EQ(ask(connect().get(), question(20, true, false)).verdict,
            TransferAnswer::Verdict::kNothing)
      << "the worker has as much";
  EXPECT_EQ(ask(connect().get(), question(21, false, false)).verdict,
            TransferAnswer::Verdict::kNothing)
      << "another coordinator has given it more";
}

// Sending may take minutes, in which other workers must not conclude that the coordinator is dead.
TEST_F(Receiving, HasTimeForOthersWhileAWorkerIsGivenTheState) {
  ASSERT_TRUE(save_checkpoint(job->config.run_dir + "/checkpoints", files(20), Step{20}, 3).ok());
  lost_at = 26;
  const UniqueFd first = connect();
  const TransferAnswer answer = ask(first.get(), question(0, false, false));
  ASSERT_EQ(answer.verdict, TransferAnswer::Verdict::kTransfer);
  TransferRequest request;
  request.kind = TransferRequest::Kind::kSettings;
  EXPECT_EQ(ask(connect().get(), request).text, "lr = 7\n");
  const UniqueFd second = connect();
  IncomingCheckpoint incoming(answer.offer);
  ASSERT_TRUE(incoming.receive(first.get()).ok());
  EXPECT_EQ(ask(second.get(), question(0, false, false)).offer, answer.offer);
}

TEST_F(Receiving, TellsTheSettings) {
  TransferRequest request;
  request.kind = TransferRequest::Kind::kSettings;
  EXPECT_EQ(ask(connect().get(), request).text, "lr = 7\n");
}

TEST_F(Receiving, TellsAMachineWhatItIs) {
  receiver.reset();
  CheckpointReceiver::Hooks hooks;
  hooks.on_settings = [](const std::string& machine) { return "ps_server = " + machine; };
  receiver.emplace(*job, StartingPoint{}, std::nullopt, "lr = 7\n", hooks);
  TransferRequest request;
  request.kind = TransferRequest::Kind::kSettings;
  request.machine = "true";
  EXPECT_EQ(ask(connect().get(), request).text, "lr = 7\nps_server = true");
}

TEST_F(Receiving, AsksForFactsUntilItsJobIsComplete) {
  receiver.reset();
  CheckpointReceiver::Hooks hooks;
  std::vector<std::string> refused;
  std::vector<JobFacts> taken;
  hooks.on_refused = [&](const std::string& why) { refused.push_back(why); };
  hooks.on_facts = [&](const JobFacts& facts) {
    taken.push_back(facts);
    return facts.image_size == 32 ? Result<void>() : Error{Errc::kInvalidInput, "a small image"};
  };
  receiver.emplace(*job, StartingPoint{}, std::nullopt, "lr = 7\n", hooks);
  TransferRequest settings;
  settings.kind = TransferRequest::Kind::kSettings;
  const auto is_asked = [&] {
    return ask(connect().get(), settings).verdict == TransferAnswer::Verdict::kTransfer;
  };
  EXPECT_TRUE(is_asked());
  TransferRequest facts;
  facts.kind = TransferRequest::Kind::kFacts;
  facts.facts = "nothing";
  EXPECT_EQ(ask(connect().get(), facts).verdict, TransferAnswer::Verdict::kRefused);
  JobFacts small = job->facts;
  small.image_size = 16;
  facts.facts = to_json(small);
  EXPECT_EQ(ask(connect().get(), facts).text, "a small image");
  EXPECT_TRUE(is_asked());
  UniqueFd early = connect();
  EXPECT_TRUE(send_frame(early.get(), encode(question(10, true, false))).ok());
  EXPECT_FALSE(receive_frame(early.get()).ok()) << "nobody can be a worker yet";
  facts.facts = to_json(job->facts);
  EXPECT_EQ(ask(connect().get(), facts).verdict, TransferAnswer::Verdict::kNothing);
  EXPECT_FALSE(is_asked());
  EXPECT_EQ(ask(connect().get(), facts).verdict, TransferAnswer::Verdict::kNothing);
  receiver.reset();
  EXPECT_EQ(taken.size(), 2u) << "those of a second worker are not looked at";
  EXPECT_EQ(refused.size(), 2u);
}

TEST_F(Receiving, TakesTheFactsOfAProgramWithManyTensors) {
  receiver.reset();
  JobFacts told;
  told.train_samples = 8;
  told.program.steps = 1;
  told.program.global_batch = 4;
  told.program.microbatch = 2;
  for (int i = 0; i < 10'000; ++i) {
    told.program.tensors.push_back("features.denseblock4.layer.norm.weight" + std::to_string(i));
  }
  CheckpointReceiver::Hooks hooks;
  std::vector<JobFacts> taken;
  hooks.on_refused = [&](const std::string& why) { FAIL() << why; };
  hooks.on_facts = [&](const JobFacts& facts) {
    taken.push_back(facts);
    return Result<void>();
  };
  receiver.emplace(*job, StartingPoint{}, std::nullopt, "lr = 7\n", hooks);
  TransferRequest request;
  request.kind = TransferRequest::Kind::kFacts;
  request.facts = to_json(told);
  EXPECT_EQ(ask(connect().get(), request).verdict, TransferAnswer::Verdict::kNothing);
  receiver.reset();
  ASSERT_EQ(taken.size(), 1u);
  EXPECT_EQ(taken[0].program, told.program);
}

TEST_F(Receiving, GivesWhatTheJobIsResumedFromToWhoHasNothing) {
  receiver.reset();
  const std::string start = folder / "other/checkpoints";
  ASSERT_TRUE(save_checkpoint(start, files(0), Step{0}, 3).ok());
  job->config.resume = folder_of_checkpoint(start, Step{0});
  open({0, to_string(Digest{3, 4})});
  EXPECT_EQ(ask(connect().get(), question(0, false, false)).verdict,
            TransferAnswer::Verdict::kNothing)
      << "somebody has the state";
  is_unheld_at_start = true;
  EXPECT_EQ(ask(connect().get(), question(0, false, false)).verdict,
            TransferAnswer::Verdict::kTransfer);
  EXPECT_EQ(ask(connect().get(), question(0, true, false)).verdict,
            TransferAnswer::Verdict::kNothing)
      << "it has that, too";
}

// The run was resumed from an early step before, and now from a later step of its first part.
TEST_F(Receiving, GivesNothingOlderThanWhatTheJobIsResumedFrom) {
  receiver.reset();
  const std::string start = folder / "other/checkpoints";
  ASSERT_TRUE(save_checkpoint(start, files(30), Step{30}, 3).ok());
  ASSERT_TRUE(save_checkpoint(job->config.run_dir + "/checkpoints", files(20), Step{20}, 3).ok());
  job->config.resume = folder_of_checkpoint(start, Step{30});
  open({30, to_string(Digest{3, 4})});
  lost_at = 30;
  const TransferAnswer answer = ask(connect().get(), question(0, false, false));
  ASSERT_EQ(answer.verdict, TransferAnswer::Verdict::kTransfer);
  EXPECT_EQ(answer.offer.step, Step{30});
}

/// A parameter server's request for its state.
TransferRequest server_question(std::uint64_t step, bool has_state, Digest digest = {}) {
  TransferRequest request = question(step, has_state, false, digest);
  request.question.needs_state = true;
  return request;
}

// Parameter servers get this checkpoint even if there is a newer one or a member has a state.
TEST_F(Receiving, GivesEveryParameterServerWhatTheJobIsResumedFrom) {
  receiver.reset();
  const std::string start = folder / "other/checkpoints";
  ASSERT_TRUE(save_checkpoint(start, files(10), Step{10}, 3).ok());
  ASSERT_TRUE(save_checkpoint(job->config.run_dir + "/checkpoints", files(20), Step{20}, 3).ok());
  job->config.sync = "bsp";
  job->config.resume = folder_of_checkpoint(start, Step{10});
  open({10, to_string(Digest{3, 4})});
  const auto step_given = [this](const TransferRequest& request) {
    const TransferAnswer answer = ask(connect().get(), request);
    return answer.verdict == TransferAnswer::Verdict::kTransfer ? value(answer.offer.step) : 0;
  };
  EXPECT_EQ(step_given(server_question(0, false)), 10U);
  EXPECT_EQ(step_given(server_question(10, true, Digest{3, 4})), 0U) << "it has that";
  EXPECT_EQ(step_given(server_question(10, true, Digest{5, 6})), 10U) << "it has another one";
  EXPECT_EQ(step_given(question(0, false, false)), 0U) << "a worker gets it from the servers";
  held_at = 25;
  EXPECT_EQ(step_given(server_question(0, false)), 10U);
  EXPECT_EQ(step_given(question(20, true, false)), 10U) << "a worker counts from there, too";
}

TEST_F(Receiving, AParameterServerDoesNotBeginWithoutTheCheckpointOfItsJob) {
  receiver.reset();
  job->config.sync = "bsp";
  job->config.resume = folder / "gone";
  open({10, to_string(Digest{3, 4})});
  EXPECT_THAT(ask(connect().get(), server_question(0, false)).text,
              HasSubstr("gone, cannot be read any more"));
  EXPECT_EQ(ask(connect().get(), question(0, false, false)).verdict,
            TransferAnswer::Verdict::kNothing);
  held_at = 25;
  EXPECT_EQ(ask(connect().get(), server_question(0, false)).verdict,
            TransferAnswer::Verdict::kNothing)
      << "the job has its servers";
}

TEST_F(Receiving, TellsNoParameterServerAnythingBeforeItIsInCharge) {
  receiver.reset();
  CheckpointReceiver::Hooks hooks;
  hooks.is_in_charge = [] { return false; };
  receiver.emplace(*job, StartingPoint{}, std::nullopt, "", hooks);
  UniqueFd fd = connect();
  EXPECT_TRUE(send_frame(fd.get(), encode(server_question(0, false))).ok());
  EXPECT_FALSE(receive_frame(fd.get()).ok());
}

TEST_F(Receiving, RefusesAWorkerThatWouldBringAnotherJobsState) {
  EXPECT_EQ(ask(connect().get(), question(10, true, false)).verdict,
            TransferAnswer::Verdict::kNothing);
  EXPECT_THAT(ask(connect().get(), question(10, true, true)).text,
              HasSubstr("of a job with other settings"));
  EXPECT_THAT(ask(connect().get(), question(41, true, false)).text,
              HasSubstr("is of step 41, the job's last is 40"));
  receiver.reset();
  open({10, to_string(Digest{3, 4})});
  EXPECT_EQ(ask(connect().get(), question(10, true, true, Digest{3, 4})).verdict,
            TransferAnswer::Verdict::kNothing)
      << "it is what the job was resumed from";
}

TEST_F(Receiving, RefusesAWorkerThatIsAheadOfThoseThatHoldTheState) {
  held_at = 20;
  EXPECT_EQ(ask(connect().get(), question(20, true, false)).verdict,
            TransferAnswer::Verdict::kNothing);
  EXPECT_THAT(ask(connect().get(), question(21, true, false)).text,
              HasSubstr("is of step 21, the job is at step 20 only"));
  receiver.reset();
  open({}, Step{24});
  EXPECT_EQ(ask(connect().get(), question(24, true, false)).verdict,
            TransferAnswer::Verdict::kNothing)
      << "of this job, which the last report of its members did not mention yet";
}

}  // namespace
}  // namespace mayfly::engine
