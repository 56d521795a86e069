#include "elastic/core/view_log.hpp"

#include <gtest/gtest.h>

#include <algorithm>

#include "base/random.hpp"

namespace mayfly::elastic {
namespace {

View view_of(std::uint64_t id) {
  View view;
  view.id = ViewId{id};
  view.key = 99 * id;
  view.committed = Step{id * 10};
  view.members = {{MemberId{1}, "10.0.0.1:1", MicrobatchSet::range(0, 3), 0, 3},
                  {MemberId{2}, "10.0.0.2:1", MicrobatchSet::range(3, 5), 3, 5}};
  view.bases = {{ViewId{id - 1}, {MemberId{1}, MemberId{2}, MemberId{3}}}};
  return view;
}

const log_record::JobStarted kStarted{0xabcd, 8, {{"model", "resnet20"}, {"seed", "1"}}};

/// A log of these records.
Bytes log_of(const std::vector<LogRecord>& records) {
  ViewLog log;
  Bytes file;
  for (const LogRecord& record : records) {
    const Bytes bytes = log.add(record);
    file.insert(file.end(), bytes.begin(), bytes.end());
  }
  EXPECT_EQ(log.bytes(), file.size());
  return file;
}

Bytes example() {
  return log_of({kStarted, log_record::IncarnationStarted{Incarnation{1}},
                 log_record::ViewPublished{view_of(1)}, log_record::Paused{true},
                 log_record::Paused{false}, log_record::ViewPublished{view_of(2)},
                 log_record::IncarnationStarted{Incarnation{2}}});
}

TEST(ViewLog, RemembersTheJobTheLastViewAndTheLastIncarnation) {
  const Bytes file = example();
  const Result<LogContents> read = ViewLog::replay(file);
  ASSERT_TRUE(read.ok());
  EXPECT_EQ(read.value().job, kStarted.job);
  EXPECT_EQ(read.value().microbatches, 8u);
  EXPECT_EQ(read.value().fingerprint, kStarted.fingerprint);
  EXPECT_EQ(read.value().incarnation, Incarnation{2});
  EXPECT_EQ(read.value().view, view_of(2));
  EXPECT_FALSE(read.value().is_paused);
  EXPECT_FALSE(read.value().ended);
  EXPECT_EQ(read.value().good_bytes, file.size());
  EXPECT_EQ(read.value().dropped_bytes, 0u);
}

TEST(ViewLog, RemembersAPauseAndTheEnd) {
  const log_record::JobEnded ended{Outcome::kStopped, "operator"};
  const Result<LogContents> read =
      ViewLog::replay(log_of({kStarted, log_record::Paused{true}, ended}));
  ASSERT_TRUE(read.ok());
  EXPECT_TRUE(read.value().is_paused);
  EXPECT_EQ(read.value().ended, ended);
}

TEST(ViewLog, AnEmptyFileIsALogThatSaysNothing) {
  const Result<LogContents> read = ViewLog::replay({});
  ASSERT_TRUE(read.ok());
  EXPECT_EQ(read.value(), LogContents{});
}

TEST(ViewLog, EveryCutLeavesTheWholeRecordsBeforeIt) {
  const Bytes file = example();
  std::size_t last_good = 0;
  for (std::size_t size = 0; size <= file.size(); ++size) {
    const Result<LogContents> read = ViewLog::replay(ByteSpan(file).first(size));
    ASSERT_TRUE(read.ok()) << "cut at " << size;
    EXPECT_EQ(read.value().good_bytes + read.value().dropped_bytes, size);
    EXPECT_GE(read.value().good_bytes, last_good);
    last_good = read.value().good_bytes;
  }
  EXPECT_EQ(last_good, file.size());
}

/// The offsets at which the records of example() begin.
std::vector<std::size_t> record_places() {
  std::vector<std::size_t> places;
  const Bytes file = example();
  for (std::size_t size = kViewLogHeaderBytes; size < file.size(); ++size) {
    if (ViewLog::replay(ByteSpan(file).first(size)).value().good_bytes == size) {
      places.push_back(size);
    }
  }
  return places;
}

// A crash damages only the tail. Other damage would hide a decision: the job itself, a view, or an
// incarnation.
TEST(ViewLog, NoFlippedBitHidesMoreThanTheLastRecord) {
  const Bytes whole = example();
  const std::vector<std::size_t> places = record_places();
  ASSERT_EQ(places.size(), 7u);
  for (std::size_t bit = 0; bit < 8 * whole.size(); ++bit) {
    Bytes file = whole;
    file[bit / 8] ^= static_cast<std::byte>(1U << (bit % 8));
    const Result<LogContents> read = ViewLog::replay(file);
    const std::size_t byte = bit / 8;
    if (byte >= places.back()) {
      ASSERT_TRUE(read.ok()) << "bit " << bit;
      EXPECT_EQ(read.value().good_bytes, places.back()) << "bit " << bit;
    } else {
      ASSERT_FALSE(read.ok()) << "bit " << bit;
      EXPECT_EQ(read.error().code, Errc::kCorrupt);
    }
    if (byte >= places.front() && byte < places.back()) {
      const std::size_t damaged = *std::prev(std::upper_bound(places.begin(), places.end(), byte));
      EXPECT_NE(read.error().detail.find("at byte " + std::to_string(damaged) + " "),
                std::string::npos)
          << read.error().detail;
    }
  }
}

TEST(ViewLog, RecordsOfZerosBeforeIntactOnesAreRefused) {
  const Bytes whole = example();
  const std::vector<std::size_t> places = record_places();
  for (std::size_t i = 0; i + 1 < places.size(); ++i) {
    Bytes file = whole;
    std::fill(file.begin() + static_cast<std::ptrdiff_t>(places[i]),
              file.begin() + static_cast<std::ptrdiff_t>(places[i + 1]), std::byte{0});
    EXPECT_FALSE(ViewLog::replay(file).ok()) << "record " << i;
  }
}

// After a crash, a file system may have extended the file without its data.
TEST(ViewLog, ZerosBehindACutAreATornTail) {
  const Bytes whole = example();
  for (std::size_t size = kViewLogHeaderBytes; size < whole.size(); ++size) {
    Bytes file(whole.begin(), whole.begin() + static_cast<std::ptrdiff_t>(size));
    file.resize(whole.size() + 500);
    const Result<LogContents> read = ViewLog::replay(file);
    ASSERT_TRUE(read.ok()) << "zeros from " << size;
    EXPECT_GT(read.value().dropped_bytes, 0u);
  }
}

TEST(ViewLog, DamageUpToTheEndIsDroppedAndTheLogGoesOnBehindTheGoodPart) {
  constexpr std::uint64_t kSeed = 4;
  RandomStream random{CounterRandom(kSeed)};
  const Bytes whole = example();
  for (int round = 0; round < 2000; ++round) {
    Bytes file = whole;
    const std::size_t first = kViewLogHeaderBytes + random.below(file.size() - kViewLogHeaderBytes);
    for (std::size_t at = first; at < file.size(); ++at) {
      file[at] ^= static_cast<std::byte>(1 + random.below(255));
    }
    const Result<LogContents> read = ViewLog::replay(file);
    ASSERT_TRUE(read.ok()) << "seed " << kSeed << " round " << round;
    ASSERT_LE(read.value().good_bytes, first);
    ASSERT_EQ(read.value().good_bytes + read.value().dropped_bytes, file.size());
    file.resize(read.value().good_bytes);
    ASSERT_TRUE(std::equal(file.begin(), file.end(), whole.begin()));
    if (read.value().job == 0) {
      continue;
    }
    ViewLog log(file.size());
    const Bytes more = log.add(log_record::IncarnationStarted{Incarnation{9}});
    file.insert(file.end(), more.begin(), more.end());
    const Result<LogContents> again = ViewLog::replay(file);
    ASSERT_TRUE(again.ok());
    ASSERT_EQ(again.value().incarnation, Incarnation{9});
    ASSERT_EQ(again.value().dropped_bytes, 0u);
  }
}

TEST(ViewLog, ARecordInAnotherPlaceIsNotARecord) {
  const Bytes one = log_of({kStarted});
  const Bytes two = log_of({kStarted, log_record::IncarnationStarted{Incarnation{1}}});
  Bytes moved = two;  // with a copy of the second record at its end
  moved.insert(moved.end(), two.begin() + static_cast<std::ptrdiff_t>(one.size()), two.end());
  const Result<LogContents> read = ViewLog::replay(moved);
  ASSERT_TRUE(read.ok());
  EXPECT_EQ(read.value().good_bytes, two.size());
  EXPECT_EQ(read.value().dropped_bytes, two.size() - one.size());
}

TEST(ViewLog, AFileOfSomethingElseIsRefused) {
  const std::string text = "step,loss\n1,2.30\n";
  EXPECT_FALSE(ViewLog::replay(std::as_bytes(std::span(text))).ok());
  EXPECT_FALSE(ViewLog::replay(std::as_bytes(std::span(text)).first(3)).ok());
  Bytes other_version = example();
  other_version[8] ^= std::byte{1};
  EXPECT_FALSE(ViewLog::replay(other_version).ok());
}

TEST(ViewLog, IntactRecordsThatContradictEachOtherAreRefused) {
  using log_record::IncarnationStarted;
  using log_record::ViewPublished;
  EXPECT_FALSE(ViewLog::replay(log_of({ViewPublished{view_of(1)}})).ok()) << "no job";
  EXPECT_FALSE(ViewLog::replay(log_of({kStarted, kStarted})).ok()) << "two jobs";
  EXPECT_FALSE(
      ViewLog::replay(log_of({kStarted, ViewPublished{view_of(2)}, ViewPublished{view_of(2)}}))
          .ok())
      << "views grow";
  EXPECT_FALSE(ViewLog::replay(log_of({kStarted, IncarnationStarted{Incarnation{2}},
                                       IncarnationStarted{Incarnation{1}}}))
                   .ok())
      << "incarnations grow";
}

TEST(ViewLog, CompactingKeepsWhatMattersAndNothingElse) {
  std::vector<LogRecord> records = {kStarted, log_record::IncarnationStarted{Incarnation{1}}};
  for (std::uint64_t id = 1; id <= 1000; ++id) {
    records.emplace_back(log_record::ViewPublished{view_of(id)});
  }
  records.emplace_back(log_record::Paused{true});
  const Bytes file = log_of(records);
  LogContents before = ViewLog::replay(file).value();
  const Bytes compacted = ViewLog::compact(before);
  LogContents after = ViewLog::replay(compacted).value();
  EXPECT_LT(compacted.size() * 100, file.size());
  EXPECT_EQ(after.good_bytes, compacted.size());
  before.good_bytes = after.good_bytes;
  EXPECT_EQ(after, before);
  EXPECT_TRUE(ViewLog::compact(LogContents{}).empty());
}

TEST(ViewLog, CompactingKeepsHowTheJobEnded) {
  LogContents before = ViewLog::replay(log_of({kStarted, log_record::ViewPublished{view_of(3)},
                                               log_record::JobEnded{Outcome::kFailed, "drill"}}))
                           .value();
  const Bytes compacted = ViewLog::compact(before);
  const LogContents after = ViewLog::replay(compacted).value();
  before.good_bytes = compacted.size();
  ASSERT_TRUE(after.ended);
  EXPECT_EQ(after, before);
}

TEST(ViewLog, ALongJobsLogStaysBounded) {
  ViewLog log;
  std::size_t longest = 0;
  std::uint64_t compactions = 0;
  LogContents contents;
  contents.job = 1;
  (void)log.add(kStarted);
  for (std::uint64_t id = 1; id <= 200'000; ++id) {
    contents.view = view_of(id);
    (void)log.add(log_record::ViewPublished{*contents.view});
    longest = std::max(longest, log.bytes());
    if (log.wants_compaction()) {
      ++compactions;
      log.compacted(ViewLog::compact(contents).size());
    }
  }
  EXPECT_GT(compactions, 1u);
  EXPECT_LT(longest, std::size_t{2} << 20);
}

TEST(ViewLog, NamesAnotherJobOnlyBeforeTheFirstView) {
  const log_record::JobStarted other{kStarted.job + 1, kStarted.microbatches, {}};
  const log_record::IncarnationStarted incarnation{Incarnation{2}};
  const Result<LogContents> read = ViewLog::replay(log_of({kStarted, incarnation, other}));
  ASSERT_TRUE(read.ok()) << "a standby took a worker of another job for a member";
  EXPECT_EQ(read.value().job, other.job);
  EXPECT_EQ(read.value().incarnation, incarnation.incarnation);
  EXPECT_FALSE(ViewLog::replay(log_of({kStarted, kStarted})).ok());
  const log_record::ViewPublished view{view_of(1)};
  EXPECT_FALSE(ViewLog::replay(log_of({kStarted, view, other})).ok()) << "two jobs in one log";
  const log_record::JobEnded ended{Outcome::kStopped, "operator"};
  EXPECT_FALSE(ViewLog::replay(log_of({kStarted, ended, other})).ok());
}

}  // namespace
}  // namespace mayfly::elastic
