#pragma once

// For a member without a coordinator: the order and times of its attempts to find one
// (ReconnectPlan, pure), and the reports that it keeps meanwhile (ReportQueue). One thread.

#include <cstddef>
#include <cstdint>
#include <deque>

#include "base/bytes.hpp"
#include "base/random.hpp"
#include "base/time.hpp"

namespace mayfly::elastic {

struct ReconnectOptions {
  std::size_t endpoints = 1;                    ///< length of the list
  Duration lost_one_first = milliseconds(500);  ///< for so long only the lost coordinator is tried
  Duration first_delay = milliseconds(50);      ///< between attempts, growing ...
  Duration longest_delay = milliseconds(500);   ///< ... to this
};

/// One search. The coordinator that was lost is tried first, because it may only be restarted. Then
/// the whole list, repeatedly.
class ReconnectPlan {
 public:
  struct Attempt {
    std::size_t endpoint = 0;  ///< index into the list
    Duration delay{};          ///< to wait before it
  };

  /// `lost` is the index of the coordinator that was lost. `seed` spreads the members' attempts.
  ReconnectPlan(ReconnectOptions options, std::size_t lost, std::uint64_t seed, Instant now);

  /// The next attempt.
  [[nodiscard]] Attempt next(Instant now);
  /// The coordinator that was tried last is not in charge: the lost one is not tried first any
  /// more, and the next attempt goes to another one, `skip` places further on in the list (see
  /// NoQuorum).
  void try_elsewhere(std::uint32_t skip);

 private:
  ReconnectOptions options_;
  std::size_t endpoint_;
  Instant lost_first_until_;
  bool is_first_ = true;
  bool tries_lost_first_ = true;
  Duration delay_;
  std::size_t until_slower_ = 1;  // attempts until the delay grows
  RandomStream random_;
};

/// Reports of a member that no coordinator has acknowledged (ReportsTaken). A coordinator may die
/// before it has recorded them, so they are kept and sent again to the next one, which drops those
/// that it already has. A worker that is evicted and joins again keeps its queue, too: the job may
/// continue from steps that only this worker has reported. One thread at a time.
class ReportQueue {
 public:
  // A step's record has some 150 bytes, so this is an hour of steps of 30 ms.
  static constexpr std::size_t kBytesMax = std::size_t{16} << 20;

  /// Keeps at most `bytes_max` bytes of payload: beyond that the oldest are dropped and counted.
  explicit ReportQueue(std::size_t bytes_max = kBytesMax) : bytes_max_(bytes_max) {}

  /// Further reports are of this job (0 = unknown); kept reports of another job are dropped.
  void begin_job(std::uint64_t job);
  /// Drops all reports, for example after a wrong result, because they must not be recorded.
  void clear();
  void add(Bytes payload, Instant happened);
  /// A new connection begins; all() must be sent on it again, in order.
  void begin_connection() { connection_begin_ = first_; }
  /// The coordinator has taken `count` reports of this connection.
  void taken(std::uint64_t count);

  struct Held {
    Bytes payload;
    Instant happened;  ///< for its age when it is sent
  };
  [[nodiscard]] const std::deque<Held>& all() const { return reports_; }
  /// How many were dropped since the last call.
  [[nodiscard]] std::uint64_t take_dropped();

 private:
  void drop_first();

  const std::size_t bytes_max_;
  std::deque<Held> reports_;
  std::size_t bytes_ = 0;
  std::uint64_t job_ = 0;
  std::uint64_t first_ = 0;             // number of reports_.front(), counted from the beginning
  std::uint64_t connection_begin_ = 0;  // number of the first one sent on this connection
  std::uint64_t dropped_ = 0;
};

}  // namespace mayfly::elastic
