#include "cli/operator_link.hpp"

#include "base/file.hpp"
#include "elastic/net/job_token.hpp"

namespace mayfly::cli {
namespace {

constexpr std::size_t kEndpointBytesMax = 512;

Error usage(const std::string& text) {
  return {Errc::kInvalidInput, text};
}

}  // namespace

Result<std::string> endpoint_of_run(const std::string& run_dir) {
  Result<std::string> text = read_text_file(run_dir + "/coordinator", kEndpointBytesMax);
  if (!text.ok()) {
    return Error{text.error().code, "no running job in " + run_dir + ": " + text.error().detail};
  }
  std::string endpoint = text.value();
  endpoint.erase(endpoint.find_last_not_of(" \r\n") + 1);
  if (endpoint.find(':') == std::string::npos) {
    return Error{Errc::kCorrupt, run_dir + "/coordinator does not hold HOST:PORT"};
  }
  return endpoint;
}

Result<OperatorLink> operator_link(const std::string& command, const ParsedArguments& arguments,
                                   const std::vector<std::string>& rest_names) {
  OperatorLink link;
  link.rest = arguments.positionals;
  const std::string run_dir = arguments.option("run-dir");
  if (run_dir.empty()) {
    if (link.rest.empty()) {
      return usage(command + " needs ENDPOINT (host:port) or --run-dir DIR");
    }
    link.endpoint = link.rest.front();
    link.rest.erase(link.rest.begin());
  } else {
    Result<std::string> endpoint = endpoint_of_run(run_dir);
    if (!endpoint.ok()) {
      return endpoint.error();
    }
    link.endpoint = std::move(endpoint).value();
  }
  if (link.rest.size() < rest_names.size()) {
    return usage(command + " needs " + rest_names[link.rest.size()]);
  }
  if (link.rest.size() > rest_names.size()) {
    return usage(command + ": unexpected argument '" + link.rest[rest_names.size()] + "'");
  }
  const std::string token_file =
      arguments.option("token-file", run_dir.empty() ? "" : run_dir + "/token");
  if (token_file.empty()) {
    return usage(command + " needs --token-file FILE, or --run-dir DIR");
  }
  Result<Bytes> token = elastic::read_token_file(token_file);
  if (!token.ok()) {
    return usage(token.error().detail);
  }
  link.token = std::move(token).value();
  return link;
}

}  // namespace mayfly::cli
