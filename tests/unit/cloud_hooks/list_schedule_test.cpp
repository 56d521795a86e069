#include "cloud_hooks/core/list_schedule.hpp"

#include <gtest/gtest.h>

namespace mayfly::cloud_hooks {
namespace {

constexpr Instant kBegin{1'000'000'000'000};

ReplacementOptions of_cloud(bool survives_us, bool restarted) {
  ReplacementOptions options;
  options.provider.survives_us = survives_us;
  options.restarted = restarted;
  return options;
}

TEST(ListSchedule, AsksOnceUntilThereIsAnAnswer) {
  const ReplacementOptions options = of_cloud(true, false);
  ListSchedule lists(options);
  lists.begin(kBegin);
  EXPECT_TRUE(lists.ask(kBegin));
  EXPECT_EQ(lists.requested_at(), kBegin);
  EXPECT_FALSE(lists.ask(kBegin + seconds(100)));
  EXPECT_FALSE(lists.next());
  lists.listed(kBegin + seconds(100), options.list_every);
  EXPECT_EQ(lists.next(), kBegin + seconds(115));
  EXPECT_FALSE(lists.ask(kBegin + seconds(114)));
  EXPECT_TRUE(lists.ask(kBegin + seconds(115)));
}

TEST(ListSchedule, IsAskedForSoonerButNeverLater) {
  const ReplacementOptions options = of_cloud(false, false);
  ListSchedule lists(options);
  lists.begin(kBegin);
  EXPECT_EQ(lists.next(), kBegin + options.list_every);
  lists.ask_by(kBegin + seconds(2));
  lists.ask_by(kBegin + seconds(9));
  EXPECT_EQ(lists.next(), kBegin + seconds(2));
}

TEST(ListSchedule, KnowsThePastAtOnceIfServersEndWithTheirProcess) {
  const ReplacementOptions options = of_cloud(false, true);
  ListSchedule lists(options);
  lists.begin(kBegin);
  EXPECT_TRUE(lists.knows_earlier_servers());
}

TEST(ListSchedule, KnowsThePastFromTheFirstList) {
  const ReplacementOptions options = of_cloud(true, false);
  ListSchedule lists(options);
  lists.begin(kBegin);
  EXPECT_TRUE(lists.ask(kBegin));
  EXPECT_FALSE(lists.knows_earlier_servers());
  lists.listed(kBegin + seconds(1), options.list_every);
  EXPECT_TRUE(lists.knows_earlier_servers());
}

TEST(ListSchedule, WaitsForWhatAnEarlierProcessMayHaveRequestedAtItsEnd) {
  const ReplacementOptions options = of_cloud(true, true);
  ListSchedule lists(options);
  lists.begin(kBegin);
  EXPECT_TRUE(lists.ask(kBegin));
  lists.listed(kBegin + seconds(40), options.list_every);
  EXPECT_FALSE(lists.knows_earlier_servers());
  EXPECT_EQ(lists.next(), kBegin + options.absence_grace) << "sooner than list_every";
  EXPECT_TRUE(lists.ask(kBegin + options.absence_grace));
  lists.listed(kBegin + seconds(60), options.list_every);
  EXPECT_TRUE(lists.knows_earlier_servers());
}

TEST(ListSchedule, GivesUpANewJobWhoseFirstListIsRefusedOrDoesNotArrive) {
  const ProviderError no_answer{ProviderErrorKind::kRate, "no answer in time"};
  const ReplacementOptions options = of_cloud(true, false);
  ListSchedule refused(options);
  refused.begin(kBegin);
  (void)refused.failed(kBegin, {ProviderErrorKind::kConfig, "no controller"});
  EXPECT_TRUE(refused.is_hopeless());
  ListSchedule silent(options);
  silent.begin(kBegin);
  EXPECT_TRUE(silent.ask(kBegin));
  (void)silent.failed(kBegin + seconds(119), no_answer);
  EXPECT_FALSE(silent.is_hopeless()) << "the provider may be busy";
  (void)silent.failed(kBegin + seconds(120), no_answer);
  EXPECT_TRUE(silent.is_hopeless());
  silent.listed(kBegin + seconds(130), options.list_every);
  (void)silent.failed(kBegin + seconds(150), no_answer);
  EXPECT_FALSE(silent.is_hopeless()) << "later lists may fail";
}

TEST(ListSchedule, GoesOnAskingForARestartedJob) {
  const ReplacementOptions options = of_cloud(true, true);
  ListSchedule lists(options);
  lists.begin(kBegin);
  (void)lists.failed(kBegin + seconds(900), {ProviderErrorKind::kAuth, "no"});
  EXPECT_FALSE(lists.is_hopeless());
}

TEST(ListSchedule, TellsAnErrorOnceUntilAListHasCome) {
  const ReplacementOptions options = of_cloud(true, false);
  ListSchedule lists(options);
  ProviderError error{ProviderErrorKind::kRate, "busy"};
  lists.begin(kBegin);
  EXPECT_TRUE(lists.ask(kBegin));
  EXPECT_TRUE(lists.failed(kBegin, error));
  EXPECT_FALSE(lists.failed(kBegin, error));
  EXPECT_TRUE(lists.failed(kBegin, {ProviderErrorKind::kAuth, "no"}));
  EXPECT_FALSE(lists.knows_earlier_servers());
  error.retry_after = seconds(500);
  lists.listed(kBegin, options.list_every);
  EXPECT_TRUE(lists.failed(kBegin, error));
  EXPECT_EQ(lists.next(), kBegin + seconds(500)) << "as the provider wants";
}

TEST(ListSchedule, ProvesNothingAboutWhatIsTooNew) {
  const ReplacementOptions options = of_cloud(true, false);
  ListSchedule lists(options);
  lists.begin(kBegin);
  EXPECT_TRUE(lists.ask(kBegin + options.absence_grace));
  EXPECT_TRUE(lists.proves_absence(kBegin));
  EXPECT_FALSE(lists.proves_absence(kBegin + milliseconds(1)));
}

}  // namespace
}  // namespace mayfly::cloud_hooks
