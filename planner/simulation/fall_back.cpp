#include "planner/simulation/fall_back.hpp"

namespace mayfly::planner {

FallBack::FallBack(const CandidateOffers& offers, const JobModel& job, const Candidate& candidate,
                   const Training& training, Demand& demand)
    : offers_(offers),
      job_(job),
      training_(training),
      demand_(demand),
      is_wanted_(candidate.falls_back && job.deadline_s.has_value()) {}

void FallBack::begin() {
  due_s_ = kNever;
  speed_ = start_s_ = 0;
  for (std::size_t offer = 0; is_wanted_ && offer < offers_.size(); ++offer) {
    const double speed = offers_.is_on_demand(offer) ? training_.speed_on(offer) : 0;
    if (speed > speed_) {
      speed_ = speed;
      start_s_ = offers_[offer].start_up.mean() + offers_[offer].join.mean();
    }
  }
}

void FallBack::plan(double now_s) {
  due_s_ = kNever;
  if (speed_ <= 0 || demand_.has_fallen_back()) {
    return;
  }
  const double slack_s = *job_.deadline_s - now_s - start_s_ - training_.left() / speed_;
  const double gain = 1 - training_.speed() / speed_;
  if (slack_s <= 0) {
    demand_.fall_back();
  } else if (gain > 0) {
    due_s_ = now_s + slack_s / gain;
  }
}

}  // namespace mayfly::planner
