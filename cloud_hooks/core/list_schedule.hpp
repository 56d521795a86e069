#pragma once

// When the provider is asked for its list of servers, and what a list proves: a server that a list
// lacks may be too new for it, and requests of an earlier process of the job may show up only
// later. Pure; one thread.

#include <optional>

#include "base/time.hpp"
#include "cloud_hooks/core/provider.hpp"
#include "cloud_hooks/core/replacement_options.hpp"

namespace mayfly::cloud_hooks {

class ListSchedule {
 public:
  /// `options` outlive it.
  explicit ListSchedule(const ReplacementOptions& options) : options_(options) {}

  /// The process begins. If servers outlive processes, a list comes before any request.
  void begin(Instant now);
  /// A list is to be asked for at this time at the latest.
  void ask_by(Instant moment);
  /// Whether a list is to be asked for now; if so, it counts as asked for.
  [[nodiscard]] bool ask(Instant now);
  /// The next time for ask(); none = an answer is awaited.
  [[nodiscard]] std::optional<Instant> next() const;

  /// The list that was asked for has come and was processed; the next one is due so much later.
  void listed(Instant now, Duration until_next);
  /// Instead of it an error has come. Returns whether its kind is news.
  [[nodiscard]] bool failed(Instant now, const ProviderError& error);

  /// When the last list was asked for: it shows what existed then.
  [[nodiscard]] Instant asked() const { return asked_; }
  /// Whether what the last list lacks does not exist any more, if it existed, or was requested,
  /// since `since`.
  [[nodiscard]] bool proves_absence(Instant since) const {
    return asked_ >= since + options_.absence_grace;
  }
  /// Whether everything that earlier processes of the job left behind has been listed.
  [[nodiscard]] bool knows_the_past() const { return knows_the_past_; }

 private:
  const ReplacementOptions& options_;
  Instant begun_{};
  Instant asked_{};
  Instant due_{};
  bool is_asked_ = false;  // an answer is awaited
  bool knows_the_past_ = false;
  std::optional<ProviderErrorKind> error_;  // of the last answer
};

}  // namespace mayfly::cloud_hooks
