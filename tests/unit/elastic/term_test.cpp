#include "elastic/core/term.hpp"

#include <gtest/gtest.h>

#include "tests/unit/elastic/membership_fixture.hpp"

namespace mayfly::elastic {
namespace {

using Texts = JobFingerprint::Texts;

CoordinatorOptions coordinator_named(std::uint64_t identity, Texts fingerprint = {}) {
  CoordinatorOptions options;
  options.identity = identity;
  options.fingerprint = std::move(fingerprint);
  return options;
}

Hello hello_of(std::uint64_t job, std::uint64_t incarnation, std::uint64_t author) {
  Hello hello;
  hello.job = job;
  hello.incarnation = Incarnation{incarnation};
  hello.author = author;
  return hello;
}

std::vector<LogRecord> logged(Outbox& outbox) {
  std::vector<LogRecord> records;
  for (const CoordinatorEffect& effect : outbox.take()) {
    if (const auto* append = std::get_if<coordinator_effect::Append>(&effect)) {
      records.push_back(append->record);
    }
  }
  return records;
}

TEST(Term, NamesTheJobAndItsIncarnationBeforeAnythingElse) {
  Term term(coordinator_named(7));
  Outbox outbox;
  term.start(outbox);
  EXPECT_EQ(term.job(), 7u);
  EXPECT_EQ(term.incarnation(), Incarnation{1});
  const auto records = logged(outbox);
  ASSERT_EQ(records.size(), 2u);
  EXPECT_TRUE(std::holds_alternative<log_record::JobStarted>(records[0]));
  EXPECT_TRUE(std::holds_alternative<log_record::IncarnationStarted>(records[1]));
}

TEST(Term, ContinuesTheJobOfALogUnderAHigherIncarnation) {
  LogContents contents;
  contents.job = 5;
  contents.microbatches = CoordinatorOptions{}.microbatches;
  contents.incarnation = Incarnation{3};
  Term term(coordinator_named(7));
  term.restore(contents);
  Outbox outbox;
  term.start(outbox);
  EXPECT_EQ(term.job(), 5u);
  EXPECT_EQ(term.incarnation(), Incarnation{4});
  EXPECT_EQ(logged(outbox).size(), 1u) << "the job is on record already";
  EXPECT_DEATH(term.begin(Incarnation{4}, outbox), "incarnations only grow");
}

TEST(Term, NeverHandsOutAnIdTwice) {
  Term term(coordinator_named(7));
  Outbox outbox;
  term.start(outbox);
  const MemberId first = term.new_member_id();
  Hello returned = hello_of(7, 1, 7);
  returned.member = next(next(first));
  term.admit_again(returned, outbox);
  EXPECT_EQ(term.new_member_id(), next(returned.member));
  term.begin(Incarnation{2}, outbox);
  EXPECT_GT(term.new_member_id(), next(returned.member));
  const ViewId id = term.view_id_after(view_with(value(ViewId{1}), 0, {k1}));
  EXPECT_EQ(incarnation_of(id), Incarnation{2});
  EXPECT_EQ(term.view_id_after(view_with(value(id), 0, {k1})), next(id));
}

TEST(Term, KnowsTheMembersOfAnotherCoordinator) {
  Term term(coordinator_named(7));
  Outbox outbox;
  term.start(outbox);
  EXPECT_FALSE(term.obeys_another(hello_of(7, 1, 7)));
  EXPECT_TRUE(term.obeys_another(hello_of(7, 1, 8))) << "of the same number";
  EXPECT_TRUE(term.obeys_another(hello_of(7, 2, 7)));
  EXPECT_TRUE(term.is_ours(Incarnation{1}, 7));
  EXPECT_FALSE(term.is_ours(Incarnation{1}, 8));
  EXPECT_FALSE(term.is_ours(Incarnation{0}, 7));
  EXPECT_TRUE(term.is_of_another_job(hello_of(8, 1, 7)));
  EXPECT_DEATH(term.admit_again(hello_of(8, 1, 7), outbox), "members do not change jobs");
  EXPECT_FALSE(Term(coordinator_named(9)).is_of_another_job(hello_of(8, 1, 7)))
      << "a standby takes the first one that it hears of";
}

TEST(Term, LogsWhatTheFirstWorkerSettles) {
  Term term(coordinator_named(7, {{"model", "resnet20"}, {"isa", ""}}));
  Outbox outbox;
  term.start(outbox);
  (void)outbox.take();
  Hello hello = hello_of(0, 0, 0);
  hello.fingerprint = {{"model", "resnet20"}, {"isa", "avx2"}};
  term.admit(hello, outbox);
  EXPECT_EQ(logged(outbox).size(), 1u);
  term.admit(hello, outbox);
  EXPECT_TRUE(logged(outbox).empty()) << "it is no news";
  hello.fingerprint[1].second = "avx512";
  EXPECT_TRUE(term.difference(hello));
  term.forget_workers();
  EXPECT_FALSE(term.difference(hello)) << "the first worker is gone";
}

TEST(JobFingerprint, AnOpenTextBindsFromTheFirstWordOn) {
  JobFingerprint job(Texts{{"isa", ""}});
  EXPECT_FALSE(job.difference(Texts{{"isa", "avx2"}}));
  EXPECT_TRUE(job.difference(Texts{}));
  EXPECT_TRUE(job.difference(Texts{{"isa", ""}, {"model", "x"}}));
  job.settle(Texts{{"isa", "avx2"}});
  EXPECT_EQ(job.difference(Texts{{"isa", "avx512"}}),
            "isa: the job has avx2, this worker has avx512");
  EXPECT_FALSE(job.difference(Texts{{"isa", ""}})) << "it has nothing to say";
}

}  // namespace
}  // namespace mayfly::elastic
