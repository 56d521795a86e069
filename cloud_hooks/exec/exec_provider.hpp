#pragma once

// Servers from a user's program, which is run once per call, with a JSON object on its standard
// input and one on its standard output (docs/cloud.md has the contract; examples/cloud has programs
// for gcloud, aws, az and kubectl). Parsing is strict about types and sizes and ignores names that
// it does not know. Any thread, several at once.

#include <memory>
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
  std::uint32_t wanted_back = 0;  ///< "give_up": see Provider::wanted_back
  std::optional<ProviderError> error;
};

/// kCorrupt, with what is wrong, if the text is not such an answer.
[[nodiscard]] Result<ExecAnswer> parse_answer(const std::string& text);

}  // namespace mayfly::cloud_hooks::exec

namespace mayfly::cloud_hooks {

struct ExecProviderOptions {
  std::vector<std::string> argv;  ///< the program and its fixed arguments
  std::string job;                ///< label of everything that it creates
  std::uint32_t count_max = 1;    ///< servers in one request
  Duration timeout = seconds(60);
};

/// A program that takes too long, ends with another exit code than 0 or prints something else than
/// an answer may have created a server: kRate, so the same request is repeated. Some exit codes are
/// more exact (sysexits.h): 69 capacity, 75 rate, 77 auth, 78 config; also config for 126 and 127,
/// with which a shell reports that it cannot run the program.
[[nodiscard]] std::unique_ptr<Provider> make_exec_provider(ExecProviderOptions options);

}  // namespace mayfly::cloud_hooks
