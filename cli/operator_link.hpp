#pragma once

// Where a running job is reached: the files `coordinator` and `token` of its run directory.

#include <string>

#include "base/bytes.hpp"
#include "base/result.hpp"
#include "cli/arguments.hpp"

namespace mayfly::cli {

/// "host:port" from DIR/coordinator. kNotFound if there is none (the job has ended or never began).
[[nodiscard]] Result<std::string> endpoint_of_run(const std::string& run_dir);

/// Endpoint, token and the remaining positionals of an operator's command.
struct OperatorLink {
  std::string endpoint;
  Bytes token;
  std::vector<std::string> rest;
};

/// From --run-dir, or the first positional with --token-file. `rest_names` are the positionals that
/// must follow, for the error text.
[[nodiscard]] Result<OperatorLink> operator_link(const std::string& command,
                                                 const ParsedArguments& arguments,
                                                 const std::vector<std::string>& rest_names);

}  // namespace mayfly::cli
