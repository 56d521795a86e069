#pragma once

// Why servers are missing, and since when: losses that follow each other closely are one batch,
// which is replaced by one set of requests. Pure; one thread.

#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>
#include <utility>

#include "base/time.hpp"

namespace mayfly::cloud_hooks {

class Shortage {
 public:
  /// Losses within `gather` are one batch.
  explicit Shortage(Duration gather) : gather_(gather) {}

  /// A server or its worker is lost, or will be.
  void noticed(Instant now) { first_loss_ = first_loss_.value_or(now); }
  /// A server of this offer has lost its worker without a notice.
  void lost_worker_of(std::size_t offer) { ++lost_[offer]; }
  /// The cause of the shortage may have changed: may_report() is true once more.
  void changed() { is_reported_ = false; }

  /// Servers are missing. Returns whether the batch is complete, so that they may be requested.
  [[nodiscard]] bool is_gathered(Instant now);
  /// Some replacements were requested: bursts among the losses of the batch have been judged.
  void some_requested() { lost_.clear(); }
  /// Everything that can be requested now was requested: the next loss begins a batch.
  void all_requested() { first_loss_.reset(); }
  /// Nothing is missing, or nothing is requested any more.
  void over();
  /// Whether to report that servers stay missing; true once.
  [[nodiscard]] bool may_report() { return !std::exchange(is_reported_, true); }

  /// The first loss whose replacement was not yet requested.
  [[nodiscard]] std::optional<Instant> first_loss() const { return first_loss_; }
  /// The end of the batch, while servers are missing.
  [[nodiscard]] std::optional<Instant> gathered_at() const { return gathered_at_; }
  /// The workers of the batch that were lost without a notice, by offer.
  [[nodiscard]] const std::map<std::size_t, std::uint32_t>& lost() const { return lost_; }

 private:
  Duration gather_;
  std::optional<Instant> first_loss_;
  std::optional<Instant> gathered_at_;
  std::map<std::size_t, std::uint32_t> lost_;
  bool is_reported_ = false;
};

}  // namespace mayfly::cloud_hooks
