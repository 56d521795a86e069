#pragma once

// Whether a member is so slow, for so long, that the job is better off without it. Off unless asked
// for: giving a slow member less work (elastic/core/rebalance) is enough as long as one microbatch
// of its own does not hold up everybody. Pure.

#include <map>
#include <optional>
#include <string>
#include <vector>

#include "base/ids.hpp"
#include "base/time.hpp"

namespace mayfly::elastic {

struct StragglerOptions {
  double factor = 0;             ///< slower than the others' median so many times; 0 = never
  Duration after = seconds(30);  ///< for so long without a break
};

/// A member of the present view.
struct Runner {
  MemberId member{};
  std::string host;
  float microbatch_ms = 0;  ///< measured; 0 = unknown
};

class StragglerPolicy {
 public:
  explicit StragglerPolicy(StragglerOptions options) : options_(options) {}

  /// To be asked every few milliseconds while a view runs. Returns who should leave now: of those
  /// that have been too slow for long enough the slowest. Asking again names it again, until
  /// drained() says that it goes.
  [[nodiscard]] std::optional<MemberId> judge(Instant now, const std::vector<Runner>& runners);
  /// It goes. The next member of its host is given twice the time: who comes back as slow as before
  /// must not be sent away again and again.
  void drained(const Runner& runner);

 private:
  [[nodiscard]] Duration patience(const std::string& host) const;

  StragglerOptions options_;
  std::map<MemberId, Instant> slow_since_;
  std::map<std::string, int> drained_of_host_;
};

}  // namespace mayfly::elastic
