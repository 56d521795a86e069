// What a job asks for, and what its servers run: the part of engine/cloud that starts nothing.

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <boost/json.hpp>
#include <filesystem>
#include <iostream>
#include <random>

#include "base/file.hpp"
#include "base/time.hpp"
#include "engine/cloud.hpp"
#include "engine/cloud_offers.hpp"
#include "engine/cloud_provider.hpp"
#include "engine/exit_codes.hpp"

namespace mayfly::engine {
namespace {

constexpr std::size_t kStartupBytesMax = 200 * 1024;
constexpr std::size_t kTokenBytesMax = 4096;
constexpr double kSecondsPerHour = 3600;

std::uint64_t random_number() {
  std::random_device device;
  return (std::uint64_t{device()} << 32) ^ device();
}

/// For a shell, in single quotes.
std::string quoted(const std::string& text) {
  std::string out = "'";
  for (const char c : text) {
    out += c == '\'' ? std::string("'\\''") : std::string(1, c);
  }
  return out + "'";
}

std::string absolute(const std::string& path) {
  std::error_code failure;
  const std::filesystem::path full = std::filesystem::absolute(path, failure);
  return failure ? path : full.lexically_normal().string();
}

std::string own_program() {
  std::error_code failure;
  const std::filesystem::path program = std::filesystem::read_symlink("/proc/self/exe", failure);
  return failure ? "mayfly" : program.string();
}

void replace_all(std::string& text, const std::string& mark, const std::string& by) {
  for (std::size_t at = text.find(mark); at != std::string::npos;
       at = text.find(mark, at + by.size())) {
    text.replace(at, mark.size(), by);
  }
}

/// A user's script with our marks filled in.
Result<std::string> users_text(const JobConfig& config, const std::string& endpoint,
                               bool with_token) {
  Result<std::string> text = read_text_file(config.cloud_startup, kStartupBytesMax);
  if (!text.ok()) {
    return Error{Errc::kInvalidInput, "cloud_startup: " + text.error().detail};
  }
  std::string token = "(the token)";
  if (with_token && text.value().find("{token}") != std::string::npos) {
    Result<std::string> read = read_text_file(config.token_file, kTokenBytesMax);
    if (!read.ok()) {
      return read.error();
    }
    token = read.value().substr(0, read.value().find('\n'));
  }
  std::string filled = std::move(text).value();
  replace_all(filled, "{coordinator}", endpoint);
  replace_all(filled, "{run_dir}", absolute(config.run_dir));
  replace_all(filled, "{worker_args}", config.cloud_worker_args);
  replace_all(filled, "{token}", token);
  return filled;
}

}  // namespace

Result<std::string> startup_text(const JobConfig& config, const std::string& endpoint,
                                 bool with_token) {
  if (!config.cloud_startup.empty()) {
    return users_text(config, endpoint, with_token);
  }
  if (config.cloud_provider == "gce" || config.cloud_provider == "ec2") {
    return Error{Errc::kInvalidInput, "cloud_provider " + config.cloud_provider +
                                          " needs cloud_startup: the script that a new machine "
                                          "runs (docs/cloud.md has one to start from)"};
  }
  const bool is_loopback = endpoint.starts_with("127.") || endpoint.starts_with("localhost");
  const std::string host = is_loopback ? "127.0.0.1" : "\"$(hostname -I | cut -d' ' -f1)\"";
  return fmt::format(
      "#!/bin/sh\n"
      "# Starts a worker; for machines that see the same files as the coordinator.\n"
      "exec {} worker --config {} --coordinator {} --token-file {} --bind-host {} {}\n",
      quoted(own_program()), quoted(absolute(config.run_dir) + "/config.toml"), quoted(endpoint),
      quoted(absolute(config.token_file)), host, config.cloud_worker_args);
}

std::string cloud_memory_path(const std::string& run_dir) {
  return run_dir + "/cloud.json";
}

std::string print_cloud_memory(const CloudMemory& memory) {
  return boost::json::serialize(boost::json::object{
             {"spent", memory.spent}, {"per_hour", memory.per_hour}, {"at", memory.at}}) +
         "\n";
}

std::optional<CloudMemory> read_cloud_memory(const std::string& run_dir) {
  constexpr std::size_t kBytesMax = 10'000;
  const Result<std::string> text = read_text_file(cloud_memory_path(run_dir), kBytesMax);
  if (!text.ok()) {
    return std::nullopt;
  }
  boost::json::error_code failure;
  const boost::json::value value = boost::json::parse(text.value(), failure);
  if (failure || !value.is_object()) {
    return std::nullopt;
  }
  const auto number = [&value](const char* name) {
    const boost::json::value* field = value.get_object().if_contains(name);
    return field != nullptr && field->is_number() ? field->to_number<double>() : 0.0;
  };
  return CloudMemory{number("spent"), number("per_hour"), number("at")};
}

Result<cloud_hooks::ReplacementOptions> replacement_options(
    const JobConfig& config, const cloud_hooks::Capabilities& provider) {
  cloud_hooks::ReplacementOptions options;
  Result<std::vector<cloud_hooks::OfferTerms>> offers = parse_offers(config.cloud_offers);
  if (!offers.ok()) {
    return offers.error();
  }
  options.offers = std::move(offers).value();
  if (options.offers.empty()) {
    options.offers.emplace_back();  // whatever the provider has, at no price
  }
  const auto is_free = [](const auto& terms) { return terms.price_per_hour == 0; };
  const bool has_budget = config.cloud_budget > 0 || config.cloud_budget_per_hour > 0;
  if (has_budget && std::any_of(options.offers.begin(), options.offers.end(), is_free)) {
    return Error{Errc::kInvalidInput, "a budget needs the price of every offer"};
  }
  options.identity = random_number();
  options.target = config.workers;
  options.min = 1;
  options.max = std::max(config.workers, config.cloud_max_workers);
  options.on_demand_floor = config.cloud_on_demand_floor;
  options.provider = provider;
  if (config.cloud_budget > 0) {
    options.budget = config.cloud_budget;
  }
  if (config.cloud_budget_per_hour > 0) {
    options.budget_per_hour = config.cloud_budget_per_hour;
  }
  options.lifetime_max =
      seconds(static_cast<std::int64_t>(config.cloud_lifetime_hours * kSecondsPerHour));
  options.start_timeout = Duration(static_cast<std::int64_t>(config.cloud_start_timeout * 1e9));
  options.join_timeout = options.start_timeout;
  if (!provider.survives_us) {  // processes on this host: looking costs nothing and is exact
    options.list_every = seconds(1);
    options.absence_grace = Duration(0);
    options.rejoin_patience = seconds(5);
  }
  if (const std::optional<CloudMemory> memory = read_cloud_memory(config.run_dir)) {
    const double away = std::max(0.0, wall_clock_seconds() - memory->at);
    options.restarted = true;
    options.per_hour_before = provider.survives_us ? memory->per_hour : 0;
    options.spent_before = memory->spent + options.per_hour_before * away / kSecondsPerHour;
  }
  return options;
}

int show_cloud_plan(const JobConfig& requested) {
  JobConfig config = requested;
  resolve_defaults(config);
  const std::string endpoint = fmt::format("{}:{}", config.bind_host, config.port);
  const Result<std::unique_ptr<cloud_hooks::Provider>> provider =
      make_cloud_provider(config, cloud_label(config), {own_program(), "worker"});
  if (!provider.ok()) {
    return refuse(provider.error(), kExitUsage);
  }
  Result<std::string> text = startup_text(config, endpoint, false);
  Result<cloud_hooks::ReplacementOptions> options =
      replacement_options(config, provider.value()->capabilities());
  for (const Error* error :
       {text.ok() ? nullptr : &text.error(), options.ok() ? nullptr : &options.error()}) {
    if (error != nullptr) {
      return refuse(*error, kExitUsage);
    }
  }
  options.value().startup_text = std::move(text).value();
  options.value().provider.survives_us = false;  // nobody is asked, so nothing is listed first
  options.value().restarted = false;
  cloud_hooks::ReplacementPolicy policy(std::move(options).value());
  for (const cloud_hooks::PolicyEffect& effect :
       policy.handle(Instant{}, cloud_hooks::policy_event::Begin{})) {
    if (const auto* request = std::get_if<cloud_hooks::policy_effect::Request>(&effect)) {
      std::cout << provider.value()->preview(request->request) << "\n";
    } else if (const auto* tell = std::get_if<cloud_hooks::policy_effect::Tell>(&effect)) {
      std::cout << "# " << tell->kind << ": " << tell->detail << "\n";
    }
  }
  std::cout << fmt::format("# {:.4g} per hour in all\n", policy.status(Instant{}).per_hour);
  return kExitDone;
}

}  // namespace mayfly::engine
