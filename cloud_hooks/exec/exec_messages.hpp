#pragma once

// The conversation with a user's program (docs/cloud.md): one JSON object in, one out. Parsing is
// strict about types and sizes and ignores names that it does not know.

#include <optional>
#include <string>
#include <vector>

#include "base/result.hpp"
#include "cloud_hooks/core/provider.hpp"

namespace mayfly::cloud_hooks::exec {

/// The request to the program. `op` is request, release, status, list or doctor.
[[nodiscard]] std::string request_text(const std::string& job, const ServerRequest& request);
[[nodiscard]] std::string server_text(const std::string& job, const std::string& op,
                                      const std::string& server);
[[nodiscard]] std::string plain_text(const std::string& job, const std::string& op);

struct ExecAnswer {
  std::vector<ServerStatus> servers;
  std::vector<Finding> findings;
  std::optional<ProviderError> error;
};

/// kCorrupt, with what is wrong, if the text is not such an answer.
[[nodiscard]] Result<ExecAnswer> parse_answer(const std::string& text);

}  // namespace mayfly::cloud_hooks::exec
