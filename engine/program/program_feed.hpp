#pragma once

// The Feed of a worker whose program reads the samples itself: it remembers which microbatches the
// program will probably have to compute, so that the program can read their samples ahead.

#include <cstdint>
#include <deque>
#include <mutex>
#include <utility>
#include <vector>

#include "datasets/feed.hpp"

namespace mayfly::engine {

class ProgramFeed final : public datasets::Feed {
 public:
  /// (step, microbatch), in the order in which they will probably be computed. Any thread.
  [[nodiscard]] std::vector<std::pair<std::uint64_t, std::uint32_t>> upcoming() const;
  /// To be called when the program has taken this microbatch as a task.
  void taken(std::uint64_t step, std::uint32_t microbatch);

  void request(std::uint64_t step, std::span<const std::uint32_t> microbatches) override;
  void cancel_requests() override;
  [[nodiscard]] datasets::LoaderWait time_waited() const override { return {}; }
  [[nodiscard]] datasets::LoaderWork work() const override { return {}; }
  [[nodiscard]] datasets::FeedSettings settings() const override { return {}; }

 private:
  mutable std::mutex mutex_;
  std::deque<std::pair<std::uint64_t, std::uint32_t>> requested_;  // guarded by mutex_
};

}  // namespace mayfly::engine
