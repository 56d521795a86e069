#include "elastic/core/failure_detector.hpp"

#include <algorithm>
#include <cmath>

#include "base/check.hpp"

namespace mayfly::elastic {
namespace {

constexpr double kWeight = 1.0 / 16;  // of the newest interval
constexpr double kDeviations = 6;
constexpr int kPatienceFactorMax = 10;  // times silence_max
constexpr int kLooksPerSilence = 3;     // a longer gap between looks means that we were paused

}  // namespace

FailureDetector::FailureDetector(Duration silence_max) : silence_max_(silence_max) {
  ENSURE(silence_max > Duration::zero(), "the shortest suspicious silence must be positive");
}

void FailureDetector::heard(MemberId member, Instant now) {
  const auto [place, is_new] = watched_.try_emplace(member, Watched{now});
  Watched& watched = place->second;
  if (is_new) {
    return;
  }
  const auto interval = static_cast<double>(std::max(now - watched.last, Duration::zero()).count());
  watched.last = std::max(watched.last, now);
  if (!watched.has_interval) {
    watched.has_interval = true;
    watched.mean_ns = interval;
    return;
  }
  const double difference = interval - watched.mean_ns;
  watched.mean_ns += kWeight * difference;
  watched.variance_ns2 = (1 - kWeight) * (watched.variance_ns2 + kWeight * difference * difference);
}

void FailureDetector::forget(MemberId member) {
  watched_.erase(member);
}

std::vector<MemberId> FailureDetector::suspects(Instant now) {
  const Duration gap = has_looked_ ? now - last_look_ : Duration::zero();
  has_looked_ = true;
  last_look_ = now;
  if (gap * kLooksPerSilence > silence_max_) {
    for (auto& [member, watched] : watched_) {
      watched.last = std::max(watched.last, std::min(now, watched.last + gap));
    }
  }
  std::vector<MemberId> silent;
  for (const auto& [member, watched] : watched_) {
    if (now - watched.last > patience_with(watched)) {
      silent.push_back(member);
    }
  }
  return silent;
}

Duration FailureDetector::silence(MemberId member, Instant now) const {
  const auto place = watched_.find(member);
  return place == watched_.end() ? Duration::zero() : now - place->second.last;
}

Duration FailureDetector::patience(MemberId member) const {
  const auto place = watched_.find(member);
  return place == watched_.end() ? silence_max_ : patience_with(place->second);
}

Duration FailureDetector::patience_with(const Watched& watched) const {
  const double expected = watched.mean_ns + kDeviations * std::sqrt(watched.variance_ns2);
  const double least = static_cast<double>(silence_max_.count());
  return Duration(
      static_cast<std::int64_t>(std::clamp(expected, least, least * kPatienceFactorMax)));
}

}  // namespace mayfly::elastic
