#pragma once

// The rank processes of one contestant, seen from the driver of `mayfly bench allreduce`.

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "base/process/child_process.hpp"
#include "base/result.hpp"
#include "base/time.hpp"
#include "benchmarks/allreduce/contestants.hpp"
#include "benchmarks/ranks/control_hub.hpp"

namespace mayfly::bench {

/// A measurement of one contestant: so many all-reduces of a vector.
struct CellOrder {
  std::size_t bytes = 0;
  std::string type;  ///< fp32, int32
  std::uint32_t iterations = 0;
  std::uint64_t salt = 0;  ///< of the data; different each time
};

class RankTeam {
 public:
  /// Starts nothing yet. `hub` outlives the team.
  RankTeam(ControlHub& hub, Contestant contestant, std::uint32_t ranks);
  RankTeam(RankTeam&&) = default;
  RankTeam& operator=(RankTeam&&) = delete;
  /// Ends the processes: asks them to end, and kills them after a short while.
  ~RankTeam();

  /// Starts the processes and connects them. kUnsupported if they report that this machine lacks
  /// something that they need.
  [[nodiscard]] Result<void> start();
  /// The time of each all-reduce in seconds: that of the slowest rank. kDiverged: a sum was wrong.
  /// After an error the team cannot be used any more.
  [[nodiscard]] Result<std::vector<double>> measure(const CellOrder& order);

  [[nodiscard]] const Contestant& contestant() const { return contestant_; }

 private:
  Result<void> spawn();
  Result<void> meet(Instant deadline);
  Result<void> adopt(const ControlHub::Message& message);
  /// The answers of all ranks to their last order, by rank; each begins with `verb`.
  Result<std::vector<std::string>> hear_all(const std::string& verb, Instant deadline);
  Result<ControlHub::Message> hear(Instant deadline);
  Result<void> tell_all(const std::string& line);
  [[nodiscard]] Error named(Error error) const;

  ControlHub& hub_;
  Contestant contestant_;
  std::uint32_t ranks_;
  std::vector<std::size_t> connections_;  // by rank; 0: not connected yet
  std::vector<ChildProcess> processes_;
};

}  // namespace mayfly::bench
