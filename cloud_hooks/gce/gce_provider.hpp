#pragma once

// Servers of Google's Compute Engine, over its REST interface. See docs/cloud_providers.md.

#include <cstdint>
#include <functional>
#include <memory>
#include <string>

#include "base/result.hpp"
#include "cloud_hooks/core/provider.hpp"
#include "cloud_hooks/gce/gce_messages.hpp"
#include "cloud_hooks/gce/google_tokens.hpp"
#include "cloud_hooks/http/http_sender.hpp"

namespace mayfly::cloud_hooks {

/// `unix_seconds` is the wall clock. kInvalidInput if an option cannot be used, also for an
/// endpoint that is neither https:// nor on this host, because tokens must not be sent unencrypted.
/// request() waits up to GceOptions::operation_wait_max for the insertions to finish, because only
/// then it is known whether there was capacity. Several providers of one job share `token`; null:
/// this one has its own.
[[nodiscard]] Result<std::unique_ptr<Provider>> make_gce_provider(
    GceOptions options, GoogleTokenOptions tokens, std::unique_ptr<HttpSender> sender,
    std::function<std::int64_t()> unix_seconds, std::shared_ptr<SharedGoogleToken> token = nullptr);

}  // namespace mayfly::cloud_hooks
