#include "engine/training/observer.hpp"
#include "base/net/wake_up.hpp"

#include <gtest/gtest.h>
#include <unistd.h>

#include <chrono>
#include <future>
#include <memory>
#include <numeric>
#include <thread>

#include "base/net/sockets.hpp"
#include "base/random.hpp"
#include "engine/state/state_transfer.hpp"
#include "nn/checkpoint.hpp"

// The transfer of a state from donors to an observer, over sockets within this process.

namespace mayfly::engine {
namespace {

constexpr ViewId kView{7};
constexpr std::uint64_t kKey = 0xfeed;
constexpr Duration kIdle = seconds(20);

class ObserverTest : public ::testing::Test {
 protected:
  ObserverTest() {
    state.parameters = AlignedBuffer<float>(10'007);
    state.momentum = AlignedBuffer<float>(10'007);
    state.statistics = AlignedBuffer<float>(33);
    state.exponents = {3, 1, 4, 1, 5};
    state.committed = Step{12};
    std::iota(state.parameters.span().begin(), state.parameters.span().end(), 0.5F);
    std::iota(state.momentum.span().begin(), state.momentum.span().end(), -3.0F);
    std::iota(state.statistics.span().begin(), state.statistics.span().end(), 9.0F);
  }

  Bytes packed() const {
    Bytes bytes(nn::packed_state_size(state));
    nn::pack_state_part(state, 0, bytes);
    return bytes;
  }

  /// Starts donors in this process; returns their addresses.
  std::vector<DonorAddress> start_donors(std::size_t count) {
    std::vector<DonorAddress> addresses;
    for (std::size_t i = 0; i < count; ++i) {
      donors.push_back(std::make_unique<StateDonor>("127.0.0.1"));
      const Result<DonorAddress> address =
          donors.back()->offer(kView, kKey, pack, part_of(nn::packed_state_size(state), i, count));
      EXPECT_TRUE(address.ok());
      addresses.push_back(address.value());
    }
    return addresses;
  }

  Result<void> fetch(const std::vector<DonorAddress>& from, Bytes& into, std::uint64_t key = kKey,
                     ViewId since = kView) {
    std::vector<WantedPart> parts;
    for (std::size_t i = 0; i < from.size(); ++i) {
      const PartRange range = part_of(into.size(), i, from.size());
      parts.push_back({from[i], std::span(into).subspan(range.first, range.last - range.first)});
    }
    return fetch_parts(since, key, parts, stop.fd(), kIdle);
  }

  nn::ModelState state;
  const PackFunction pack = [this](std::size_t first, std::span<std::byte> out) {
    nn::pack_state_part(state, first, out);
  };
  WakeUp stop;
  std::vector<std::unique_ptr<StateDonor>> donors;
};

TEST_F(ObserverTest, PartsOfAPackedStateAreThoseOfTheWhole) {
  const Bytes whole = packed();
  for (const std::size_t parts : {1, 2, 3, 16}) {
    for (std::size_t i = 0; i < parts; ++i) {
      const PartRange range = part_of(whole.size(), i, parts);
      Bytes part(range.last - range.first);
      nn::pack_state_part(state, range.first, part);
      EXPECT_TRUE(std::equal(part.begin(), part.end(), whole.begin() + range.first));
    }
  }
}

TEST_F(ObserverTest, TheStateArrivesFromAnyNumberOfDonors) {
  for (const std::size_t count : {1, 3, 16}) {
    donors.clear();
    Bytes received(packed().size());
    ASSERT_TRUE(fetch(start_donors(count), received).ok());
    EXPECT_EQ(received, packed());
  }
}

TEST_F(ObserverTest, SeveralTakeTheSameCopy) {
  const std::vector<DonorAddress> addresses = start_donors(2);
  Bytes first(packed().size());
  Bytes second(packed().size());
  auto other = std::async(std::launch::async, [&] { return fetch(addresses, first).ok(); });
  EXPECT_TRUE(fetch(addresses, second).ok());
  EXPECT_TRUE(other.get());
  EXPECT_EQ(first, second);
}

TEST_F(ObserverTest, TheCopyIsOfTheMomentOfTheOffer) {
  const Bytes before = packed();
  const std::vector<DonorAddress> addresses = start_donors(2);
  for (const auto& donor : donors) {
    donor->wait_until_copied();
  }
  state.parameters[5] = 1e9F;  // as a commit does
  Bytes received(before.size());
  ASSERT_TRUE(fetch(addresses, received).ok());
  EXPECT_EQ(received, before);
}

TEST_F(ObserverTest, WhatIsCopiedIsSentWhileTheRestIsBeingCopied) {
  constexpr Duration kIdleMax = seconds(2);
  constexpr std::size_t kBytes = std::size_t{4} << 20;
  constexpr std::size_t kPauses = 16;
  Bytes source(kBytes);
  for (std::size_t i = 0; i < kBytes; ++i) {
    source[i] = static_cast<std::byte>(mix64(i));
  }
  const PackFunction slowly = [&source](std::size_t first, std::span<std::byte> out) {
    const std::size_t pauses = out.size() * kPauses / kBytes;
    std::this_thread::sleep_for(std::chrono::milliseconds(150) * pauses);  // 2.4 s in all
    std::ranges::copy(ByteSpan(source).subspan(first, out.size()), out.begin());
  };
  StateDonor donor("127.0.0.1");
  const Result<DonorAddress> address = donor.offer(kView, kKey, slowly, {0, kBytes});
  ASSERT_TRUE(address.ok());
  Bytes received(kBytes);
  const Result<void> fetched =
      fetch_parts(kView, kKey, {{address.value(), received}}, stop.fd(), kIdleMax);
  ASSERT_TRUE(fetched.ok()) << fetched.error().detail;
  EXPECT_EQ(received, source);
}

TEST_F(ObserverTest, NobodyIsSentAnythingWithoutTheKeyOfTheView) {
  const std::vector<DonorAddress> addresses = start_donors(1);
  Bytes received(packed().size());
  EXPECT_EQ(fetch(addresses, received, kKey + 1).error().code, Errc::kPeerLost);
  EXPECT_EQ(fetch(addresses, received, kKey, ViewId{8}).error().code, Errc::kPeerLost);
  donors[0]->keep_only({});
  EXPECT_EQ(donors[0]->copy_count(), 0U);
  EXPECT_EQ(fetch(addresses, received).error().code, Errc::kPeerLost);
}

TEST_F(ObserverTest, ADonorThatIsGoneIsALostPeer) {
  const std::vector<DonorAddress> addresses = start_donors(2);
  donors.pop_back();
  Bytes received(packed().size());
  EXPECT_EQ(fetch(addresses, received).error().code, Errc::kPeerLost);
}

TEST_F(ObserverTest, APartOfAnotherSizeIsRefused) {
  const std::vector<DonorAddress> addresses = start_donors(1);
  Bytes received(packed().size() + 4);
  EXPECT_EQ(fetch(addresses, received).error().code, Errc::kCorrupt);
}

TEST_F(ObserverTest, FetchingEndsWhenItIsNotWantedAnyMore) {
  Result<UniqueFd> silent = listen_tcp({"127.0.0.1", 0});
  ASSERT_TRUE(silent.ok());
  DonorAddress address;
  address.port = bound_endpoint(silent.value().get()).port;
  std::ranges::copy(std::string_view("127.0.0.1"), address.host.begin());
  Bytes received(packed().size());
  stop.notify();
  EXPECT_EQ(fetch({address}, received).error().code, Errc::kAborted);
}

TEST_F(ObserverTest, AsManyAreServedAtOnceAsAViewHas) {
  constexpr std::size_t kOthers = 100;
  constexpr std::size_t kBytes = std::size_t{16} << 20;  // more than the buffers of a socket hold
  StateDonor donor("127.0.0.1");
  const PackFunction zeros = [](std::size_t, std::span<std::byte> out) {
    std::ranges::fill(out, std::byte{0});
  };
  const DonorAddress address = donor.offer(kView, kKey, zeros, {0, kBytes}).value();
  const PartRequest request{kPartMagic, kView, kKey};
  std::vector<UniqueFd> others;  // each has sent its request and reads nothing
  for (std::size_t i = 0; i < kOthers; ++i) {
    Result<UniqueFd> other = start_connect_tcp({"127.0.0.1", address.port});
    ASSERT_TRUE(other.ok());
    ASSERT_EQ(send_some(other.value().get(), &request, sizeof request).bytes, sizeof request);
    others.push_back(std::move(other).value());
  }
  Bytes received(kBytes);
  const Result<void> fetched = fetch_parts(kView, kKey, {{address, received}}, stop.fd(), kIdle);
  ASSERT_TRUE(fetched.ok()) << fetched.error().detail;
  for (const UniqueFd& other : others) {
    EXPECT_FALSE(at_end(other.get()));
  }
}

TEST_F(ObserverTest, HoweverManySayNothingAnObserverIsHeard) {
  const std::vector<DonorAddress> addresses = start_donors(1);
  std::vector<UniqueFd> silent;
  for (int i = 0; i < 300; ++i) {
    Result<UniqueFd> intruder = start_connect_tcp({"127.0.0.1", addresses[0].port});
    ASSERT_TRUE(intruder.ok());
    silent.push_back(std::move(intruder).value());
  }
  Bytes received(packed().size());
  const Result<void> fetched = fetch(addresses, received);
  ASSERT_TRUE(fetched.ok()) << fetched.error().detail;
  EXPECT_EQ(received, packed());
}

TEST_F(ObserverTest, SilentAndGarblingStrangersDoNotDisturbADonor) {
  const std::vector<DonorAddress> addresses = start_donors(1);
  std::vector<UniqueFd> intruders;
  for (int i = 0; i < 30; ++i) {
    Result<UniqueFd> intruder = start_connect_tcp({"127.0.0.1", addresses[0].port});
    ASSERT_TRUE(intruder.ok());
    if (i % 2 == 0) {
      const std::string noise(100, 'x');
      (void)send_some(intruder.value().get(), noise.data(), noise.size());
    }
    intruders.push_back(std::move(intruder).value());
  }
  Bytes received(packed().size());
  ASSERT_TRUE(fetch(addresses, received).ok());
  EXPECT_EQ(received, packed());
}

}  // namespace
}  // namespace mayfly::engine
