#pragma once

// Reports of a member that the coordinator has not yet said it took. A coordinator may die with
// what it was sent, so a report is kept until then and sent again to whoever is the coordinator
// next; the receiver drops what it already has. One thread.

#include <cstdint>
#include <deque>

#include "base/bytes.hpp"

namespace mayfly::elastic {

class ReportQueue {
 public:
  /// Keeps at most `bytes_max` bytes of payload: beyond that the oldest are dropped and counted.
  explicit ReportQueue(std::size_t bytes_max) : bytes_max_(bytes_max) {}

  void add(Bytes payload);
  /// A new connection begins; all() must be sent on it again, in order.
  void begin_connection() { connection_begin_ = first_; }
  /// The coordinator has taken `count` reports of this connection.
  void taken(std::uint64_t count);

  [[nodiscard]] const std::deque<Bytes>& all() const { return reports_; }
  /// How many were dropped since the last call.
  [[nodiscard]] std::uint64_t take_dropped();

 private:
  void drop_first();

  const std::size_t bytes_max_;
  std::deque<Bytes> reports_;
  std::size_t bytes_ = 0;
  std::uint64_t first_ = 0;             // number of reports_.front(), counted from the beginning
  std::uint64_t connection_begin_ = 0;  // number of the first one sent on this connection
  std::uint64_t dropped_ = 0;
};

}  // namespace mayfly::elastic
