// Joining a job whose state is large (ADR 16): the trainer of a worker that takes the state in the
// background, and of those that give it.

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "base/check.hpp"
#include "base/log.hpp"
#include "engine/state/state_sync.hpp"
#include "engine/training/trainer.hpp"
#include "nn/checkpoint.hpp"

namespace mayfly::engine {
namespace {

constexpr std::uint64_t kQueueBytesMax = std::uint64_t{1} << 30;
// A donor that dies breaks its connection before the coordinator's word is here: a new view then
// brings a new copy. Only if none comes is the join given up.
constexpr Duration kPatience = seconds(2);

}  // namespace

void Trainer::begin_observing(const elastic::View& view) {
  std::vector<ViewId> wanted;
  for (const elastic::ViewMember& member : view.members) {
    if (member.is_observer()) {
      wanted.push_back(member.observes);
    }
  }
  donor_.keep_only(wanted);
  sender_.keep_only({});
  observed_view_ = view.id;
  const elastic::ViewMember& self = view.members[value(rank_)];
  observes_ = self.is_observer();
  if (!observes_) {
    observer_memory_.reset();
  }
  if (!observes_ || (observer_.has_value() && observer_->since() != self.observes)) {
    observer_.reset();
  }
  if (observes_) {
    position_ = view.committed;
    parts_.recent_records.clear();  // they will have come from others
  }
  if (observer_.has_value()) {
    observer_->resume_after(view.committed);
  }
}

Result<void> Trainer::agree_with_observers(const elastic::View& view, collectives::Group& group,
                                           Instant deadline) {
  ENSURE(observes_ || state_.committed == view.committed, "who has work has the state");
  observed_exponents_ = state_.exponents;
  observed_scale_ = state_.loss_scale;
  if (Result<void> synced = sync_observers(group, view, observes_, observed_exponents_,
                                           observed_scale_, tuner_, deadline);
      !synced.ok()) {
    return synced;
  }
  const bool copy_wanted =
      std::any_of(view.members.begin(), view.members.end(),
                  [&view](const auto& member) { return member.observes == view.id; });
  return copy_wanted ? give_and_take_state(view, group, deadline) : Result<void>();
}

Result<void> Trainer::give_and_take_state(const elastic::View& view, collectives::Group& group,
                                          Instant deadline) {
  const Result<DonorAddress> own = offer_state(view);
  if (!own.ok()) {  // the joiner will not get its state and leaves again
    log::warning("no state for a joiner: " + own.error().detail);
  }
  Result<std::vector<DonorAddress>> all =
      exchange_addresses(group, own.ok() ? own.value() : DonorAddress{}, deadline);
  if (!all.ok()) {
    return all.error();
  }
  if (view.members[value(rank_)].observes == view.id) {
    StateSource source{view.id, view.key, view.committed, {}, parts_.token};
    for (const Rank donor : elastic::donors_of(view)) {
      source.donors.push_back(all.value()[value(donor)]);
    }
    expects_check_ = true;
    std::optional<ObserverMemory> memory = std::exchange(observer_memory_, std::nullopt);
    if (!memory.has_value()) {
      memory.emplace(state_, committer_);
    }
    observer_.emplace(
        std::move(*memory), committer_, std::move(source), kQueueBytesMax, [this](Step committed) {
          parts_.client.post(elastic::member_event::StateCaughtUp{observed_view_, committed});
        });
  }
  return {};
}

Result<DonorAddress> Trainer::offer_state(const elastic::View& view) {
  const std::vector<Rank> donors = elastic::donors_of(view);
  const auto place = std::find(donors.begin(), donors.end(), rank_);
  if (place == donors.end()) {
    return DonorAddress{};
  }
  return donor_.offer(view.id, view.key, state_here(),
                      part_of(nn::packed_state_size(state_),
                              static_cast<std::size_t>(place - donors.begin()), donors.size()));
}

double Trainer::observe(const ReducedStep& reduced) {
  const bool skips = reduced.skips_update();
  if (observed_scale_.has_value()) {
    observed_scale_ = observed_scale_->after_step(skips);
  }
  if (!observer_.has_value() || observer_->failure().has_value()) {
    if (!skips) {
      observed_exponents_ = buckets_.next_exponents(next(position_), exponents_);
    }
    give_up_if_failed();
    return 0;
  }
  if (std::exchange(expects_check_, false)) {
    observer_->expect(reduced.state_check);
  }
  ObservedStep step = observer_->blank();
  step.step = next(position_);
  step.is_skipped = skips;
  if (skips) {
    observer_->add(std::move(step));
    return committer_.loss_of_skipped(buckets_, exponents_);
  }
  buckets_.fetch_sums();
  committer_.observe(buckets_, exponents_, parts_.pool, step);
  observed_exponents_ = step.next_exponents;
  const double loss = step.means[0];
  observer_->add(std::move(step));
  return loss;
}

void Trainer::take_state_if_caught_up() {
  if (!observes_ || !observer_.has_value() || !observer_->caught_up()) {
    return;
  }
  state_ = observer_->take_state();
  host_copy_.replaced();
  observer_.reset();
  observes_ = false;
  computing_ = {};  // it was begun with the memory of the state before
  ENSURE(state_.committed == position_, "a caught-up state is that of the view");
  log::info(fmt::format("caught up after step {}", value(position_)));
  parts_.client.post(elastic::member_event::StateCaughtUp{observed_view_, position_});
}

void Trainer::give_up_if_failed() {
  const auto failure = observer_.has_value()
                           ? observer_->failure()
                           : Observer::Failure{{Errc::kAborted, "its copy is gone"}, {}};
  if (gave_up_ || !failure.has_value() || monotonic_now() - failure->at < kPatience) {
    return;
  }
  gave_up_ = true;
  const std::string why = "the state of the job did not come: " + failure->error.detail;
  log::warning(why);
  parts_.client.post(elastic::member_event::LeaveAsked{why});
}

}  // namespace mayfly::engine
