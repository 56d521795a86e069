#include "cloud_hooks/core/offer_catalog.hpp"

#include <gtest/gtest.h>

namespace mayfly::cloud_hooks {
namespace {

constexpr Instant kStart{1'000'000'000'000};
constexpr BackoffOptions kBackoff{.first = seconds(5), .max = seconds(40)};
using Order = std::vector<std::size_t>;

Offer zone_offer(const std::string& zone, Market market = Market::kSpot,
                 const std::string& type = "gpu") {
  return {type, zone, market};
}

/// Offers 0 to 2 are of one kind in three zones, 3 is on demand, and 4 is another machine type.
/// Each is dearer than the one before.
OfferCatalog book_of_five() {
  return {{{zone_offer("a"), 1, 1},
           {zone_offer("b"), 2, 1},
           {zone_offer("c"), 3, 1},
           {zone_offer("a", Market::kOnDemand), 4, 1},
           {zone_offer("a", Market::kSpot, "other"), 5, 1}},
          kBackoff};
}

Duration refused_for(OfferCatalog& book, std::size_t which, Instant now,
                     std::optional<Duration> retry_after = {}) {
  return book.out_of_stock(which, now, {ProviderErrorKind::kCapacity, "", {}, retry_after}) - now;
}

TEST(OfferCatalog, WaitsTwiceAsLongAfterEachRefusalUpToTheMost) {
  OfferCatalog book = book_of_five();
  Instant now = kStart;
  for (const int wait : {5, 10, 20, 40, 40}) {
    EXPECT_EQ(refused_for(book, 0, now), seconds(wait));
    now = now + seconds(wait);
  }
  EXPECT_EQ(refused_for(book, 1, now), seconds(5)) << "each offer for itself";
}

TEST(OfferCatalog, AnOfferThatWorkedWaitsFromTheShortestTimeOnAgain) {
  OfferCatalog book = book_of_five();
  for (int i = 0; i < 3; ++i) {
    (void)refused_for(book, 0, kStart + i * seconds(100));
  }
  book.worked(0);
  EXPECT_EQ(refused_for(book, 0, kStart + seconds(1000)), seconds(5));
}

TEST(OfferCatalog, WaitsAsLongAsTheProviderAsksWithinReason) {
  OfferCatalog book = book_of_five();
  EXPECT_EQ(refused_for(book, 0, kStart, seconds(100)), seconds(100));
  EXPECT_EQ(refused_for(book, 1, kStart, seconds(1)), seconds(5));
  EXPECT_EQ(refused_for(book, 2, kStart, seconds(1'000'000)), 10 * kBackoff.max);
  EXPECT_EQ(refused_for(book, 0, kStart + seconds(50)), seconds(50)) << "it had asked for more";
}

TEST(OfferCatalog, RanksWhatMayBeAskedForNow) {
  OfferCatalog book = book_of_five();
  EXPECT_EQ(book.ranking(kStart), (Order{0, 1, 2, 3, 4}));
  EXPECT_EQ(book.next_change(kStart), std::nullopt);
  (void)refused_for(book, 1, kStart);
  (void)refused_for(book, 0, kStart, seconds(8));
  EXPECT_EQ(book.ranking(kStart), (Order{2, 3, 4}));
  EXPECT_EQ(book.next_change(kStart), kStart + seconds(5));
  EXPECT_EQ(book.ranking(kStart + seconds(5) - Duration(1)), (Order{2, 3, 4}));
  EXPECT_EQ(book.ranking(kStart + seconds(5)), (Order{1, 2, 3, 4}));
  EXPECT_EQ(book.next_change(kStart + seconds(5)), kStart + seconds(8));
  book.stop(0);
  EXPECT_EQ(book.next_change(kStart + seconds(5)), std::nullopt) << "a person must mend that";
  EXPECT_EQ(book.ranking(kStart + seconds(8)), (Order{1, 2, 3, 4}));
}

TEST(OfferCatalog, EquallyDearOffersAreAskedInTheOrderOfTheList) {
  const OfferCatalog book(
      {{zone_offer("a"), 4, 2}, {zone_offer("b"), 1, 1}, {zone_offer("c"), 2, 1}}, kBackoff);
  EXPECT_EQ(book.ranking(kStart), (Order{1, 0, 2}));
}

TEST(OfferCatalog, OfZonesThatTheProviderNamesNoneWaitsAndTheOthersDo) {
  OfferCatalog book({{zone_offer("a"), 1, 1},
                     {zone_offer("b"), 2, 1},
                     {zone_offer("c"), 3, 1},
                     {zone_offer(""), 4, 1},
                     {zone_offer("b", Market::kOnDemand), 5, 1},
                     {zone_offer("b", Market::kSpot, "other"), 6, 1}},
                    kBackoff);
  (void)refused_for(book, 2, kStart - seconds(60), seconds(160));
  ProviderError error{ProviderErrorKind::kCapacity, "", {"c"}, {}};
  EXPECT_EQ(book.out_of_stock(0, kStart, error), kStart + seconds(5));
  EXPECT_EQ(book.ranking(kStart), (Order{2, 3, 4, 5}));
  EXPECT_EQ(book.ranking(kStart + seconds(5)), (Order{0, 1, 2, 3, 4, 5}));
  (void)refused_for(book, 1, kStart + seconds(5), seconds(30));
  (void)book.out_of_stock(0, kStart + seconds(6), error);
  EXPECT_EQ(book.ranking(kStart + seconds(34)), (Order{0, 2, 3, 4, 5}))
      << "what waits longer already goes on waiting";
}

TEST(OfferCatalog, ZonesThatNameEachOtherWaitAllTheSame) {
  OfferCatalog book({{zone_offer("a"), 1, 1}, {zone_offer("b"), 2, 1}}, kBackoff);
  const ProviderError names_b{ProviderErrorKind::kCapacity, "", {"b"}, {}};
  const ProviderError names_a{ProviderErrorKind::kCapacity, "", {"a"}, {}};
  (void)book.out_of_stock(0, kStart, names_b);
  EXPECT_EQ(book.ranking(kStart), Order{1});
  (void)book.out_of_stock(1, kStart + seconds(1), names_a);
  EXPECT_EQ(book.ranking(kStart + seconds(1)), Order{}) << "it has just refused";
  EXPECT_EQ(book.ranking(kStart + seconds(5)), Order{0});
  (void)book.out_of_stock(0, kStart + seconds(5), names_b);
  (void)book.out_of_stock(1, kStart + seconds(6), names_a);
  EXPECT_EQ(book.next_change(kStart + seconds(6)), kStart + seconds(15)) << "twice as long";
}

TEST(OfferCatalog, TheThirdServerInARowWithoutAWorkerStopsTheOffer) {
  OfferCatalog book = book_of_five();
  EXPECT_FALSE(book.failed_to_start(0, kStart));
  EXPECT_FALSE(book.failed_to_start(0, kStart));
  book.worked(0);
  EXPECT_FALSE(book.failed_to_start(0, kStart));
  EXPECT_FALSE(book.failed_to_start(0, kStart));
  EXPECT_TRUE(book.failed_to_start(0, kStart));
  EXPECT_FALSE(book.failed_to_start(0, kStart)) << "that is known";
  EXPECT_EQ(book.ranking(kStart + seconds(1000)), (Order{1, 2, 3, 4}));
  book.worked(0);
  EXPECT_EQ(book.ranking(kStart + seconds(1000)), (Order{1, 2, 3, 4})) << "only a person mends it";
  book.forgive();
  EXPECT_EQ(book.ranking(kStart), (Order{0, 1, 2, 3, 4}));
  EXPECT_FALSE(book.failed_to_start(0, kStart)) << "one, of three";
}

TEST(OfferCatalog, WhatIsDoubtfulComesBehindAllOthers) {
  OfferCatalog book = book_of_five();
  (void)book.failed_to_start(0, kStart);
  EXPECT_EQ(book.ranking(kStart + seconds(5)), (Order{1, 2, 3, 4, 0}));
  book.shun(1, kStart + seconds(60));
  EXPECT_EQ(book.ranking(kStart + seconds(5)), (Order{2, 3, 4, 0, 1}));
  book.worked(0);
  EXPECT_EQ(book.ranking(kStart + seconds(60) - Duration(1)), (Order{0, 2, 3, 4, 1}));
  EXPECT_EQ(book.ranking(kStart + seconds(60)), (Order{0, 1, 2, 3, 4}));
}

TEST(OfferCatalog, AQuotaIsOfOneMachineOnOneMarketInEveryZone) {
  OfferCatalog book = book_of_five();
  EXPECT_TRUE(book.quota_reached(1));
  EXPECT_FALSE(book.quota_reached(0)) << "that is known";
  EXPECT_EQ(book.ranking(kStart), (Order{3, 4}));
  EXPECT_TRUE(book.quota_reached(3));
  EXPECT_FALSE(book.all_stopped());
  book.stop(4);
  EXPECT_TRUE(book.all_stopped());
  book.quota_freed(2);
  EXPECT_FALSE(book.all_stopped());
  EXPECT_EQ(book.ranking(kStart), (Order{0, 1, 2}));
  book.forgive();
  EXPECT_EQ(book.ranking(kStart), (Order{0, 1, 2, 3, 4}));
}

TEST(OfferCatalog, APersonsWordLetsEverythingBeAskedForAtOnce) {
  OfferCatalog book = book_of_five();
  for (int i = 0; i < 3; ++i) {
    (void)refused_for(book, 0, kStart);
  }
  book.stop(1);
  book.forgive();
  EXPECT_EQ(book.ranking(kStart), (Order{0, 1, 2, 3, 4}));
  EXPECT_EQ(refused_for(book, 0, kStart), seconds(5));
}

TEST(OfferCatalog, IsCalmSoLongAfterTheLastRefusalOrBurst) {
  OfferCatalog book = book_of_five();
  EXPECT_EQ(book.calm_from(0, seconds(900)), Instant{});
  (void)refused_for(book, 0, kStart);
  EXPECT_EQ(book.calm_from(0, seconds(900)), kStart + seconds(900));
  EXPECT_EQ(book.calm_from(0, seconds(1)), kStart + seconds(5)) << "it waits for so long";
  book.shun(0, kStart + seconds(2000));
  EXPECT_EQ(book.calm_from(0, seconds(900)), kStart + seconds(2000));
  (void)book.failed_to_start(1, kStart);
  EXPECT_EQ(book.calm_from(1, seconds(900)), std::nullopt);
  book.worked(1);
  EXPECT_EQ(book.calm_from(1, seconds(900)), kStart + seconds(900));
  book.stop(2);
  EXPECT_EQ(book.calm_from(2, seconds(900)), std::nullopt);
  (void)book.quota_reached(3);
  EXPECT_EQ(book.calm_from(3, seconds(900)), std::nullopt);
}

TEST(OfferCatalog, AMeasuredSpeedIsOfTheMachineWhereverItIsAndMovesByAFifth) {
  OfferCatalog book = book_of_five();
  book.measured(3, 10);
  EXPECT_DOUBLE_EQ(book.price_per_speed(0), 0.1);
  EXPECT_DOUBLE_EQ(book.price_per_speed(3), 0.4);
  EXPECT_DOUBLE_EQ(book.price_per_speed(4), 0.5) << "taken for ten times its stated speed, too";
  book.measured(0, 20);
  EXPECT_DOUBLE_EQ(book.price_per_speed(0), 1.0 / 12);
  book.measured(4, 100);
  EXPECT_DOUBLE_EQ(book.price_per_speed(4), 0.05);
  EXPECT_EQ(book.ranking(kStart).front(), 4U);
}

TEST(OfferCatalog, FindsAnOfferByAllThatItSays) {
  const OfferCatalog book = book_of_five();
  EXPECT_EQ(book.find(zone_offer("a", Market::kOnDemand)), 3U);
  EXPECT_EQ(book.find(zone_offer("a", Market::kSpot, "other")), 4U);
  EXPECT_EQ(book.find(zone_offer("b", Market::kOnDemand)), std::nullopt);
}

// A cloud may list a server with another zone or machine type than its offer names.
TEST(OfferCatalog, FindsTheOfferOfAServerThatIsListedOtherwise) {
  const auto terms = [](const Offer& offer) {
    OfferTerms made;
    made.offer = offer;
    made.price_per_hour = 1;
    return made;
  };
  const OfferCatalog catalog(
      {terms({"m5", "subnet-1", Market::kSpot}), terms({"m5", "subnet-1", Market::kOnDemand}),
       terms({"a2", "", Market::kSpot}), terms({"n1+t4:1", "z", Market::kSpot})},
      {});
  EXPECT_EQ(catalog.find({"m5", "eu-west-1a", Market::kSpot}), 0u);
  EXPECT_EQ(catalog.find({"m5", "eu-west-1a", Market::kOnDemand}), 1u);
  EXPECT_EQ(catalog.find({"a2+a100:1", "z", Market::kSpot}), 2u);
  EXPECT_EQ(catalog.find({"n1+t4:1", "z", Market::kSpot}), 3u);
  EXPECT_EQ(catalog.find({"n1", "z", Market::kSpot}), std::nullopt);
  EXPECT_EQ(catalog.find({"c5", "eu-west-1a", Market::kSpot}), std::nullopt);
  const OfferCatalog both(
      {terms({"n1", "z", Market::kSpot}), terms({"n1+t4:1", "", Market::kSpot})}, {});
  EXPECT_EQ(both.find({"n1+t4:1", "z", Market::kSpot}), 1u) << "an equal type comes first";
  EXPECT_EQ(both.find({"n1+p4:1", "z", Market::kSpot}), 0u);
}

}  // namespace
}  // namespace mayfly::cloud_hooks
