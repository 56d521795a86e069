#pragma once

// When the provider is asked for its list of servers, and what a list proves. A list may lack a
// server that is too new, and servers that an earlier process of the job requested may appear only
// later. Pure; one thread.

#include <optional>

#include "base/time.hpp"
#include "cloud_hooks/core/provider.hpp"
#include "cloud_hooks/core/replacement_options.hpp"

namespace mayfly::cloud_hooks {

class ListSchedule {
 public:
  /// `options` must outlive this object.
  explicit ListSchedule(const ReplacementOptions& options) : options_(options) {}

  /// The process begins. If servers outlive processes, a list comes before any request.
  void begin(Instant now);
  /// A list must be requested at this time at the latest.
  void ask_by(Instant moment);
  /// Whether to request a list now; if so, it counts as requested.
  [[nodiscard]] bool ask(Instant now);
  /// The next time for ask(); none = an answer is awaited.
  [[nodiscard]] std::optional<Instant> next() const;

  /// The requested list was received and processed; the next one is due after `until_next`.
  void listed(Instant now, Duration until_next);
  /// The provider answered with an error instead. Returns whether the answer before was not an
  /// error of this kind.
  [[nodiscard]] bool failed(Instant now, const ProviderError& error);

  /// When the last list was requested: it shows the servers of that time.
  [[nodiscard]] Instant requested_at() const { return requested_at_; }
  /// Whether a server that the last list lacks does not exist any more. `since`: when it was first
  /// seen, or its request was given up.
  [[nodiscard]] bool proves_absence(Instant since) const {
    return requested_at_ >= since + options_.absence_grace;
  }
  /// Whether everything that earlier processes of the job left behind has been listed.
  [[nodiscard]] bool knows_earlier_servers() const { return knows_earlier_servers_; }
  /// Whether a new job cannot begin: its first list was refused, or has not arrived two minutes
  /// after its start. A restarted job goes on asking, because it may have servers.
  [[nodiscard]] bool is_hopeless() const { return is_hopeless_; }

 private:
  const ReplacementOptions& options_;
  Instant begun_{};
  Instant requested_at_{};
  Instant due_{};
  bool awaits_list_ = false;  // the provider has not answered yet
  bool knows_earlier_servers_ = false;
  bool is_hopeless_ = false;
  std::optional<ProviderErrorKind> error_;  // of the last answer
};

}  // namespace mayfly::cloud_hooks
