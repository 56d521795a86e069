#pragma once

// Translates HTTP answers to the errors of providers, for all clouds alike. Pure. Any thread.

#include <string>
#include <string_view>

#include "cloud_hooks/core/provider.hpp"
#include "cloud_hooks/http/http_sender.hpp"

namespace mayfly::cloud_hooks {

/// The first line of a text from outside, printable characters only, at most 200 of them.
[[nodiscard]] std::string readable(std::string_view text);

/// The error for a request without an answer: kConfig if the certificate, the proxy or the request
/// itself is the reason, otherwise kRate: the outcome is unknown, and the same request may be
/// repeated.
[[nodiscard]] ProviderError no_answer(const Error& error);

/// The error for an answer whose text gives no better reason, by its status alone. Redirects are
/// kConfig (they are not followed), 5xx and answers that cannot be read are kRate.
[[nodiscard]] ProviderError by_status(int status, std::string detail);

/// The value of a Retry-After header, if it is in seconds.
[[nodiscard]] std::optional<Duration> retry_after(const HttpResponse& answer);

/// A rule for send_with_retries(): repeat after a temporary transport error, 429 and 5xx.
[[nodiscard]] std::optional<Duration> worth_another_try(const Result<HttpResponse>& answer);

}  // namespace mayfly::cloud_hooks
