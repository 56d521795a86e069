#include "collectives/parameter_server/core/straggler_watch.hpp"

#include <algorithm>
#include <string>
#include <utility>

namespace mayfly::parameter_server {

Result<StragglerPolicy> parse_straggler_policy(std::string_view text) {
  for (const auto& [name, policy] :
       {std::pair("none", StragglerPolicy::kNone), std::pair("greedy", StragglerPolicy::kGreedy),
        std::pair("elastic", StragglerPolicy::kElastic)}) {
    if (text == name) {
      return policy;
    }
  }
  return Error{Errc::kInvalidInput,
               std::string("'").append(text) + "' is not none, greedy or elastic"};
}

void StragglerWatch::set_workers(const std::set<MemberId>& workers) {
  std::erase_if(workers_, [&](const auto& entry) { return !workers.contains(entry.first); });
  std::erase_if(stragglers_, [&](const auto& entry) { return !workers.contains(entry.first); });
  for (const MemberId worker : workers) {
    workers_.try_emplace(worker);
  }
}

void StragglerWatch::forget_leases() {
  for (auto& [id, worker] : workers_) {
    worker.left = 0;
    worker.probed.reset();
  }
}

void StragglerWatch::leased(Instant now, MemberId id, std::uint64_t serial, std::uint32_t slices) {
  const auto place = workers_.find(id);
  if (place != workers_.end() && serial > place->second.serial) {
    Worker& worker = place->second;
    worker.serial = serial;
    worker.since = worker.left == 0 ? now : worker.since;
    worker.left += slices;
  }
}

void StragglerWatch::arrived(Instant now, MemberId id) {
  const auto place = workers_.find(id);
  if (place == workers_.end() || place->second.left == 0) {
    return;  // a repeated push
  }
  Worker& worker = place->second;
  --worker.left;
  measured(id, worker, now - std::exchange(worker.since, now), options_.slices);
}

void StragglerWatch::probed(Instant now, MemberId id, std::uint32_t slices) {
  if (const auto place = workers_.find(id); place != workers_.end()) {
    place->second.probed = now;
    place->second.probe_slices = slices;
  }
}

/// Probes are rare, so each one is a window of its own.
void StragglerWatch::probe_done(Instant now, MemberId id) {
  const auto place = workers_.find(id);
  if (place != workers_.end() && place->second.probed) {
    const Instant since = *std::exchange(place->second.probed, std::nullopt);
    place->second.sum_ms = 0;  // the window of slices in progress
    place->second.count = 0;
    measured(id, place->second, (now - since) / place->second.probe_slices, 1);
  }
}

void StragglerWatch::measured(MemberId id, Worker& worker, Duration took, std::uint32_t window) {
  worker.sum_ms += to_ms(took);
  if (++worker.count < window) {
    return;
  }
  worker.last_ms = worker.sum_ms / worker.count;
  worker.sum_ms = 0;
  worker.count = 0;
  judge(id, worker);
}

/// If there are two times in the middle, the lower one: the higher may be a second straggler's.
double StragglerWatch::others_median(MemberId id) const {
  std::vector<double> times;
  for (const auto& [other, worker] : workers_) {
    if (other != id && worker.last_ms > 0) {
      times.push_back(worker.last_ms);
    }
  }
  if (times.empty()) {
    return 0;
  }
  const auto middle = times.begin() + static_cast<std::ptrdiff_t>((times.size() - 1) / 2);
  std::nth_element(times.begin(), middle, times.end());
  return *middle;
}

void StragglerWatch::judge(MemberId id, Worker& worker) {
  const double median = others_median(id);
  if (!(median > 0)) {
    return;
  }
  const double ratio = worker.last_ms / median;
  const auto straggler = stragglers_.find(id);
  const bool was_slow = straggler != stragglers_.end();
  const bool speaks_against = was_slow ? ratio < options_.clear : ratio >= options_.slow;
  worker.streak = speaks_against ? worker.streak + 1 : 0;
  if (worker.streak < options_.windows) {
    if (was_slow && !speaks_against) {
      straggler->second = ratio;
    }
    return;
  }
  worker.streak = 0;
  if (was_slow) {
    stragglers_.erase(straggler);
  } else {
    stragglers_.emplace(id, ratio);
  }
  changes_.push_back({id, !was_slow, ratio});
}

std::vector<StragglerChange> StragglerWatch::take_changes() {
  return std::exchange(changes_, {});
}

std::set<MemberId> worth_leaving_out(const std::map<MemberId, double>& stragglers,
                                     const std::set<MemberId>& workers, std::uint32_t slices) {
  std::vector<std::pair<double, MemberId>> slowest;
  for (const auto& [id, ratio] : stragglers) {
    if (workers.contains(id)) {
      slowest.emplace_back(ratio, id);
    }
  }
  std::sort(slowest.rbegin(), slowest.rend());
  const auto share = [slices](std::size_t count) { return (slices + count - 1) / count; };
  std::set<MemberId> best;
  std::set<MemberId> out;
  double least = 0;
  for (std::size_t left_out = 0; left_out <= slowest.size(); ++left_out) {
    const std::size_t count = workers.size() - left_out;
    if (count == 0) {
      break;
    }
    const double pace = left_out < slowest.size() ? std::max(1.0, slowest[left_out].first) : 1;
    const double time = static_cast<double>(share(count)) * pace;
    if (left_out == 0 || time < least) {
      least = time;
      best = out;
    }
    if (left_out < slowest.size()) {
      out.insert(slowest[left_out].second);
    }
  }
  return best;
}

}  // namespace mayfly::parameter_server
