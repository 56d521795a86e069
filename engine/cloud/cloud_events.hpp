#pragma once

// The facts of a provider's driver as events of the run.

#include <map>
#include <mutex>
#include <string>

#include "cloud_hooks/provider_driver.hpp"

namespace mayfly::engine {

struct Fact;

/// Any thread.
class CloudEvents {
 public:
  /// The event of a fact. Its line, which the user sees, is empty for routine events in the life of
  /// a server. It is also empty for a request, a refusal, a lack of offers or a failed release of a
  /// server that repeats the last one of its kind, because these may happen again and again. The
  /// next new server ends such a series.
  [[nodiscard]] Fact event_of(const cloud_hooks::CloudFact& fact);

 private:
  [[nodiscard]] bool is_news(const cloud_hooks::CloudFact& fact);

  std::mutex mutex_;
  std::map<std::string, std::string> last_details_;  // of each series of events that may repeat
};

}  // namespace mayfly::engine
