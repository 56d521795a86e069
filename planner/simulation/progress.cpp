#include "planner/simulation/progress.hpp"

#include <algorithm>
#include <cmath>

namespace mayfly::planner {

Progress::Progress(const JobModel& job, double checkpoint_every_s, double full_speed)
    : work_(job.work),
      every_s_(checkpoint_every_s),
      useful_(checkpoint_every_s > 0 ? checkpoint_every_s / (checkpoint_every_s + job.checkpoint_s)
                                     : 1),
      full_speed_(full_speed) {}

void Progress::advance(double to_s) {
  const double stands = std::clamp(stopped_until_s_ - now_s_, 0.0, to_s - now_s_);
  const double works = to_s - now_s_ - stands;
  now_s_ = to_s;
  const double share = full_speed_ > 0 ? std::min(1.0, speed_ / full_speed_) : 1;
  const double lost = works * (1 - share);
  switch (shortage_) {
    case Shortage::kNone: break;
    case Shortage::kStarting: account_.starting_s += lost; break;
    case Shortage::kLost: account_.missing_s += lost; break;
    case Shortage::kStockOut: account_.stock_out_s += lost; break;
  }
  account_.stopped_s += stands * share + works * share * (1 - useful_);
  if (speed_ <= 0) {
    return;
  }
  const double rate = speed_ * useful_;
  done_ += rate * works;
  since_saved_s_ += works;
  const double round_s = every_s_ / useful_;
  if (every_s_ > 0 && since_saved_s_ >= round_s) {
    since_saved_s_ = std::fmod(since_saved_s_, round_s);
    saved_ = done_ - rate * std::min(since_saved_s_, works);
  }
}

void Progress::set_speed(double speed, Shortage why) {
  speed_ = speed;
  shortage_ = why;
}

void Progress::stop_until(double at_s) {
  stopped_until_s_ = std::max(stopped_until_s_, at_s);
}

void Progress::lose_state() {
  account_.redone_s += full_speed_ > 0 ? (done_ - saved_) / full_speed_ : 0;
  done_ = saved_;
  since_saved_s_ = 0;
}

double Progress::finish_s() const {
  const double rate = speed_ * useful_;
  return rate > 0 ? std::max(now_s_, stopped_until_s_) + (work_ - done_) / rate : kNever;
}

void Progress::report(PathOutcome& outcome) const {
  outcome.starting_s = account_.starting_s;
  outcome.missing_s = account_.missing_s;
  outcome.stock_out_s = account_.stock_out_s;
  outcome.stopped_s = account_.stopped_s;
  outcome.redone_s = account_.redone_s;
}

}  // namespace mayfly::planner
