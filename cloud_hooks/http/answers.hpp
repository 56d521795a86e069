#pragma once

// From what came back to what a policy can act on, for all clouds alike. Pure. Any thread.

#include <string>
#include <string_view>

#include "cloud_hooks/core/provider.hpp"
#include "cloud_hooks/http/http_sender.hpp"

namespace mayfly::cloud_hooks {

/// The first line of a text from outside, printable, at most 200 characters.
[[nodiscard]] std::string readable(std::string_view text);

/// Why there was no answer: kConfig if the certificate, the proxy or the request itself is the
/// reason, else kRate: it is not known what happened, and the same request may be repeated.
[[nodiscard]] ProviderError no_answer(const Error& error);

/// For answers whose text says nothing better: by status alone. Redirects are kConfig (they are not
/// followed), 5xx and answers that cannot be read are kRate.
[[nodiscard]] ProviderError by_status(int status, std::string detail);

/// What a Retry-After header says in seconds, if it does.
[[nodiscard]] std::optional<Duration> retry_after(const HttpResponse& answer);

/// A rule for send_with_retries(): again after a transport error that may be over soon, 429 and
/// 5xx.
[[nodiscard]] std::optional<Duration> worth_another_try(const Result<HttpResponse>& answer);

}  // namespace mayfly::cloud_hooks
