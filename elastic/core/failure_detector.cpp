#include "elastic/core/failure_detector.hpp"

#include <algorithm>
#include <cmath>

#include "base/check.hpp"

namespace mayfly::elastic {
namespace {

constexpr double kWeight = 1.0 / 16;  // weight of the newest interval
constexpr double kDeviations = 6;
constexpr int kPatienceFactorMax = 10;  // as a multiple of silence_max
constexpr int kLooksPerSilence = 3;     // a longer gap means that this process was paused

}  // namespace

FailureDetector::FailureDetector(Duration silence_max, Duration starved_max)
    : silence_max_(silence_max), starved_max_(std::max(silence_max, starved_max)) {
  ENSURE(silence_max > Duration::zero(), "the shortest suspicious silence must be positive");
}

void FailureDetector::on_message(MemberId member, Instant now) {
  const auto [place, is_new] = watched_.try_emplace(member);
  Watched& watched = place->second;
  if (is_new) {
    watched.last = now;
    return;
  }
  const auto interval = static_cast<double>(std::max(now - watched.last, Duration::zero()).count());
  watched.last = std::max(watched.last, now);
  watched.stopped = watched.answered = false;
  if (!watched.has_interval) {
    watched.has_interval = true;
    watched.mean_ns = interval;
    return;
  }
  const double difference = interval - watched.mean_ns;
  ENSURE(interval >= 0 && watched.variance_ns2 >= 0, "intervals of heartbeats are not negative");
  watched.mean_ns += kWeight * difference;
  watched.variance_ns2 = (1 - kWeight) * (watched.variance_ns2 + kWeight * difference * difference);
}

void FailureDetector::stopped(MemberId member) {
  if (const auto place = watched_.find(member); place != watched_.end()) {
    place->second.stopped = true;
  }
}

void FailureDetector::host_answers(MemberId member, Instant now) {
  if (const auto place = watched_.find(member); place != watched_.end()) {
    place->second.answered = true;
    place->second.answered_at = now;
  }
}

void FailureDetector::forget(MemberId member) {
  watched_.erase(member);
}

std::vector<MemberId> FailureDetector::suspects(Instant now) {
  const Duration gap = has_checked_ ? now - last_check_ : Duration::zero();
  has_checked_ = true;
  last_check_ = now;
  own_pause_ = Duration::zero();
  if (gap * kLooksPerSilence > silence_max_) {
    own_pause_ = gap;
    for (auto& [member, watched] : watched_) {
      watched.last = std::max(watched.last, std::min(now, watched.last + gap));
      watched.answered_at = std::max(watched.answered_at, std::min(now, watched.answered_at + gap));
    }
    listening_since_ = now;
  }
  if (listening_since_ && (now - *listening_since_) * kLooksPerSilence <= silence_max_) {
    return {};
  }
  std::vector<MemberId> silent;
  for (const auto& [member, watched] : watched_) {
    if (now - watched.last > patience_with(watched, now)) {
      silent.push_back(member);
    }
  }
  return silent;
}

Duration FailureDetector::silence(MemberId member, Instant now) const {
  const auto place = watched_.find(member);
  return place == watched_.end() ? Duration::zero() : now - place->second.last;
}

std::vector<MemberId> FailureDetector::to_probe(Instant now) {
  const Duration a_while = silence_max_ / kLooksPerSilence;
  std::vector<MemberId> quiet;
  for (auto& [member, watched] : watched_) {
    if (now - watched.last > a_while && now - watched.probed > a_while) {
      watched.probed = now;
      quiet.push_back(member);
    }
  }
  return quiet;
}

Duration FailureDetector::patience(MemberId member, Instant now) const {
  const auto place = watched_.find(member);
  return place == watched_.end() ? silence_max_ : patience_with(place->second, now);
}

/// The machine's acknowledgement counts for as long as the next probe may take to be answered.
bool FailureDetector::is_starved(const Watched& watched, Instant now) const {
  return !watched.stopped && watched.answered && now - watched.answered_at <= silence_max_;
}

Duration FailureDetector::patience_with(const Watched& watched, Instant now) const {
  if (watched.stopped) {
    return silence_max_;
  }
  const double expected = watched.mean_ns + kDeviations * std::sqrt(watched.variance_ns2);
  const double least = static_cast<double>(silence_max_.count());
  const Duration adapted(
      static_cast<std::int64_t>(std::clamp(expected, least, least * kPatienceFactorMax)));
  ENSURE(adapted >= silence_max_, "irregular heartbeats are given more time, never less");
  return is_starved(watched, now) ? std::max(adapted, starved_max_) : adapted;
}

std::string FailureDetector::reason(MemberId member, Instant now) const {
  const auto place = watched_.find(member);
  const bool known = place != watched_.end();
  std::string text = "silent for more than " +
                     std::to_string(static_cast<long>(to_ms(patience(member, now)))) + " ms";
  if (known && place->second.stopped) {
    text += ": its process is stopped";
  } else if (known && is_starved(place->second, now)) {
    text += " although its machine answers";
  }
  return text;
}

}  // namespace mayfly::elastic
