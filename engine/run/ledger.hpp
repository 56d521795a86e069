#pragma once

#include <cstdint>
#include <memory>
#include <mutex>
#include <span>
#include <string>

#include "base/unique_fd.hpp"

namespace mayfly::engine {

/// Optional record of which samples a worker computed, one line per microbatch ("step microbatch id
/// id ..."), written before the microbatch enters any sum. Together with the sample hashes of the
/// committed steps (metrics.jsonl) it lets an outsider check that every sample was used exactly
/// once.
class Ledger {
 public:
  /// Appends to <folder>/<pid>.txt; a ledger that cannot be opened writes nothing and logs that
  /// once.
  explicit Ledger(const std::string& folder);

  /// Any thread.
  void computed(std::uint64_t step, std::uint32_t microbatch,
                std::span<const std::uint32_t> samples);

 private:
  std::mutex mutex_;
  UniqueFd file_;  // guarded by mutex_
};

}  // namespace mayfly::engine
