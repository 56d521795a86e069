#include "engine/training/state_exchange.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <string>
#include <utility>

#include "base/check.hpp"
#include "base/log.hpp"
#include "base/try_assign.hpp"
#include "engine/config/bind_host.hpp"
#include "engine/state/state_sync.hpp"

namespace mayfly::engine {
namespace {

constexpr std::uint64_t kQueueBytesMax = std::uint64_t{1} << 30;
// If a donor dies, its connection breaks before the coordinator's Stop arrives, and the next view
// brings a new copy. The join is given up only if there is no next view for this time.
constexpr Duration kPatience = seconds(2);

/// The host on which the transport of this worker already listens.
std::string host_of(const JobConfig& config) {
  const Result<std::string> host = listening_host(config.bind_host);
  return host.ok() ? host.value() : config.bind_host;
}

}  // namespace

StateExchange::StateExchange(const StateExchangeParts& parts)
    : token_(parts.token),
      client_(parts.client),
      computer_(parts.computer),
      state_(parts.state),
      work_(parts.work),
      buckets_(parts.buckets),
      tuner_(parts.tuner),
      part_(parts.part),
      activity_(parts.activity),
      means_(parts.layout, parts.job.microbatches),
      donor_(host_of(parts.job.config), StateDonor::Priority::kLow, parts.token),
      sender_(host_of(parts.job.config), StateDonor::Priority::kUsual, parts.token) {}

void StateExchange::wait_until_copied() {
  donor_.wait_until_copied();
  sender_.wait_until_copied();
}

void StateExchange::begin_view(const elastic::View& view) {
  std::vector<ViewId> wanted;
  for (const elastic::ViewMember& member : view.members) {
    if (member.is_observer()) {
      wanted.push_back(member.observes);
    }
  }
  donor_.keep_only(wanted);
  sender_.keep_only({});
  observed_view_ = view.id;
  const elastic::ViewMember& self = view.members[value(part_.rank)];
  part_.observes = self.is_observer();
  if (!part_.observes) {
    observer_memory_.reset();
  }
  if (!part_.observes || (observer_.has_value() && observer_->since() != self.observes)) {
    observer_.reset();
  }
  if (part_.observes) {
    part_.position = view.committed;
  }
  if (observer_.has_value()) {
    observer_->resume_after(view.committed);
  }
}

Result<void> StateExchange::agree(const elastic::View& view, collectives::Group& group, int stop_fd,
                                  Instant deadline) {
  const TraceSpan traced = activity_.span("state sync");
  activity_.turn_to(elastic::Activity::kSync);
  if (view.has_observers()) {
    return agree_with_observers(view, group, deadline);
  }
  ENSURE(state_.committed() <= view.committed, "no member is ahead of its view");
  if (view.anyone_behind() || tuner_.tries()) {
    return catch_up(view, group, stop_fd, deadline);
  }
  ENSURE(state_.committed() == view.committed, "no member is behind, so neither is this one");
  return {};
}

/// Sends the state to members that lack it. All other members exchange addresses and continue: they
/// need the members that are behind only in the reduction. The exchange also brings all bucket
/// tuners to the same content. It is needed even if no member is behind, because a joining worker
/// that already has the state does not have the content of the tuner.
Result<void> StateExchange::catch_up(const elastic::View& view, collectives::Group& group,
                                     int stop_fd, Instant deadline) {
  const bool is_behind = state_.committed() < view.committed;
  const bool gives = !is_behind && view.anyone_behind();
  const DonorAddress own = gives ? offer_to_members_behind(view) : DonorAddress{};
  TRY_ASSIGN(const auto senders, exchange_senders(group, own, tuner_, deadline));
  return is_behind ? take_state(view, senders, stop_fd) : Result<void>();
}

/// The state does not change before it is copied, because the next commit waits for the copy.
DonorAddress StateExchange::offer_to_members_behind(const elastic::View& view) {
  const std::size_t bytes = state_.packed_size();
  const std::vector<Rank> senders = senders_of(view, bytes);
  const auto place = std::find(senders.begin(), senders.end(), part_.rank);
  if (place == senders.end()) {
    return {};
  }
  const Result<DonorAddress> address =
      offer(sender_, view,
            part_of(bytes, static_cast<std::size_t>(place - senders.begin()), senders.size()));
  if (!address.ok()) {  // a member that is behind fails, and the view ends
    log::warning("no state for a member that is behind: " + address.error().detail);
    return {};
  }
  return address.value();
}

Result<void> StateExchange::take_state(const elastic::View& view,
                                       const std::vector<DonorAddress>& senders, int stop_fd) {
  TRY_ASSIGN(const auto packed, fetch_state(view, senders, state_.packed_size(), stop_fd, token_));
  work_.discard();  // microbatches that are being computed read the weights
  TRY(state_.unpack(packed.span()));
  if (state_.committed() != view.committed) {
    return Error{Errc::kCorrupt, fmt::format("the state after step {} arrived instead of {}",
                                             value(state_.committed()), value(view.committed))};
  }
  return {};
}

Result<void> StateExchange::agree_with_observers(const elastic::View& view,
                                                 collectives::Group& group, Instant deadline) {
  ENSURE(part_.observes || state_.committed() == view.committed,
         "a member with work has the state");
  observed_exponents_ = state_.exponents();
  observed_scale_ = state_.loss_scale();
  TRY(sync_observers(group, view, part_.observes, observed_exponents_, observed_scale_, tuner_,
                     deadline));
  const bool copy_wanted =
      std::any_of(view.members.begin(), view.members.end(),
                  [&view](const auto& member) { return member.observes == view.id; });
  return copy_wanted ? exchange_states(view, group, deadline) : Result<void>();
}

Result<void> StateExchange::exchange_states(const elastic::View& view, collectives::Group& group,
                                            Instant deadline) {
  const Result<DonorAddress> own = offer_to_observers(view);
  if (!own.ok()) {  // the joiner will not get its state and leaves again
    log::warning("no state for a joining member: " + own.error().detail);
  }
  TRY_ASSIGN(const auto all,
             exchange_addresses(group, own.ok() ? own.value() : DonorAddress{}, deadline));
  if (view.members[value(part_.rank)].observes == view.id) {
    begin_observer(view, all);
  }
  return {};
}

Result<DonorAddress> StateExchange::offer_to_observers(const elastic::View& view) {
  const std::vector<Rank> donors = elastic::donors_of(view);
  const auto place = std::find(donors.begin(), donors.end(), part_.rank);
  if (place == donors.end()) {
    return DonorAddress{};
  }
  return offer(donor_, view,
               part_of(state_.packed_size(), static_cast<std::size_t>(place - donors.begin()),
                       donors.size()));
}

Result<DonorAddress> StateExchange::offer(StateDonor& donor, const elastic::View& view,
                                          PartRange part) {
  state_.prepare_to_pack();
  return donor.offer(
      view.id, view.key,
      [this](std::size_t first, std::span<std::byte> out) { state_.pack(first, out); }, part);
}

void StateExchange::begin_observer(const elastic::View& view,
                                   const std::vector<DonorAddress>& donors) {
  StateSource source{view.id, view.key, view.committed, {}, token_};
  for (const Rank donor : elastic::donors_of(view)) {
    source.donors.push_back(donors[value(donor)]);
  }
  expects_check_ = true;
  std::optional<ObserverMemory> memory = std::exchange(observer_memory_, std::nullopt);
  if (!memory.has_value()) {
    memory = make_observer_memory(state_, means_);
  }
  observer_.emplace(std::move(*memory), std::move(source), kQueueBytesMax, [this](Step committed) {
    client_.post(elastic::member_event::StateCaughtUp{observed_view_, committed});
  });
}

void StateExchange::before_commit() {
  if (donor_.copy_count() + sender_.copy_count() > 0) {
    const TraceSpan waiting = activity_.span("wait for state copy");
    wait_until_copied();
    sender_.keep_only({});  // this step's reduction is complete, so no member is behind any more
  }
  take_state_if_caught_up();
  check_invariants();
}

/// Invariants before a step is committed.
void StateExchange::check_invariants() const {
  ENSURE(!observer_ || part_.observes, "only a member without the state receives it");
  ENSURE(part_.observes || part_.position == state_.committed(),
         "a member that has the state commits the view's next step to it");
}

double StateExchange::observe(const ReducedStep& reduced) {
  const std::vector<std::int32_t>& exponents = work_.exponents();
  const bool skips = reduced.skips_update();
  if (observed_scale_.has_value()) {
    observed_scale_ = observed_scale_->after_step(skips);
  }
  if (!observer_.has_value() || observer_->failure().has_value()) {
    if (!skips) {
      observed_exponents_ = buckets_.next_exponents(next(part_.position), exponents);
    }
    give_up_if_failed();
    return 0;
  }
  if (std::exchange(expects_check_, false)) {
    observer_->expect(reduced.state_check);
  }
  ObservedStep step = observer_->blank();
  step.step = next(part_.position);
  step.is_skipped = skips;
  if (skips) {
    observer_->add(std::move(step));
    return means_.loss(buckets_, exponents);
  }
  buckets_.fetch_sums();
  means_.observe(buckets_, exponents, computer_, step);
  observed_exponents_ = step.next_exponents;
  const double loss = step.means[0];
  observer_->add(std::move(step));
  return loss;
}

void StateExchange::take_state_if_caught_up() {
  if (!part_.observes || !observer_.has_value() || !observer_->caught_up()) {
    return;
  }
  observer_->hand_over();
  observer_.reset();
  part_.observes = false;
  work_.forget();  // it was begun with the memory of the state before
  ENSURE(state_.committed() == part_.position, "a caught-up state is that of the view");
  log::info(fmt::format("caught up after step {}", value(part_.position)));
  client_.post(elastic::member_event::StateCaughtUp{observed_view_, part_.position});
}

Step StateExchange::observed() const {
  return part_.observes && observer_.has_value() ? observer_->observed() : Step{};
}

void StateExchange::give_up_if_failed() {
  const auto failure =
      observer_.has_value()
          ? observer_->failure()
          : Observer::Failure{{Errc::kAborted, "its copy is no longer available"}, {}};
  if (gave_up_ || !failure.has_value() || monotonic_now() - failure->at < kPatience) {
    return;
  }
  gave_up_ = true;
  const std::string why = "the state of the job did not arrive: " + failure->error.detail;
  log::warning(why);
  client_.post(elastic::member_event::LeaveAsked{why});
}

}  // namespace mayfly::engine
