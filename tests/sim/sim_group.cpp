#include "tests/sim/sim_group.hpp"

#include <algorithm>

#include "base/check.hpp"
#include "collectives/plan/ring_schedule.hpp"
#include "tests/sim/sim_world.hpp"

namespace mayfly::sim {
namespace {

constexpr Duration kBadLinkTimeout = milliseconds(100);
constexpr Duration kHopMax = milliseconds(1);
constexpr Duration kLastWord = milliseconds(20);  // until a member learns that all are done
constexpr std::size_t kShortSendOneIn = 16;

}  // namespace

SimGroup::SimGroup(SimWorld& world, elastic::View view)
    : world_(world), view_(std::move(view)), parts_(view_.members.size()) {
  for (std::size_t rank = 0; rank < parts_.size(); ++rank) {
    parts_[rank].id = view_.members[rank].id;
  }
}

std::size_t SimGroup::rank_of(MemberId member) const {
  const auto place = std::find_if(parts_.begin(), parts_.end(),
                                  [member](const Part& part) { return part.id == member; });
  ENSURE(place != parts_.end(), "only members of the view use its group");
  return static_cast<std::size_t>(place - parts_.begin());
}

// --- forming

void SimGroup::enter(MemberId member) {
  Part& part = parts_[rank_of(member)];
  ENSURE(!part.entered, "a member enters once");
  part.entered = true;
  connect(part);
  ++entered_;
  if (gone_) {
    tell_broken(member, *gone_, Duration::zero());
    return;
  }
  if (entered_ < parts_.size()) {
    return;
  }
  for (const elastic::ViewMember& m : view_.members) {
    if (const auto partner = world_.bad_partner(m.id, view_)) {
      tell_broken(m.id, *partner, kBadLinkTimeout);
    }
    world_.at_worker(m.id, world_.draw_delay(milliseconds(3)),
                     [id = view_.id](SimWorker& worker) { worker.on_group_formed(id); });
  }
}

void SimGroup::connect(Part& part) {
  const std::size_t from = rank_of(part.id);
  part.last_arrival.resize(parts_.size());
  for (std::size_t to = 0; to < parts_.size(); ++to) {
    collectives::TcpPeer peer;
    peer.member = parts_[to].id;
    if (to != from) {
      peer.channel = std::make_unique<SimChannel>(
          [this, from, to](ByteSpan data, bool more) { return accept(from, to, data, more); });
    }
    part.peers.push_back(std::move(peer));
  }
}

// --- the network between members

std::size_t SimGroup::accept(std::size_t from, std::size_t to, ByteSpan data, bool more) {
  Part& sender = parts_[from];
  world_.lease_checker().on_touch(sender.id, view_.id);
  std::size_t bytes = data.size();
  if (bytes > 1 && world_.draw_below(kShortSendOneIn) == 0) {  // the socket's buffer is full
    bytes = 1 + world_.draw_below(bytes - 1);
    more = false;
    world_.at_worker(sender.id, world_.draw_delay(kHopMax), [this, from](SimWorker& worker) {
      if (worker.runs(view_.id)) {
        pump(from);
      }
    });
  }
  ENSURE(sender.unsent.empty() || sender.unsent_to == to, "what follows at once goes to the same");
  sender.unsent_to = to;
  sender.unsent.insert(sender.unsent.end(), data.begin(),
                       data.begin() + static_cast<std::ptrdiff_t>(bytes));
  if (!more) {
    deliver(from, to, std::exchange(sender.unsent, {}));
  }
  return bytes;
}

void SimGroup::deliver(std::size_t from, std::size_t to, Bytes data) {
  if (cut_.contains(std::minmax(from, to))) {
    return;
  }
  const Duration delay = world_.in_order(parts_[from].last_arrival[to], world_.draw_delay(kHopMax));
  world_.at_worker(parts_[to].id, delay, [this, from, to, data = std::move(data)](SimWorker& w) {
    if (w.runs(view_.id) && parts_[to].peers[from].channel) {
      static_cast<SimChannel&>(*parts_[to].peers[from].channel).arrived(data);
      pump(to);
    }
  });
}

void SimGroup::end_connection(std::size_t from, std::size_t to, Duration late) {
  const Duration delay =
      world_.in_order(parts_[from].last_arrival[to],
                      late + world_.draw_delay(world_.scenario().faults.break_delay_max));
  world_.at_worker(parts_[to].id, delay, [this, from, to](SimWorker& worker) {
    if (worker.runs(view_.id) && parts_[to].peers[from].channel) {
      static_cast<SimChannel&>(*parts_[to].peers[from].channel).end();
      pump(to);
      (void)is_end_broken(to);
    }
  });
}

// --- all-reduces

std::size_t SimGroup::reducing() const {
  const bool early = world_.scenario().sabotage == Sabotage::kReducesTooEarly;
  return early && parts_.size() > 1 ? parts_.size() - 1 : parts_.size();
}

void SimGroup::contribute(MemberId member, std::uint64_t step, Contribution contribution) {
  const std::size_t rank = rank_of(member);
  Part& part = parts_[rank];
  ENSURE(!part.exchange, "a member is in one all-reduce at a time");
  auto& contributed = contributed_[step];
  contributed.resize(parts_.size());
  contributed[rank] = std::move(contribution.microbatches);
  part.step = step;
  std::copy(contribution.sum.gradient.begin(), contribution.sum.gradient.end(), part.lanes.begin());
  part.lanes[kGradientLanes] = contribution.sum.samples;
  part.lanes[kGradientLanes + 1] = contribution.boundary ? 1 : 0;
  const std::uint64_t check = contribution.state_check.value_or(0);
  part.lanes[kGradientLanes + 2] = check;
  part.lanes[kGradientLanes + 3] = check * check;
  part.lanes[kGradientLanes + 4] = contribution.state_check ? 1 : 0;
  if (contribution.state_check) {
    compared_[step].insert(member);
  }
  part.bucket = 0;
  world_.lease_checker().on_start(member, view_.id);
  if (rank < reducing()) {
    begin_bucket(rank);
  }
}

bool SimGroup::has_compared(MemberId member, std::uint64_t step) const {
  const auto place = compared_.find(step);
  return place != compared_.end() && place->second.contains(member);
}

std::span<std::uint64_t> SimGroup::bucket_of(Part& part) const {
  const std::size_t buckets = world_.scenario().buckets;
  const collectives::Segment segment = collectives::segment_of(
      kLanes, static_cast<std::uint32_t>(buckets), static_cast<std::uint32_t>(part.bucket));
  return std::span(part.lanes).subspan(segment.offset, segment.count);
}

void SimGroup::begin_bucket(std::size_t rank) {
  Part& part = parts_[rank];
  if (reducing() == 1) {
    part.bucket = world_.scenario().buckets;
    hand_over(rank);
    return;
  }
  part.operation = collectives::numbered(
      {.data = std::as_writable_bytes(bucket_of(part)), .type = collectives::DataType::kInt64},
      ++part.operations);
  part.exchange = make_exchange(rank);
  pump(rank);
}

std::unique_ptr<collectives::Exchange> SimGroup::make_exchange(std::size_t rank) {
  Part& part = parts_[rank];
  const std::span<collectives::TcpPeer> peers = std::span(part.peers).first(reducing());
  const std::span<std::byte> scratch = world_.scratch_of(part.id);
  switch (world_.scenario().exchange) {
    case ExchangeKind::kRing:
      return collectives::make_ring_exchange(part.operation, rank, peers, scratch);
    case ExchangeKind::kDoubling:
      return collectives::make_doubling_exchange(part.operation, rank, peers, scratch);
    case ExchangeKind::kOneShot:
      return collectives::make_one_shot_exchange(part.operation, rank, peers, scratch);
    case ExchangeKind::kTwoShot:
      return collectives::make_two_shot_exchange(part.operation, rank, peers, scratch);
  }
  UNREACHABLE("every kind of exchange can be made");
}

/// Moves bytes, like the thread of a link after a connection has woken it.
void SimGroup::pump(std::size_t rank) {
  Part& part = parts_[rank];
  while (part.exchange && !part.exchange->complete()) {
    const Result<bool> moved = part.exchange->pump();
    if (!moved.ok()) {
      fail(rank, moved.error().culprit.value_or(part.id));
      return;
    }
    if (!moved.value()) {
      break;
    }
    world_.lease_checker().on_touch(part.id, view_.id);
  }
  if (!part.exchange) {
    return;
  }
  if (part.exchange->complete()) {
    finish_bucket(rank);
    return;
  }
  for (std::size_t other = 0; other < reducing(); ++other) {
    const auto* channel = static_cast<const SimChannel*>(part.peers[other].channel.get());
    if (channel != nullptr && channel->ended() && part.exchange->wants_of(other).presence) {
      fail(rank, parts_[other].id);
      return;
    }
  }
}

void SimGroup::finish_bucket(std::size_t rank) {
  Part& part = parts_[rank];
  part.exchange.reset();
  if (++part.bucket < world_.scenario().buckets) {
    begin_bucket(rank);
  } else {
    hand_over(rank);
  }
}

/// Passes the step's complete sums to this member's worker.
void SimGroup::hand_over(std::size_t rank) {
  Part& part = parts_[rank];
  world_.lease_checker().on_end(part.id, view_.id);
  if (world_.misses_this_sum(part.id)) {
    const MemberId culprit = parts_[(rank + 1) % parts_.size()].id;
    world_.at_worker(culprit, Duration::zero(), [](SimWorker& worker) { worker.die(false); });
    fail(rank, culprit);
    return;
  }
  if (reduced_.insert(part.step).second) {
    world_.on_reduced(view_.id, part.step, contributed_.at(part.step));
  }
  ToySum sum;
  std::copy_n(part.lanes.begin(), kGradientLanes, sum.gradient.begin());
  sum.samples = part.lanes[kGradientLanes];
  const bool boundary = part.lanes[kGradientLanes + 1] > 0;
  // If all checks are equal, each is their sum divided by their count, and the square of their sum
  // is their count times the sum of their squares. For different checks that is very unlikely, even
  // though the arithmetic is modulo 2^64.
  const std::uint64_t checks = part.lanes[kGradientLanes + 2];
  const std::uint64_t count = part.lanes[kGradientLanes + 4];
  std::optional<std::uint64_t> agreed;
  if (checks * checks == count * part.lanes[kGradientLanes + 3]) {
    agreed = count == 0 ? 0 : checks / count;
  }
  const auto tell = [this, step = part.step, sum, boundary, agreed](std::size_t whom,
                                                                    Duration delay) {
    world_.at_worker(parts_[whom].id, delay,
                     [id = view_.id, step, sum, boundary, agreed](SimWorker& worker) {
                       worker.on_reduced(id, step, sum, boundary, agreed);
                     });
  };
  tell(rank, Duration::zero());
  if (rank == 0 && reducing() < parts_.size()) {
    tell(reducing(), kHopMax);
  }
}

void SimGroup::fail(std::size_t rank, MemberId culprit) {
  Part& part = parts_[rank];
  cancel(part);
  world_.at_worker(part.id, Duration::zero(), [id = view_.id, culprit](SimWorker& worker) {
    worker.on_group_broken(id, culprit);
  });
}

/// Ends the member's exchange: no bytes are moved into or out of its buffers any more.
void SimGroup::cancel(Part& part) {
  part.exchange.reset();
  world_.lease_checker().on_end(part.id, view_.id);
}

// --- after the last step

void SimGroup::at_end(MemberId member) {
  const std::size_t rank = rank_of(member);
  parts_[rank].at_end = true;
  if (is_end_broken(rank)) {
    return;
  }
  if (!std::all_of(parts_.begin(), parts_.end(), [](const Part& part) { return part.at_end; })) {
    return;
  }
  for (const Part& part : parts_) {
    world_.at_worker(part.id, world_.draw_delay(kLastWord),
                     [id = view_.id](SimWorker& worker) { worker.on_all_at_end(id); });
  }
  world_.maybe_crash_at_end(view_);
}

/// Fails this member's group, and returns true, if another member left before it learned that all
/// are done while this member still waits for that message. In the product the message may come
/// through the member that left.
bool SimGroup::is_end_broken(std::size_t rank) {
  if (!parts_[rank].at_end || parts_[rank].has_heard) {
    return false;
  }
  for (std::size_t other = 0; other < parts_.size(); ++other) {
    const auto* channel = static_cast<const SimChannel*>(parts_[rank].peers[other].channel.get());
    if (channel != nullptr && channel->ended() && !parts_[other].has_heard) {
      fail(rank, parts_[other].id);
      return true;
    }
  }
  return false;
}

// --- leaving

void SimGroup::leave(MemberId member) {
  const std::size_t rank = rank_of(member);
  Part& part = parts_[rank];
  if (part.left) {
    return;
  }
  part.left = true;
  cancel(part);
  const bool formed = entered_ == parts_.size();
  if (!gone_) {
    gone_ = member;
  }
  for (std::size_t other = 0; other < parts_.size(); ++other) {
    if (other == rank || !parts_[other].entered || parts_[other].left) {
      continue;
    }
    if (formed) {
      end_connection(rank, other, Duration::zero());
    } else {
      tell_broken(parts_[other].id, member, Duration::zero());
    }
  }
}

void SimGroup::vanish(MemberId member) {
  Part& part = parts_[rank_of(member)];
  part.left = true;
  cancel(part);
}

void SimGroup::cut(MemberId one, MemberId other) {
  const auto is_member = [this](MemberId member) {
    return std::any_of(parts_.begin(), parts_.end(),
                       [member](const Part& part) { return part.id == member; });
  };
  if (!is_member(one) || !is_member(other) || entered_ < parts_.size()) {
    return;
  }
  const std::size_t first = rank_of(one);
  const std::size_t second = rank_of(other);
  cut_.insert(std::minmax(first, second));
  end_connection(first, second, kBadLinkTimeout);
  end_connection(second, first, kBadLinkTimeout);
}

bool SimGroup::is_cut(MemberId one, MemberId other) const {
  return cut_.contains(std::minmax(rank_of(one), rank_of(other))) ||
         world_.bad_partner(one, view_) == other;
}

void SimGroup::tell_broken(MemberId member, MemberId culprit, Duration grace) {
  const Duration delay = grace + world_.draw_delay(world_.scenario().faults.break_delay_max);
  world_.at_worker(member, delay, [id = view_.id, culprit](SimWorker& worker) {
    worker.on_group_broken(id, culprit);
  });
}

}  // namespace mayfly::sim
