// `mayfly cloud list|release|doctor`: a job's servers, without a running coordinator.

#include <fmt/format.h>

#include <algorithm>

#include "cli/arguments.hpp"
#include "cli/cli.hpp"
#include "engine/cloud/cloud_provider.hpp"
#include "engine/run/record_json.hpp"

namespace mayfly::cli {
namespace {

using cloud_hooks::Provider;
using cloud_hooks::ProviderError;
using cloud_hooks::ServerStatus;

int complain(const ProviderError& error, const Context& context) {
  return context.complain(std::string(cloud_hooks::to_string(error.kind)) + ": " + error.detail,
                          kExitFailed);
}

std::string json_of(const ServerStatus& server) {
  engine::json::object object;
  object["id"] = server.id;
  object["state"] = cloud_hooks::to_string(server.state);
  object["offer"] = cloud_hooks::to_string(server.offer);
  object["request"] = server.request_id;
  if (server.uptime) {
    object["uptime_s"] = to_seconds(*server.uptime);
  }
  return engine::json_text(object);
}

int list(Provider& provider, const ParsedArguments& arguments, Context& context) {
  const auto answer = provider.list();
  if (!answer.ok()) {
    return complain(answer.error(), context);
  }
  std::size_t alive = 0;
  for (const ServerStatus& server : answer.value()) {
    alive += server.alive() ? 1 : 0;
    if (arguments.has("json")) {
      context.out << json_of(server) << "\n";
    } else if (server.alive()) {
      const std::string uptime =
          server.uptime ? fmt::format(", up {:.0f} min", to_seconds(*server.uptime) / 60) : "";
      context.out << fmt::format("{:<24} {:<9} {}{}\n", server.id,
                                 cloud_hooks::to_string(server.state),
                                 cloud_hooks::to_string(server.offer), uptime);
    }
  }
  if (!arguments.has("json")) {
    context.out << alive << (alive == 1 ? " server\n" : " servers\n");
  }
  return kExitDone;
}

int release(Provider& provider, Context& context) {
  const auto answer = provider.list();
  if (!answer.ok()) {
    return complain(answer.error(), context);
  }
  if (std::ranges::none_of(answer.value(), &ServerStatus::alive)) {
    context.out << "nothing is released: the provider lists no server of this job\n";
  }
  int worst = kExitDone;
  for (const ServerStatus& server : answer.value()) {
    if (!server.alive()) {
      continue;
    }
    if (const std::optional<ProviderError> error = provider.release(server.id)) {
      context.out << server.id << " is still there\n";
      worst = complain(*error, context);
    } else {
      context.out << server.id << " released\n";
    }
  }
  return worst;
}

int examine(Provider& provider, const engine::JobConfig& config, const ParsedArguments& arguments,
            Context& context) {
  std::vector<cloud_hooks::Finding> findings = provider.examine();
  const std::vector<cloud_hooks::Finding> of_gpus = engine::examine_gpus(config);
  findings.insert(findings.end(), of_gpus.begin(), of_gpus.end());
  bool all_fine = true;
  for (const cloud_hooks::Finding& finding : findings) {
    all_fine = all_fine && finding.ok;
    if (arguments.has("json")) {
      context.out << engine::json_text({{"ok", finding.ok}, {"text", finding.text}}) << "\n";
    } else {
      context.out << (finding.ok ? "ok       " : "missing  ") << finding.text << "\n";
    }
  }
  return all_fine ? kExitDone : kExitFailed;
}

}  // namespace

int cloud(const ParsedArguments& arguments, Context& context) {
  const std::string verb = arguments.positionals.empty() ? "" : arguments.positionals.front();
  const bool is_known = verb == "list" || verb == "release" || verb == "doctor";
  if (!is_known || arguments.positionals.size() > 2) {
    return context.complain("cloud expects list JOB, release JOB or doctor", kExitUsage);
  }
  const Result<engine::JobConfig> config = resolve_config(arguments, context);
  if (!config.ok()) {
    return context.complain(config.error());
  }
  if (config.value().cloud_provider.empty()) {
    return context.complain("cloud needs --cloud-provider, or --config with a [cloud] table",
                            kExitUsage);
  }
  engine::JobConfig chosen = config.value();
  if (arguments.positionals.size() == 2) {
    chosen.cloud_job = arguments.positionals[1];
  }
  if (verb != "doctor" && chosen.cloud_job.empty() && chosen.run_dir.empty()) {
    return context.complain("cloud " + verb + " needs the job's name", kExitUsage);
  }
  const Result<std::unique_ptr<Provider>> provider =
      engine::make_cloud_provider(chosen, engine::cloud_label(chosen), {"/proc/self/exe"});
  if (!provider.ok()) {
    return context.complain(provider.error());
  }
  return verb == "list"      ? list(*provider.value(), arguments, context)
         : verb == "release" ? release(*provider.value(), context)
                             : examine(*provider.value(), chosen, arguments, context);
}

}  // namespace mayfly::cli
