#pragma once

// Servers by a user's program: one run per call, a JSON object on its standard input, one on its
// standard output (docs/cloud.md has the contract; examples/cloud has programs for gcloud, aws, az
// and kubectl). Any thread, several at once.

#include <memory>
#include <string>
#include <vector>

#include "cloud_hooks/core/provider.hpp"

namespace mayfly::cloud_hooks {

struct ExecProviderOptions {
  std::vector<std::string> argv;  ///< the program and its fixed arguments
  std::string job;                ///< label of everything that it creates
  std::uint32_t count_max = 1;    ///< servers in one request
  Duration timeout = seconds(60);
};

/// A program that takes too long, ends with another exit code than 0 or prints something else than
/// an answer may have created a server: kRate, so the same request is repeated. Its exit codes can
/// also say more (those of sysexits.h): 69 capacity, 75 rate, 77 auth, 78 config, and 126 and 127,
/// which the shell means by a program that it cannot run, config.
[[nodiscard]] std::unique_ptr<Provider> make_exec_provider(ExecProviderOptions options);

}  // namespace mayfly::cloud_hooks
