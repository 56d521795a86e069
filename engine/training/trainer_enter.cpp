// From the boundary that ends one view to the first step of the next: what the compute threads do
// meanwhile, and how this member comes to the view's state.

#include <fmt/format.h>

#include <algorithm>

#include "base/check.hpp"
#include "base/log.hpp"
#include "elastic/core/early_work.hpp"
#include "engine/state/state_sync.hpp"
#include "engine/training/trainer.hpp"
#include "nn/checkpoint.hpp"

namespace mayfly::engine {

/// The compute threads begin with the view's first step while this thread forms the group, which
/// they do not need, and compares states. Whatever else they still have in hand is of no use if it
/// is not of this step; then it is only taken from them.
void Trainer::work_ahead(const elastic::View& view) {
  if (observes_ || state_.committed != view.committed) {
    parts_.pool.drop_queued();  // of a step that others have committed
    computing_ = {};
  }
  const elastic::MicrobatchSet share =
      elastic::work_before_group(view, view.members[value(rank_)], state_.committed);
  if (share.empty() || value(view.committed) >= parts_.job.total_steps) {
    return;
  }
  position_ = view.committed;
  if (may_begin(share)) {
    compute_share(share);
  }
}

/// The view has ended at a boundary. Until the next one is announced the compute threads go on with
/// what they would have begun with.
void Trainer::work_on(const elastic::View& ended) {
  const elastic::MicrobatchSet share = elastic::work_at_boundary(
      ended.members[value(rank_)], !observes_ && parts_.link.stays_after(ended.id),
      static_cast<std::uint32_t>(parts_.pool.thread_count()));
  if (!share.empty() && value(position_) < parts_.job.total_steps && may_begin(share)) {
    compute_share(share);
  }
}

/// At once: nothing that is being computed has to be thrown away first, which takes a microbatch.
bool Trainer::may_begin(const elastic::MicrobatchSet& share) const {
  const bool goes_on = computing_ == next(position_) && held_.minus(share).empty();
  return attempt_ == 0 && (computing_ == Step{} || goes_on);
}

Result<void> Trainer::enter(const elastic::View& view, collectives::Group& group) {
  parts_.client.post(elastic::member_event::GroupFormed{view.id});
  Result<void> synced = agree(view, group);
  if (!synced.ok()) {
    return synced;
  }
  position_ = view.committed;
  if (!observes_) {
    parts_.client.post(elastic::member_event::StateSynced{view.id});
    repeat_recent_records(view);
  }
  if (attempt_ > 0) {  // raised exponents are not agreed on yet: the step starts over
    parts_.pool.discard();
    computing_ = {};
  }
  return {};
}

Result<void> Trainer::agree(const elastic::View& view, collectives::Group& group) {
  const TraceSpan traced = span("state sync");
  turn_to(elastic::Activity::kSync);
  const Instant deadline = monotonic_now() + kStepTimeout;
  if (view.has_observers()) {
    return agree_with_observers(view, group, deadline);
  }
  ENSURE(state_.committed <= view.committed, "no member is ahead of its view");
  if (view.anyone_behind()) {
    return catch_up(view, group, deadline);
  }
  ENSURE(state_.committed == view.committed, "nobody is behind, so neither are we");
  return {};
}

/// The state goes to those who lack it. All others are told where it can be had, and go on: they
/// need who is behind only in the reduction.
Result<void> Trainer::catch_up(const elastic::View& view, collectives::Group& group,
                               Instant deadline) {
  const bool is_behind = state_.committed < view.committed;
  const DonorAddress own = is_behind ? DonorAddress{} : send_state(view);
  const Result<std::vector<DonorAddress>> senders =
      exchange_senders(group, view, own, is_behind, tuner_, deadline);
  if (!senders.ok()) {
    return senders.error();
  }
  return is_behind ? take_state(view, senders.value()) : Result<void>();
}

/// Nothing that is sent changes before it is copied: the next commit waits for that.
DonorAddress Trainer::send_state(const elastic::View& view) {
  const std::size_t bytes = nn::packed_state_size(state_);
  const std::vector<Rank> senders = senders_of(view, bytes);
  const auto place = std::find(senders.begin(), senders.end(), rank_);
  if (place == senders.end()) {
    return {};
  }
  const Result<DonorAddress> address = sender_.offer(
      view.id, view.key, state_here(),
      part_of(bytes, static_cast<std::size_t>(place - senders.begin()), senders.size()));
  if (!address.ok()) {  // who is behind will say so, and the view ends
    log::warning("no state for a member that is behind: " + address.error().detail);
    return {};
  }
  return address.value();
}

Result<void> Trainer::take_state(const elastic::View& view,
                                 const std::vector<DonorAddress>& senders) {
  const Result<PackedBytes> packed =
      fetch_state(view, senders, nn::packed_state_size(state_), over_->fd(), parts_.token);
  if (!packed.ok()) {
    return packed.error();
  }
  parts_.pool.discard();  // what is being computed reads the weights
  TRY(nn::unpack_state(packed.value().span(), state_));
  host_copy_.replaced();
  if (state_.committed != view.committed) {
    return Error{Errc::kCorrupt, fmt::format("the state after step {} came instead of {}",
                                             value(state_.committed), value(view.committed))};
  }
  return {};
}

}  // namespace mayfly::engine
