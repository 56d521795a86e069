#pragma once

// Finds the coordinator of a running job (files `coordinator` and `token` of its run directory),
// and formats its status as a table.

#include <string>
#include <string_view>

#include "base/bytes.hpp"
#include "base/result.hpp"
#include "cli/arguments.hpp"

namespace mayfly::cli {

/// "host:port" from DIR/coordinator. kNotFound if the file does not exist, because the job has
/// ended or never began.
[[nodiscard]] Result<std::string> endpoint_of_run(const std::string& run_dir);

/// Endpoint, token and the remaining positionals of an operator's command.
struct OperatorLink {
  std::string endpoint;
  std::string run_dir;  ///< empty if the endpoint was given itself
  Bytes token;
  std::vector<std::string> rest;
};

/// Endpoint and token from the run directory (the first positional if that is a folder, or
/// --run-dir; a job with a --token-file names it there), or from the first positional and
/// --token-file. `rest_names` names the positionals that must follow. kInvalidInput with these
/// names if the number of positionals is wrong.
[[nodiscard]] Result<OperatorLink> operator_link(const std::string& command,
                                                 const ParsedArguments& arguments,
                                                 const std::vector<std::string>& rest_names);

/// The JSON answer to `status` as readable text: one line per plain field, then one aligned table
/// per list of objects (the members). Unknown fields are shown like known ones, so that an older
/// program can ask a newer job. kCorrupt if it is not a JSON object.
[[nodiscard]] Result<std::string> status_table(std::string_view json);

}  // namespace mayfly::cli
