#include "elastic/net/reconnect.hpp"

#include <algorithm>
#include <utility>

#include "base/check.hpp"

namespace mayfly::elastic {

ReconnectPlan::ReconnectPlan(ReconnectOptions options, std::size_t lost, std::uint64_t seed,
                             Instant now)
    : options_(options),
      endpoint_(lost),
      lost_first_until_(now + options.lost_one_first),
      delay_(options.first_delay),
      random_(CounterRandom(seed)) {
  ENSURE(lost < options.endpoints, "the coordinator that was lost is one of the list");
}

ReconnectPlan::Attempt ReconnectPlan::next(Instant now) {
  if (std::exchange(is_first_, false) && now < lost_first_until_) {
    return {endpoint_, Duration::zero()};
  }
  const bool alone = options_.endpoints == 1;
  if (tries_lost_first_ && !alone && now >= lost_first_until_) {
    tries_lost_first_ = false;
    delay_ = options_.first_delay;
    until_slower_ = options_.endpoints;
  }
  if (!tries_lost_first_) {
    endpoint_ = (endpoint_ + 1) % options_.endpoints;
  }
  const auto jitter_percent = 75 + static_cast<std::int64_t>(random_.below(51));
  const Attempt attempt{endpoint_, delay_ * jitter_percent / 100};
  if (--until_slower_ == 0) {
    until_slower_ = tries_lost_first_ ? 1 : options_.endpoints;
    delay_ = std::min(delay_ * 3 / 2, options_.longest_delay);
  }
  return attempt;
}

void ReconnectPlan::try_elsewhere(std::uint32_t skip) {
  lost_first_until_ = Instant{};
  if (options_.endpoints > 1) {
    endpoint_ = (endpoint_ + skip % (options_.endpoints - 1)) % options_.endpoints;
  }
}

void ReportQueue::begin_job(std::uint64_t job) {
  if (job == 0) {
    return;
  }
  if (job_ != 0 && job_ != job) {
    clear();
  }
  job_ = job;
}

void ReportQueue::clear() {
  while (!reports_.empty()) {
    drop_first();
  }
}

void ReportQueue::add(Bytes payload, Instant happened) {
  bytes_ += payload.size();
  reports_.push_back({std::move(payload), happened});
  while (bytes_ > bytes_max_ && reports_.size() > 1) {
    drop_first();
    ++dropped_;
  }
}

void ReportQueue::taken(std::uint64_t count) {
  const std::uint64_t last = connection_begin_ + count;
  while (first_ < last && !reports_.empty()) {
    drop_first();
  }
}

std::uint64_t ReportQueue::take_dropped() {
  return std::exchange(dropped_, 0);
}

void ReportQueue::drop_first() {
  bytes_ -= reports_.front().payload.size();
  reports_.pop_front();
  ++first_;
}

}  // namespace mayfly::elastic
