#include "engine/run/records.hpp"

#include <gtest/gtest.h>

#include "engine/run/program_failures.hpp"

namespace mayfly::engine {
namespace {

TEST(Records, SurviveTheWire) {
  StepRecord step;
  step.step = 7;
  step.view = 3;
  step.members = 4;
  step.samples = 128;
  step.epoch = 0.5;
  step.accuracy = 0.75;
  step.loss = 1.25;
  step.learning_rate = 0.1;
  step.images_per_second = 512;
  step.data_wait_ms = 1.5;
  step.sample_hash = "00ff";
  step.digest = "abc";
  step.loss_scale = 1024;
  step.skipped = true;
  step.attempts = 2;
  const Result<Record> back = decode_record(encode_record(step));
  ASSERT_TRUE(back.ok());
  const auto& copy = std::get<StepRecord>(back.value());
  EXPECT_EQ(copy.step, 7u);
  EXPECT_EQ(copy.members, 4u);
  EXPECT_EQ(copy.loss, 1.25);
  EXPECT_EQ(copy.epoch, 0.5);
  EXPECT_EQ(copy.accuracy, 0.75);
  EXPECT_EQ(copy.images_per_second, 512);
  EXPECT_EQ(copy.data_wait_ms, 1.5);
  EXPECT_EQ(copy.sample_hash, "00ff");
  EXPECT_EQ(copy.digest, "abc");
  EXPECT_EQ(copy.loss_scale, 1024);
  EXPECT_TRUE(copy.skipped);
  EXPECT_EQ(copy.attempts, 2u);

  const Result<Record> fatal = decode_record(encode_record(FatalRecord{"NaN in step 3"}));
  ASSERT_TRUE(fatal.ok());
  EXPECT_EQ(std::get<FatalRecord>(fatal.value()).reason, "NaN in step 3");
}

TEST(Records, NotesSurviveTheWire) {
  const Result<Record> note = decode_record(encode_record(NoteRecord{"reports_dropped", "7"}));
  ASSERT_TRUE(note.ok());
  EXPECT_EQ(std::get<NoteRecord>(note.value()).kind, "reports_dropped");
  EXPECT_EQ(std::get<NoteRecord>(note.value()).detail, "7");
  const Result<Record> own =
      decode_record(encode_record(NoteRecord{NoteRecord::kOfProgram, "a text", 3, "evaluation"}));
  ASSERT_TRUE(own.ok());
  EXPECT_EQ(std::get<NoteRecord>(own.value()).of, "evaluation");
}

TEST(Records, OfFailedProgramsSurviveTheWire) {
  const ProgramFailureRecord failure{3, "ZeroDivisionError", "microbatch 1 of step 2", {17, 4}};
  const Result<Record> copy = decode_record(encode_record(failure));
  ASSERT_TRUE(copy.ok());
  EXPECT_EQ(std::get<ProgramFailureRecord>(copy.value()).member, 3u);
  EXPECT_EQ(std::get<ProgramFailureRecord>(copy.value()).at, failure.at);
  EXPECT_EQ(std::get<ProgramFailureRecord>(copy.value()).samples, failure.samples);
}

TEST(ProgramFailures, OfTwoWorkersAtOnePlaceEndTheJob) {
  ProgramFailures failures;
  const std::string raised = "Traceback\n  File x\nValueError: bad image";
  EXPECT_EQ(failures.reason_to_end({1, raised, "microbatch 3 of step 7", {5, 9}}), std::nullopt);
  EXPECT_EQ(failures.reason_to_end({1, raised, "microbatch 3 of step 7", {5, 9}}), std::nullopt);
  EXPECT_EQ(failures.reason_to_end({2, raised, "microbatch 3 of step 8", {1, 2}}), std::nullopt);
  EXPECT_EQ(failures.reason_to_end({2, raised, "", {}}), std::nullopt);
  EXPECT_EQ(failures.reason_to_end({3, raised, "", {}}), std::nullopt);
  EXPECT_EQ(failures.reason_to_end({4, raised, "microbatch 3 of step 7", {5, 9}}),
            "the program failed in microbatch 3 of step 7 on worker 1 and on worker 4, so every "
            "worker would fail there; its samples are 5 and 9: ValueError: bad image");
}

TEST(ProgramFailures, NameTwelveSamples) {
  std::vector<std::uint64_t> samples{4};
  EXPECT_EQ(sample_words(samples), "4");
  samples.resize(12, 7);
  EXPECT_EQ(sample_words(samples), "4, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7 and 7");
  samples.resize(15, 7);
  EXPECT_EQ(sample_words(samples), "4, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7 and 3 more");
}

TEST(Records, OfFallingBackSurviveTheWire) {
  const Result<Record> back = decode_record(encode_record(FallBackRecord{240, 50, "too high"}));
  ASSERT_TRUE(back.ok());
  EXPECT_EQ(std::get<FallBackRecord>(back.value()).at, 240u);
  EXPECT_EQ(std::get<FallBackRecord>(back.value()).step, 50u);
  EXPECT_EQ(std::get<FallBackRecord>(back.value()).reason, "too high");
}

TEST(Records, OfShardsSurviveTheWire) {
  ShardRecord shard;
  shard.shard = 3;
  shard.leased_again = 5;
  shard.bytes_out = 2000;
  shard.staleness = {{0, 12}, {3, 1}};
  const Result<Record> back = decode_record(encode_record(shard));
  ASSERT_TRUE(back.ok());
  EXPECT_EQ(std::get<ShardRecord>(back.value()).shard, 3u);
  EXPECT_EQ(std::get<ShardRecord>(back.value()).leased_again, 5u);
  EXPECT_EQ(std::get<ShardRecord>(back.value()).bytes_out, 2000u);
  EXPECT_EQ(std::get<ShardRecord>(back.value()).staleness, shard.staleness);
}

TEST(Records, OfALogSurviveTheWireUpToTheirLimit) {
  const Result<Record> back = decode_record(encode_record(LogRecord{7, "one\ntwo\n"}));
  ASSERT_TRUE(back.ok());
  EXPECT_EQ(std::get<LogRecord>(back.value()).first, 7u);
  EXPECT_EQ(std::get<LogRecord>(back.value()).lines, "one\ntwo\n");
  const Result<Record> cut = decode_record(encode_record(LogRecord{0, std::string(9999, 'x')}));
  ASSERT_TRUE(cut.ok());
  EXPECT_EQ(std::get<LogRecord>(cut.value()).lines.size(), LogRecord::kBytesMax);
}

TEST(ReportedFailure, IsNewIfItsCauseDiffersOrTheOperationSucceededMeanwhile) {
  ReportedFailure failure;
  EXPECT_TRUE(failure.is_new("step 5 not saved: cannot write a/5: No space left on device"));
  EXPECT_FALSE(failure.is_new("step 6 not saved: cannot write a/6: No space left on device"));
  EXPECT_TRUE(failure.is_new("step 7 not saved: cannot create a/7: Permission denied"));
  EXPECT_FALSE(failure.is_new("step 8 not saved: cannot create a/8: Permission denied"));
  failure.is_over();
  EXPECT_TRUE(failure.is_new("step 9 not saved: cannot create a/9: Permission denied"));
}

TEST(Records, EveryPrefixIsRefused) {
  const Bytes whole = encode_record(CheckpointRecord{12, true, "runs/a/checkpoints/step-12"});
  for (std::size_t size = 0; size < whole.size(); ++size) {
    EXPECT_FALSE(decode_record(ByteSpan(whole).first(size)).ok()) << size;
  }
}

}  // namespace
}  // namespace mayfly::engine
