#include "engine/state/state_sync.hpp"
#include "base/net/wake_up.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <future>
#include <memory>
#include <numeric>

#include "collectives/tcp/tcp_transport.hpp"
#include "engine/state/state_transfer.hpp"
#include "nn/checkpoint.hpp"

// How members of a view get its state. Each member is a thread with a transport of its own.

namespace mayfly::engine {
namespace {

constexpr Duration kHangBound = seconds(30);

elastic::View sync_view(std::size_t members, std::vector<Rank> behind) {
  elastic::View view;
  view.id = ViewId{4};
  view.key = 0xfeed;
  view.committed = Step{12};
  view.behind = std::move(behind);
  for (std::size_t rank = 0; rank < members; ++rank) {
    view.members.push_back({MemberId{rank + 1}, "", {}, 0, 1, {}});
  }
  while (std::find(view.behind.begin(), view.behind.end(), view.source) != view.behind.end()) {
    view.source = static_cast<Rank>(value(view.source) + 1);
  }
  return view;
}

nn::ModelState state_after(Step committed, float first) {
  nn::ModelState state;
  state.parameters = AlignedBuffer<float>(1'009);
  state.momentum = AlignedBuffer<float>(1'009);
  state.statistics = AlignedBuffer<float>(33);
  state.exponents = {3, 1, 4, 1, 5};
  state.committed = committed;
  std::iota(state.parameters.span().begin(), state.parameters.span().end(), first);
  return state;
}

/// A member, and its work from the forming of its group to its first step.
class Member {
 public:
  Member(nn::ModelState loaded, std::uint32_t steps_tuned)
      : state(std::move(loaded)),
        tuner({64, 128}),
        donor("127.0.0.1", StateDonor::Priority::kUsual) {
    for (std::uint32_t i = 0; i < steps_tuned; ++i) {
      tuner.step_committed(100 + i);
    }
    transport = collectives::make_tcp_transport({}).value();
  }

  /// All members but the view's source are observers.
  Result<void> meet_observers(const elastic::View& view, Rank rank,
                              const std::vector<collectives::Peer>& peers) {
    const Instant deadline = monotonic_now() + kHangBound;
    auto group = form(view, rank, peers, deadline);
    if (!group.ok()) {
      return group.error();
    }
    return sync_observers(*group.value(), view, rank != view.source, state.exponents,
                          state.loss_scale, tuner, deadline);
  }

  Result<void> take_part(const elastic::View& view, Rank rank,
                         const std::vector<collectives::Peer>& peers) {
    const Instant deadline = monotonic_now() + kHangBound;
    auto group = form(view, rank, peers, deadline);
    if (!group.ok()) {
      return group.error();
    }
    const bool is_behind = state.committed < view.committed;
    const std::size_t bytes = nn::packed_state_size(state);
    DonorAddress own;
    if (!is_behind && rank == senders_of(view, bytes).front()) {
      const auto pack = [this](std::size_t first, std::span<std::byte> out) {
        nn::pack_state_part(state, first, out);
      };
      own = donor.offer(view.id, view.key, pack, part_of(bytes, 0, 1)).value();
    }
    const auto addresses = exchange_senders(*group.value(), own, tuner, deadline);
    if (!addresses.ok()) {
      return addresses.error();
    }
    if (is_behind) {
      const WakeUp never;
      const auto packed = fetch_state(view, addresses.value(), bytes, never.fd());
      if (!packed.ok()) {
        return packed.error();
      }
      if (Result<void> taken = nn::unpack_state(packed.value().span(), state); !taken.ok()) {
        return taken;
      }
    }
    return group.value()->barrier()->wait(deadline);  // in place of the first step
  }

  nn::ModelState state;
  BucketTuner tuner;
  StateDonor donor;
  std::unique_ptr<collectives::Transport> transport;

 private:
  Result<std::unique_ptr<collectives::Group>> form(const elastic::View& view, Rank rank,
                                                   const std::vector<collectives::Peer>& peers,
                                                   Instant deadline) {
    collectives::GroupSpec spec;
    spec.view = view.id;
    spec.key = view.key;
    spec.rank = rank;
    spec.peers = peers;
    return transport->form(spec, deadline);
  }
};

using Part = Result<void> (Member::*)(const elastic::View&, Rank,
                                      const std::vector<collectives::Peer>&);

std::vector<Result<void>> run(const elastic::View& view,
                              const std::vector<std::unique_ptr<Member>>& members,
                              Part part = &Member::take_part) {
  std::vector<collectives::Peer> peers;
  for (std::size_t rank = 0; rank < members.size(); ++rank) {
    peers.push_back({view.members[rank].id, members[rank]->transport->address()});
  }
  std::vector<std::future<Result<void>>> running;
  for (std::size_t rank = 0; rank < members.size(); ++rank) {
    running.push_back(std::async(std::launch::async, [&, rank] {
      return (*members[rank].*part)(view, static_cast<Rank>(rank), peers);
    }));
  }
  std::vector<Result<void>> results;
  for (auto& each : running) {
    results.push_back(each.get());
  }
  return results;
}

Bytes packed(const nn::ModelState& state) {
  Bytes bytes(nn::packed_state_size(state));
  nn::pack_state_part(state, 0, bytes);
  return bytes;
}

TEST(StateSync, LargerStatesComeFromMoreMembersAndNeverFromOneThatLacksThem) {
  const elastic::View view = sync_view(5, {Rank{0}, Rank{2}});
  constexpr std::size_t kMib = std::size_t{1} << 20;
  EXPECT_EQ(senders_of(view, 2 * kMib), std::vector<Rank>{Rank{1}});
  EXPECT_EQ(senders_of(view, 17 * kMib), (std::vector<Rank>{Rank{1}, Rank{3}}));
  EXPECT_EQ(senders_of(view, 200 * kMib), (std::vector<Rank>{Rank{1}, Rank{3}, Rank{4}}));
}

TEST(StateSync, WhoIsBehindTakesTheStateAndWhatWasTriedAboutBuckets) {
  const elastic::View view = sync_view(2, {Rank{0}});
  std::vector<std::unique_ptr<Member>> members;
  members.push_back(std::make_unique<Member>(state_after(Step{11}, 100), 2));
  members.push_back(std::make_unique<Member>(state_after(Step{12}, -7), 3));
  const Bytes right = packed(members[1]->state);
  const auto results = run(view, members);
  EXPECT_TRUE(results[0].ok());
  EXPECT_EQ(packed(members[0]->state), right);
  EXPECT_EQ(packed(members[1]->state), right);
  Bytes tried(members[1]->tuner.packed_size());
  members[1]->tuner.pack(tried);
  Bytes taken(tried.size());
  members[0]->tuner.pack(taken);
  EXPECT_EQ(taken, tried);
}

TEST(StateSync, AllGoOnTryingBucketsWhereTheOneIsWhoHasTriedMost) {
  const elastic::View view = sync_view(3, {});  // no member is behind, but one is new
  std::vector<std::unique_ptr<Member>> members;
  for (const std::uint32_t tried : {0U, 3U, 3U}) {
    members.push_back(std::make_unique<Member>(state_after(Step{12}, -7), tried));
  }
  Bytes most(members[1]->tuner.packed_size());
  members[1]->tuner.pack(most);
  for (const Result<void>& result : run(view, members)) {
    EXPECT_TRUE(result.ok());
  }
  Bytes taken(most.size());
  members[0]->tuner.pack(taken);
  EXPECT_EQ(taken, most);
}

TEST(StateSync, AnObserverTakesTheLossScaleOfTheOthersIfAJobCanHaveIt) {
  const elastic::View view = sync_view(2, {});
  for (const bool is_possible : {true, false}) {
    std::vector<std::unique_ptr<Member>> members;
    members.push_back(std::make_unique<Member>(state_after(Step{12}, -7), 3));
    members.push_back(std::make_unique<Member>(state_after(Step{0}, 100), 3));
    const nn::LossScale theirs{is_possible ? 9 : nn::LossScale::kMost + 1, 100};
    members[0]->state.loss_scale = theirs;
    members[1]->state.loss_scale = nn::LossScale{};
    const auto results = run(view, members, &Member::meet_observers);
    EXPECT_TRUE(results[0].ok());
    if (is_possible) {
      EXPECT_TRUE(results[1].ok());
      EXPECT_EQ(members[1]->state.loss_scale, theirs);
    } else {
      EXPECT_EQ(results[1].error().code, Errc::kCorrupt);
    }
  }
}

}  // namespace
}  // namespace mayfly::engine
