#pragma once

// Detects workers that are much slower than the others, as a pure state machine beside the table of
// leases: it records when slices are leased and when they arrive. It is made for few workers, among
// which one slow worker changes the mean and the deviation. So a worker is compared with the median
// of the others. It is a straggler once it has been slow several times in a row, until it has been
// clearly faster as often.

#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <string_view>
#include <vector>

#include "base/ids.hpp"
#include "base/result.hpp"
#include "base/time.hpp"

namespace mayfly::parameter_server {

/// How a step of kBsp is computed while a worker is too slow.
enum class StragglerPolicy : std::uint8_t {
  kNone,
  kGreedy,   ///< its slices are updates of their own, as in kAsp
  kElastic,  ///< the other workers compute it, if that makes it shorter
};
/// "none", "greedy" or "elastic"; anything else is kInvalidInput.
[[nodiscard]] Result<StragglerPolicy> parse_straggler_policy(std::string_view text);

struct StragglerOptions {
  double slow = 1.3;          ///< at so many times the others' median a worker is slow
  double clear = 1.15;        ///< below so many times it is not slow any more
  std::uint32_t windows = 3;  ///< so many windows in a row, for either
  std::uint32_t slices = 4;   ///< slices of a worker in one window
};

/// A worker has become a straggler, or is no straggler any more.
struct StragglerChange {
  MemberId worker{};
  bool is_slow = false;
  double ratio = 0;  ///< time of its slices relative to the others' median, in the last window
  friend bool operator==(const StragglerChange&, const StragglerChange&) = default;
};

class StragglerWatch {
 public:
  explicit StragglerWatch(StragglerOptions options) : options_(options) {}

  /// Only these workers are in the view; all others are forgotten.
  void set_workers(const std::set<MemberId>& workers);
  /// The leases at present are not measured, because the workers wait for each other.
  void forget_leases();
  /// The worker was given so many slices. A repeated lease, recognised by its serial, does not
  /// count.
  void leased(Instant now, MemberId worker, std::uint64_t serial, std::uint32_t slices);
  /// One slice of the worker has arrived.
  void arrived(Instant now, MemberId worker);
  /// The worker was asked to compute so many slices to measure its speed; and has computed them.
  void probed(Instant now, MemberId worker, std::uint32_t slices);
  void probe_done(Instant now, MemberId worker);

  /// The changes since the last call.
  [[nodiscard]] std::vector<StragglerChange> take_changes();
  /// The stragglers, each with its ratio.
  [[nodiscard]] const std::map<MemberId, double>& stragglers() const { return stragglers_; }

 private:
  struct Worker {
    std::uint64_t serial = 0;  // serial of its newest lease
    std::uint32_t left = 0;    // slices that are leased and have not arrived
    Instant since;             // when the slice in progress began
    std::optional<Instant> probed;
    std::uint32_t probe_slices = 1;
    double sum_ms = 0;  // sum of the window in progress
    std::uint32_t count = 0;
    double last_ms = 0;        // mean of the last window; 0 = none
    std::uint32_t streak = 0;  // consecutive windows that contradict its present classification
  };

  void measured(MemberId id, Worker& worker, Duration took, std::uint32_t window);
  void judge(MemberId id, Worker& worker);
  [[nodiscard]] double others_median(MemberId id) const;

  const StragglerOptions options_;
  std::map<MemberId, Worker> workers_;
  std::map<MemberId, double> stragglers_;
  std::vector<StragglerChange> changes_;
};

/// The stragglers without which a step of so many slices, divided evenly among the other workers,
/// takes less time. Never all workers.
[[nodiscard]] std::set<MemberId> worth_leaving_out(const std::map<MemberId, double>& stragglers,
                                                   const std::set<MemberId>& workers,
                                                   std::uint32_t slices);

}  // namespace mayfly::parameter_server
