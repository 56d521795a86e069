// The compute thread of a simulated worker. It outlives views, as the product's does: what it was
// given goes on being computed while one group ends and the next one forms.

#include "elastic/core/view.hpp"
#include "tests/sim/sim_world.hpp"

namespace mayfly::sim {

using namespace elastic;

void SimWorker::begin_step(const MicrobatchSet& share) {
  compute_share(committed_ + 1, share);
  awaits_work_ = true;
  if (!is_busy_) {
    contribute();
  }
}

/// While the group forms.
void SimWorker::work_ahead() {
  const Sabotage sabotage = world_.scenario().sabotage;
  if ((observes_ || committed_ != value(view_->committed)) &&
      sabotage != Sabotage::kKeepsStaleSums) {
    discard_work();
  }
  // Who is behind does not wait for the state.
  const bool too_soon = sabotage == Sabotage::kWorksOnOldWeights && !observes_;
  const ViewMember& self = self_in_view();
  const MicrobatchSet share =
      work_before_group(*view_, self, too_soon ? view_->committed : Step{committed_});
  if (!share.empty() && value(view_->committed) < world_.scenario().steps) {
    world_.count_kept(held_.minus(held_.minus(share)).count());
    compute_share(value(view_->committed) + 1, share);
  }
}

/// After the boundary at which the view ends.
void SimWorker::work_on() {
  const MicrobatchSet share = work_at_boundary(self_in_view(), !observes_ && stays_, 1);
  if (!share.empty() && position_ < world_.scenario().steps) {
    compute_share(position_ + 1, share);
  }
}

void SimWorker::compute_share(std::uint64_t step, const MicrobatchSet& share) {
  const bool keep = computing_ == step && held_.minus(share).empty();
  if (!keep && world_.scenario().sabotage != Sabotage::kKeepsStaleSums) {
    discard_work();
  }
  computing_ = step;
  for (const std::uint32_t microbatch : share.minus(held_).list()) {
    queue_.push_back(microbatch);
  }
  held_ = share;
  if (!is_busy_) {
    compute_next();
  }
}

void SimWorker::compute_next() {
  if (queue_.empty()) {
    if (awaits_work_) {
      contribute();
    }
    return;
  }
  is_busy_ = true;
  turned_to_ = world_.now();
  const std::uint32_t microbatch = queue_.front();
  queue_.pop_front();
  world_.at_worker(*id_, microbatch_time_, [microbatch, until = discarded_](SimWorker& w) {
    if (w.discarded_ != until) {
      return;
    }
    w.is_busy_ = false;
    w.computing_time_ += w.world_.clock_of(w.index_).shown(w.world_.now() - w.turned_to_);
    ++w.computed_;
    w.held_sum_ += w.world_.sum_of(w.state_, w.computing_, microbatch);
    w.compute_next();
  });
}

/// Of another step than the one that is to be computed, or from other weights.
void SimWorker::discard_work() {
  ++discarded_;
  queue_.clear();
  is_busy_ = false;
  computing_ = 0;
  held_ = {};
  held_sum_ = {};
}

MicrobatchSet SimWorker::held_for_next_step() const {
  return computing_ == committed_ + 1 ? held_ : MicrobatchSet{};
}

}  // namespace mayfly::sim
