#include "elastic/core/term.hpp"

#include <gtest/gtest.h>

#include "tests/unit/elastic/membership_fixture.hpp"

namespace mayfly::elastic {
namespace {

using Texts = std::vector<std::pair<std::string, std::string>>;

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

TEST(Term, OfAStandbyPutsTheJobOfItsFirstMemberOnRecord) {
  Term term(coordinator_named(9));
  Outbox outbox;
  term.admit_again(hello_of(8, 1, 7), outbox);
  term.admit_again(hello_of(8, 1, 7), outbox);
  term.begin(Incarnation{2}, outbox);
  ViewLog log;
  Bytes file;
  for (const LogRecord& record : logged(outbox)) {
    const Bytes bytes = log.add(record);
    file.insert(file.end(), bytes.begin(), bytes.end());
  }
  const Result<LogContents> found = ViewLog::replay(file);
  ASSERT_TRUE(found.ok()) << found.error().detail;
  EXPECT_EQ(found.value().job, 8u);
  EXPECT_EQ(found.value().incarnation, Incarnation{2});
}

TEST(Term, NamesTheFirstDifferenceOfAWorker) {
  Term term(coordinator_named(7, {{"model", "resnet20"}, {"isa", "avx2"}}));
  Hello hello = hello_of(0, 0, 0);
  EXPECT_EQ(term.difference(hello), "model: the job has resnet20, this worker has nothing");
  hello.fingerprint = {{"model", "resnet20"}, {"isa", "avx512"}};
  EXPECT_EQ(term.difference(hello), "isa: the job has avx2, this worker has avx512");
  hello.fingerprint = {{"isa", "avx2"}, {"model", "resnet20"}};
  EXPECT_FALSE(term.difference(hello)) << "the order does not matter";
  hello.fingerprint.emplace_back("seed", "1");
  EXPECT_EQ(term.difference(hello), "seed: the job has nothing, this worker has 1");
}

TEST(Term, ARestartedCoordinatorKeepsTheFingerprintOfItsLog) {
  LogContents contents;
  contents.job = 5;
  contents.microbatches = CoordinatorOptions{}.microbatches;
  contents.incarnation = Incarnation{1};
  contents.fingerprint = {{"seed", "1"}};
  Term term(coordinator_named(7, {{"seed", "2"}}));
  term.restore(contents);
  Hello hello = hello_of(5, 1, 5);
  hello.fingerprint = {{"seed", "2"}};
  EXPECT_EQ(term.difference(hello), "seed: the job has 1, this worker has 2");
}

}  // namespace
}  // namespace mayfly::elastic
