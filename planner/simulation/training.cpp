#include "planner/simulation/training.hpp"

#include <algorithm>

namespace mayfly::planner {

Training::Training(const Market& market, const JobModel& job, const Candidate& candidate)
    : job_(job),
      workers_(candidate.workers),
      checkpoint_every_s_(candidate.checkpoint_every_s),
      set_(market, job, candidate),
      progress_(job, checkpoint_every_s_, set_.full_speed()) {}

void Training::begin(const PathDraws& draws) {
  speed_factor_ = draws.factor("speed", 0, job_.speed_log_sd);
  progress_ = Progress(job_, checkpoint_every_s_, set_.full_speed() * speed_factor_);
  set_.clear();
  begins_s_ = kNever;
  has_begun_ = has_been_full_ = has_lost_all_ = false;
  losses_ = all_lost_ = 0;
}

void Training::join(std::size_t offer) {
  const double now_s = progress_.now();
  const bool is_first = set_.size() == 0;
  set_.join(offer);
  begins_s_ = std::min(begins_s_, now_s + job_.first_wait_s);
  if (is_first && has_lost_all_) {
    progress_.stop_until(now_s + job_.restore_s);
  } else if (!is_first && has_begun_) {
    progress_.stop_until(now_s + job_.join_stop_s);
  }
  has_lost_all_ = false;
}

void Training::leave(std::size_t offer) {
  set_.leave(offer);
}

void Training::lose(std::size_t offer) {
  ++losses_;
  set_.leave(offer);
  if (!has_begun_) {
    return;
  }
  progress_.stop_until(progress_.now() + job_.recovery_s);
  if (set_.size() == 0) {
    ++all_lost_;
    has_lost_all_ = true;
    progress_.lose_state();
  }
}

void Training::update(bool is_stock_out) {
  has_been_full_ = has_been_full_ || set_.size() >= workers_;
  has_begun_ = has_begun_ || has_been_full_ || progress_.now() >= begins_s_;
  Shortage why = Shortage::kNone;
  if (set_.size() < workers_) {
    why = is_stock_out      ? Shortage::kStockOut
          : !has_been_full_ ? Shortage::kStarting
                            : Shortage::kLost;
  }
  const bool works = has_begun_ && set_.size() > 0;
  progress_.set_speed(works ? set_.speed() * speed_factor_ : 0, why);
}

double Training::speed_on(std::size_t offer) const {
  return set_.speed_on(offer) * speed_factor_;
}

void Training::report(PathOutcome& outcome) const {
  outcome.losses = losses_;
  outcome.all_lost = all_lost_;
  progress_.report(outcome);
}

}  // namespace mayfly::planner
