#include "engine/run/job_facts.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <fstream>

#include "engine/network/prepare_job.hpp"
#include "tests/unit/engine/temporary_folder.hpp"

namespace mayfly::engine {
namespace {

using ::testing::Contains;
using ::testing::HasSubstr;
using ::testing::Key;
using ::testing::Not;

JobConfig small_job() {
  JobConfig config;
  config.data = "procedural:64";
  config.global_batch = 16;
  config.microbatch = 4;
  config.epochs = 3;
  return config;
}

TEST(JobFacts, MakeTheSameJobAsTheData) {
  const std::unique_ptr<Job> worker = prepare_job(small_job()).value();
  JobConfig elsewhere = small_job();
  elsewhere.data = "/nowhere";
  EXPECT_FALSE(prepare_job(elsewhere).ok());
  const std::unique_ptr<Job> job = begin_job(elsewhere).value();
  const Result<JobFacts> facts = parse_facts(to_json(worker->facts));
  ASSERT_TRUE(facts.ok()) << facts.error().detail;
  ASSERT_TRUE(complete_job(*job, facts.value()).ok());
  EXPECT_EQ(job->fingerprint, worker->fingerprint);
  EXPECT_EQ(job->total_steps, 12u);
  EXPECT_EQ(job->epochs_at(4), 1);
}

TEST(JobFacts, OfImagesThatAreDecodedWhileTrainingNameTheDecoder) {
  const std::pair<std::string, std::string> expected{"libjpeg-turbo, by what it decodes", "aa"};
  const std::unique_ptr<Job> worker = prepare_job(small_job()).value();
  EXPECT_THAT(worker->fingerprint, Not(Contains(Key(expected.first))));
  JobFacts facts = worker->facts;
  facts.jpeg = expected.second;
  const std::unique_ptr<Job> job = begin_job(small_job()).value();
  ASSERT_TRUE(complete_job(*job, parse_facts(to_json(facts)).value()).ok());
  EXPECT_THAT(job->fingerprint, Contains(expected));
}

TEST(JobFacts, OfAJobThatEvaluatesNameItsTestSet) {
  JobConfig config = small_job();
  const std::unique_ptr<Job> worker = prepare_job(config).value();
  JobFacts facts = worker->facts;
  facts.test_digest = {1, 2};
  for (const bool evaluates : {true, false}) {
    config.evaluate = evaluates;
    const std::unique_ptr<Job> own = prepare_job(config).value();
    const std::unique_ptr<Job> other = begin_job(config).value();
    ASSERT_TRUE(complete_job(*other, parse_facts(to_json(facts)).value()).ok());
    EXPECT_EQ(other->fingerprint == own->fingerprint, !evaluates);
  }
}

TEST(JobFacts, OfAProgramWithoutATestSetMakeNoEvaluations) {
  JobConfig config;
  config.model = kProgramModel;
  config.eval_every_epochs = 1;
  JobFacts facts;
  facts.data = "Mine";
  facts.train_samples = 100;
  facts.program.steps = 50;
  facts.program.global_batch = 20;
  facts.program.microbatch = 10;
  for (const std::uint64_t test_samples : {0U, 7U}) {
    facts.program.test_samples = test_samples;
    const std::unique_ptr<Job> job = begin_job(config).value();
    const Result<void> completed = complete_job(*job, facts);
    ASSERT_TRUE(completed.ok()) << completed.error().detail;
    EXPECT_EQ(job->evaluate_every_steps, test_samples > 0 ? 5U : 0U);
    EXPECT_EQ(job->config.evaluate, test_samples > 0);
  }
}

TEST(JobFacts, SayThatWorkersWillHaveNothingToCompute) {
  JobFacts facts;
  facts.train_samples = 100;
  facts.data = "Mine";
  facts.program.steps = 5;
  facts.program.global_batch = 32;
  facts.program.microbatch = 16;
  JobConfig config;
  config.workers = 2;
  EXPECT_EQ(sentence_of(facts, config),
            "the program trains 5 steps of 32 samples in microbatches of 16, out of 100 samples of "
            "Mine");
  config.workers = 3;
  EXPECT_THAT(sentence_of(facts, config), HasSubstr("2 microbatches, so 1 of 3 workers"));
}

TEST(JobFacts, SayWhatIsDifferentInTheRunThatIsResumed) {
  JobFacts before;
  before.train_samples = 100;
  before.data = "Mine";
  before.program = {5, 32, 16, 0, {}, {{"torch", "1.13"}, {"initial values (seed)", "aa"}}};
  JobFacts now = before;
  now.program.steps = 50;
  now.program.equals = {{"torch", "1.13"}, {"initial values (seed)", "bb"}};
  EXPECT_EQ(changes_of(before, now), "");
  now.program.microbatch = 8;
  now.program.equals[0].second = "2.6";
  EXPECT_EQ(changes_of(before, now), "torch 2.6 (was 1.13), microbatch 8 (was 16)");

  const test_support::TemporaryFolder folder;
  std::ofstream(facts_path(folder / "")) << to_json(before) << "\n";
  JobConfig config;
  config.resume = folder / "";
  EXPECT_THAT(sentence_of(now, config),
              HasSubstr("; unlike in the run that it resumes: torch 2.6 (was 1.13), "));
  EXPECT_THAT(sentence_of(now, config), Not(HasSubstr("some samples are left out")));
  now.program.global_batch = 64;
  EXPECT_THAT(sentence_of(now, config),
              HasSubstr("microbatch 8 (was 16); some samples are left out or repeated in the pass "
                        "in which it continues"));
}

TEST(JobFacts, WithOneValueOfAChannelAreRefused) {
  JobConfig config = small_job();
  config.model = "resnet18";
  config.image_size = 32;
  config.microbatch = 1;
  const Result<std::unique_ptr<Job>> refused = prepare_job(config);
  ASSERT_FALSE(refused.ok());
  EXPECT_EQ(refused.error().code, Errc::kInvalidInput);
  EXPECT_THAT(refused.error().detail, HasSubstr("microbatch of at least 2"));
  config.microbatch = 2;
  EXPECT_TRUE(prepare_job(config).ok());
}

TEST(JobFacts, OfWhichNoModelCanBeAreRefused) {
  const std::unique_ptr<Job> worker = prepare_job(small_job()).value();
  const std::unique_ptr<Job> job = begin_job(small_job()).value();
  JobFacts facts = worker->facts;
  facts.image_size = 3;
  EXPECT_FALSE(complete_job(*job, facts).ok());
}

TEST(JobFacts, AreReadFromTheRunDirectory) {
  const test_support::TemporaryFolder folder;
  const std::string run = folder / "";
  EXPECT_EQ(read_facts(run).error().code, Errc::kNotFound);
  const std::unique_ptr<Job> job = prepare_job(small_job()).value();
  std::ofstream(facts_path(run)) << to_json(job->facts) << "\n";
  EXPECT_EQ(read_facts(run).value().data_digest, job->facts.data_digest);
  std::ofstream(facts_path(run)) << "{}";
  EXPECT_EQ(read_facts(run).error().code, Errc::kCorrupt);
  EXPECT_THAT(read_facts(run).error().detail,
              HasSubstr("facts.json: these are not the facts of a job"));
}

TEST(JobFacts, NoTextMakesTheReaderFail) {
  const std::unique_ptr<Job> job = prepare_job(small_job()).value();
  const std::string sound = to_json(job->facts);
  for (std::size_t i = 0; i < sound.size(); ++i) {
    EXPECT_FALSE(parse_facts(sound.substr(0, i)).ok());
    for (const char other : {'0', '"', '-', '}', '\xff'}) {
      std::string text = sound;
      text[i] = other;
      (void)parse_facts(text);
    }
  }
  for (const char* name : {"\"classes\":", "\"image_size\":", "\"train_samples\":"}) {
    for (const char* value : {"0", "-1", "1e30"}) {
      std::string text = sound;
      const std::size_t begin = text.find(name) + std::string(name).size();
      text.replace(begin, text.find(',', begin) - begin, value);
      EXPECT_FALSE(parse_facts(text).ok()) << text;
    }
  }
}

}  // namespace
}  // namespace mayfly::engine
