#include "elastic/core/messages.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <limits>
#include <set>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "base/random.hpp"

namespace mayfly::elastic {
namespace {

Bytes bytes_of(std::string_view text) {
  const auto raw = std::as_bytes(std::span(text));
  return {raw.begin(), raw.end()};
}

View example_view() {
  View view{ViewId{7}, 0xfeedULL, Step{41}, Rank{1}, {}, {}};
  view.members.push_back({MemberId{1}, "10.0.0.1:4000", MicrobatchSet::range(0, 70), 0, 70});
  view.members.push_back({MemberId{4}, "", MicrobatchSet::range(70, 30), 70, 30});
  view.members.push_back({MemberId{5}, "10.0.0.5:4000", {}, 0, 0, ViewId{6}});
  return view;
}

/// One message of every kind, every optional field present in at least one.
std::vector<Message> examples() {
  return {
      Challenge{bytes_of("nonce")},
      Hello{kProtocolVersion,
            Role::kSentinel,
            bytes_of("n"),
            bytes_of("p"),
            MemberId{3},
            "host",
            12,
            "10.0.0.1:1",
            "server-1",
            {{"model", "resnet20"}, {"seed", "1"}},
            77,
            Incarnation{3},
            6,
            ViewId{8},
            true,
            16},
      Welcome{MemberId{9}, Incarnation{4}, 5, 77, true, true, true},
      Refused{"wrong token", Refusal::kElsewhere},
      Ready{Step{10}, 2'200'000},
      Stopped{ViewId{2}, Step{11}, MicrobatchSet::range(3, 90), true, true, MemberId{5}, "reset",
              Step{12}},
      Stopped{},
      Formed{ViewId{3}},
      Synced{ViewId{4}},
      Progress{ViewId{5}, Step{12}, 2.5F, 3, {}, {12'345, 678}},
      Heartbeat{},
      Heartbeat{std::nullopt, true},
      Heartbeat{WorkerPosition{Activity::kCompute, Step{12}, 5, 2, 1000}},
      LeaveRequest{"SIGTERM"},
      Report{bytes_of("record"), 1500},
      StoreSet{ViewId{6}, "key", bytes_of("value")},
      StoreGet{ViewId{6}, "key"},
      WorkerDied{"killed", true, Incarnation{2}},
      Stop{ViewId{6}, true, true},
      NewView{example_view()},
      NewViewDelta{make_delta(View{}, example_view())},
      ViewWanted{ViewId{4}},
      StoreValue{ViewId{6}, "key", bytes_of("value")},
      Dismiss{DismissReason::kEvicted, true, "silent"},
      Command{"drain", "3"},
      CommandReply{true, "{}"},
      CaughtUp{ViewId{7}, Step{13}},
      Resume{},
      Resume{
          Incarnation{4}, ResumePhase::kStopped, Step{9}, 2'200'000, true, true, example_view(),
          Stopped{
              ViewId{7}, Step{9}, MicrobatchSet::range(1, 2), false, true, {}, "", Step{9}, false},
          MicrobatchSet::range(2, 1), 1.5F, true, "notice"},
      Left{Incarnation{4}},
      ReportsTaken{1234567},
      NoQuorum{"2 of 5", 7},
  };
}

TEST(Messages, EveryKindComesBackAsItWasSent) {
  std::vector<bool> seen(std::variant_size_v<Message>, false);
  for (const Message& message : examples()) {
    seen.at(message.index()) = true;
    const Result<Message> back = decode(encode(message));
    ASSERT_TRUE(back.ok()) << name_of(message);
    EXPECT_EQ(back.value(), message) << name_of(message);
  }
  EXPECT_EQ(std::count(seen.begin(), seen.end(), false), 0) << "a kind has no example";
}

TEST(Messages, EveryTruncationIsRefused) {
  for (const Message& message : examples()) {
    const Bytes whole = encode(message);
    for (std::size_t size = 0; size < whole.size(); ++size) {
      EXPECT_FALSE(decode(ByteSpan(whole).first(size)).ok())
          << name_of(message) << " cut at " << size;
    }
  }
}

TEST(Messages, TrailingBytesAreRefused) {
  for (const Message& message : examples()) {
    Bytes longer = encode(message);
    longer.push_back(std::byte{0});
    EXPECT_FALSE(decode(longer).ok()) << name_of(message);
  }
}

TEST(Messages, WhatDecodeAcceptsEncodesToTheSameBytes) {
  constexpr std::uint64_t kSeed = 20;
  RandomStream random{CounterRandom(kSeed)};
  std::size_t accepted = 0;
  for (int round = 0; round < 2000; ++round) {
    for (const Message& message : examples()) {
      Bytes bytes = encode(message);
      for (std::uint64_t i = 0; i <= random.below(3); ++i) {
        bytes.at(random.below(bytes.size())) ^= static_cast<std::byte>(1u << random.below(8));
      }
      const Result<Message> decoded = decode(bytes);
      if (decoded.ok()) {
        ++accepted;
        ASSERT_EQ(encode(decoded.value()), bytes)
            << "seed " << kSeed << " round " << round << ' ' << name_of(message);
      }
    }
  }
  EXPECT_GT(accepted, 1000u) << "mutations of plain numbers stay valid";
}

TEST(Messages, RandomBytesNeverCrashTheDecoder) {
  constexpr std::uint64_t kSeed = 21;
  RandomStream random{CounterRandom(kSeed)};
  for (int round = 0; round < 50000; ++round) {
    Bytes bytes(1 + random.below(64));
    for (std::byte& b : bytes) {
      b = static_cast<std::byte>(random.below(random.below(2) == 0 ? 4 : 256));
    }
    bytes.front() = static_cast<std::byte>(random.below(24));
    const Result<Message> decoded = decode(bytes);
    if (decoded.ok()) {
      ASSERT_EQ(encode(decoded.value()), bytes) << "seed " << kSeed << " round " << round;
    }
  }
}

TEST(Messages, AHugeCountDoesNotAllocate) {
  WireWriter writer;
  writer.put<std::uint8_t>(16);  // new_view
  writer.put<std::uint64_t>(1);
  writer.put<std::uint64_t>(1);
  writer.put<std::uint64_t>(1);
  writer.put<std::uint32_t>(0);
  writer.put<std::uint32_t>(0xffffffffu);
  EXPECT_FALSE(decode(writer.take()).ok());
}

TEST(Messages, AViewWhoseSourceIsNotAMemberIsRefused) {
  Bytes bytes = encode(NewView{example_view()});
  const std::size_t source_at = 1 + 8 + 8 + 8;
  bytes.at(source_at) = std::byte{3};
  EXPECT_FALSE(decode(bytes).ok());
  bytes.at(source_at) = std::byte{2};  // an observer
  EXPECT_FALSE(decode(bytes).ok());
}

TEST(Messages, WhoIsBehindIsAMemberWithWorkButNotTheSource) {
  View view = example_view();
  view.members.back() = {MemberId{5}, "10.0.0.5:4000", MicrobatchSet::range(100, 1), 100, 1, {}};
  view.behind = {Rank{0}, Rank{2}};
  const Bytes bytes = encode(NewView{view});
  ASSERT_TRUE(decode(bytes).ok());
  EXPECT_EQ(std::get<NewView>(decode(bytes).value()).view, view);
  const std::size_t first_at = 1 + 8 + 8 + 8 + 4 + 4;  // after the source and the count
  // The rank of the source, ranks that are not ascending, and a rank without a member.
  for (const std::byte wrong : {std::byte{1}, std::byte{2}, std::byte{3}}) {
    Bytes changed = bytes;
    changed.at(first_at) = wrong;
    EXPECT_FALSE(decode(changed).ok()) << std::to_integer<int>(wrong);
  }
  Bytes changed = encode(NewView{example_view()});
  changed.at(first_at - 4) = std::byte{1};  // in a view with an observer
  changed.insert(changed.begin() + first_at, 4, std::byte{0});
  EXPECT_FALSE(decode(changed).ok());
}

TEST(Messages, AnObserverWithWorkIsRefused) {
  Bytes bytes = encode(NewView{example_view()});
  ASSERT_TRUE(decode(bytes).ok());
  const std::size_t no_bases = sizeof(std::uint32_t);
  const std::size_t count_at = bytes.size() - no_bases - sizeof(ViewId) - sizeof(std::uint32_t);
  bytes.at(count_at) = std::byte{1};
  EXPECT_FALSE(decode(bytes).ok());
}

// A majority of nobody cannot be counted.
TEST(Messages, AnOlderViewWithoutMembersIsRefused) {
  View view = example_view();
  view.bases = {{ViewId{3}, {MemberId{1}}}};
  Bytes bytes = encode(NewView{view});
  ASSERT_TRUE(decode(bytes).ok());
  EXPECT_EQ(std::get<NewView>(decode(bytes).value()).view, view);
  bytes.resize(bytes.size() - sizeof(MemberId));
  bytes.at(bytes.size() - sizeof(std::uint32_t)) = std::byte{0};  // the number of its members
  EXPECT_FALSE(decode(bytes).ok());
}

TEST(Messages, SpeedsThatAreNotNumbersAreRefused) {
  const float mark = 1234.5F;
  for (const Progress& progress :
       {Progress{ViewId{1}, Step{1}, mark}, Progress{ViewId{1}, Step{1}, 1, 1, {.fetch_ms = mark}},
        Progress{ViewId{1}, Step{1}, 1, 1, {.compute_ms = mark}}}) {
    Bytes bytes = encode(progress);
    ASSERT_TRUE(decode(bytes).ok());
    const auto marked = std::as_bytes(std::span(&mark, 1));
    const auto place = std::ranges::search(bytes, marked).begin();
    ASSERT_NE(place, bytes.end());
    const float bad = std::numeric_limits<float>::quiet_NaN();
    std::memcpy(&*place, &bad, sizeof(bad));
    EXPECT_FALSE(decode(bytes).ok());
  }
}

TEST(Messages, TextsForPeopleAreCutInsteadOfRefused) {
  const Result<Message> back =
      decode(encode(Dismiss{DismissReason::kEvicted, false, std::string(100000, 'x')}));
  ASSERT_TRUE(back.ok());
  EXPECT_EQ(std::get<Dismiss>(back.value()).detail, std::string(2048, 'x'));
}

TEST(Messages, ASetIsRunsAndHasOneEncoding) {
  MicrobatchSet set = MicrobatchSet::range(3, 200);
  set.add(0);
  set.add(kMicrobatchesMax - 1);
  const Stopped stopped{ViewId{1}, Step{1}, set, false, false, {}, "", {}};
  const Bytes bytes = encode(stopped);
  EXPECT_LT(bytes.size(), 60u) << "not a bit per microbatch";
  ASSERT_TRUE(decode(bytes).ok());
  EXPECT_EQ(decode(bytes).value(), Message{stopped});
  const std::size_t runs = 1 + 8 + 8;  // the byte after kind, view and step
  ASSERT_EQ(bytes[runs], std::byte{3});
  for (const Bytes& other : {Bytes{std::byte{0x83}, std::byte{0}},             // 3 in two bytes
                             Bytes{std::byte{4}, std::byte{0}, std::byte{0}},  // an empty run
                             Bytes{std::byte{4}, std::byte{0}, std::byte{1}, std::byte{0},
                                   std::byte{1}}}) {  // neighbours as two runs
    Bytes changed(bytes.begin(), bytes.begin() + runs);
    changed.insert(changed.end(), other.begin(), other.end());
    changed.insert(changed.end(), bytes.begin() + runs + 1, bytes.end());
    EXPECT_FALSE(decode(changed).ok());
  }
}

TEST(Messages, TheLargestViewFitsAFrame) {
  View view{ViewId{1}, 0, Step{0}, Rank{0}, {}, {}};
  for (std::uint32_t i = 0; i < kMembersMax; ++i) {
    constexpr std::uint32_t kEach = kMicrobatchesMax / kMembersMax;
    MicrobatchSet scattered;
    for (std::uint32_t m = 0; m < kEach; ++m) {
      scattered.add(m * kMembersMax + i);
    }
    view.members.push_back({MemberId{i + 1}, std::string(512, 'a'), scattered, i * kEach, kEach});
  }
  const Bytes bytes = encode(NewView{view});
  EXPECT_LE(bytes.size(), kMessageBytesMax);
  EXPECT_TRUE(decode(bytes).ok());
}

TEST(Messages, TheStatusOfTheLargestJobFitsAReply) {
  constexpr std::size_t kJsonOfAMember = 400;
  const CommandReply reply{true, std::string(kMembersMax * kJsonOfAMember, 'x')};
  const Result<Message> back = decode(encode(reply));
  ASSERT_TRUE(back.ok());
  EXPECT_EQ(back.value(), Message{reply});
}

// The coordinator closes the connection of a worker that sends a message of another kind.
TEST(Messages, AWorkerMaySayTheseAndNothingElse) {
  const std::set<std::string> theirs = {
      "ready",         "stopped", "formed",    "synced",    "progress",    "caught_up", "heartbeat",
      "leave_request", "report",  "store_set", "store_get", "view_wanted", "resume",    "left"};
  std::set<std::string> seen;
  for (const Message& message : examples()) {
    EXPECT_EQ(is_from_worker(message), theirs.contains(name_of(message))) << name_of(message);
    seen.insert(name_of(message));
  }
  EXPECT_EQ(seen.size(), std::variant_size_v<Message>) << "an example of every kind";
}

TEST(Messages, AFingerprintThatIsTooLongForAHelloIsRefusedInWords) {
  using Pair = std::pair<std::string, std::string>;
  const std::string name(kFingerprintNameBytesMax, 'n');
  const std::string value(kFingerprintValueBytesMax, 'v');
  std::vector<Pair> pairs;
  for (std::size_t i = 0; i < kFingerprintPairsMax; ++i) {
    std::string other = name;
    other.replace(0, 3, std::to_string(100 + i));
    pairs.emplace_back(other, value);
  }
  EXPECT_TRUE(check_fingerprint(pairs).ok());
  Hello hello;
  hello.fingerprint = pairs;
  EXPECT_EQ(decode(encode(hello)).value(), Message{hello});
  pairs[7].second += 'v';
  EXPECT_EQ(check_fingerprint(pairs).error().detail,
            "the fingerprint of the job is too large: the bytes of \"" + pairs[7].first +
                "\" are 1025, and 1024 is the most");
  pairs[7] = {name + 'n', ""};
  EXPECT_EQ(check_fingerprint(pairs).error().detail,
            "the fingerprint of the job is too large: the bytes of the name \"" + name +
                "\" are 129, and 128 is the most");
  pairs.assign(kFingerprintPairsMax + 1, Pair{});
  EXPECT_EQ(check_fingerprint(pairs).error().code, Errc::kInvalidInput);
}

TEST(Messages, AFingerprintThatNamesOneThingTwiceIsRefusedInWords) {
  EXPECT_TRUE(check_fingerprint({{"a", "1"}, {"b", "1"}}).ok());
  EXPECT_EQ(check_fingerprint({{"a", "1"}, {"b", "1"}, {"a", "1"}}).error().detail,
            "the fingerprint has the name \"a\" twice");
}

}  // namespace
}  // namespace mayfly::elastic
