#include "cloud_hooks/gce/gce_messages.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cctype>
#include <cstdint>
#include <optional>
#include <set>
#include <utility>

#include "base/parse.hpp"
#include "base/try_assign.hpp"
#include "cloud_hooks/core/machine_gpu.hpp"
#include "cloud_hooks/http/http_sender.hpp"
#include "cloud_hooks/http/json_fields.hpp"
#include "cloud_hooks/http/message.hpp"

namespace mayfly::cloud_hooks {
namespace {

namespace json = boost::json;

constexpr const char* kNoObject = "the answer is not a JSON object";

std::string last_part(const std::string& url) {
  return url.substr(url.rfind('/') + 1);
}

struct MachineType {
  std::string name;
  std::string accelerator;  // empty: none
  int accelerators = 0;
};

Result<MachineType> parse_machine_type(const std::string& text) {
  MachineType type{text.substr(0, text.find('+')), "", 0};
  const Error bad{Errc::kInvalidInput,
                  "machine type '" + readable(text) + "' is not TYPE or TYPE+ACCELERATOR:COUNT"};
  if (type.name.size() < text.size()) {
    const auto [accelerator, count] = cut(std::string_view(text).substr(type.name.size() + 1), ':');
    type.accelerator = accelerator;
    type.accelerators = number_in<int>(count).value_or(0);
    if (type.accelerators < 1 || !is_cloud_name(type.accelerator)) {
      return bad;
    }
  }
  return is_cloud_name(type.name) ? Result<MachineType>(type) : Result<MachineType>(bad);
}

/// Whether the machine has GPUs, which were added to it or belong to its type.
bool has_gpu(const MachineType& type) {
  const std::optional<MachineGpu> own = gpu_of_machine(type.name);
  return !type.accelerator.empty() || (own && own->capability > 0);
}

/// The longest maxRunDuration that Compute Engine takes (its documentation, "Limit the run time of
/// a VM"). The job ends its servers itself.
constexpr std::int64_t kRunSecondsMax = std::int64_t{120} * 86400;

/// A machine with a GPU and a spot machine cannot be migrated to another host, so Compute Engine
/// takes no other value than TERMINATE for them. The disk of an instance that is stopped instead of
/// deleted is still billed, hence DELETE. Integers of 64 bits are strings in Google's JSON.
json::object scheduling_of(const ServerRequest& request, bool accelerated) {
  const bool spot = request.offer.market == Market::kSpot;
  json::object scheduling = {{"provisioningModel", spot ? "SPOT" : "STANDARD"},
                             {"preemptible", spot},
                             {"automaticRestart", false},
                             {"onHostMaintenance", spot || accelerated ? "TERMINATE" : "MIGRATE"}};
  auto lifetime = std::chrono::ceil<seconds>(request.lifetime_max).count();
  if (lifetime > 0) {
    lifetime = std::min<std::int64_t>(lifetime, kRunSecondsMax);
    scheduling["maxRunDuration"] = json::object{{"seconds", std::to_string(lifetime)}};
  }
  if (spot || lifetime > 0) {
    scheduling["instanceTerminationAction"] = "DELETE";
  }
  return scheduling;
}

/// An instance gets an external address only if an access configuration asks for one.
json::object network_of(const GceOptions& options) {
  json::object network;
  if (options.subnetwork.empty()) {
    network["network"] = options.network;
  } else {
    network["subnetwork"] = options.subnetwork;
  }
  if (options.external_address) {
    network["accessConfigs"] =
        json::array{json::object{{"type", "ONE_TO_ONE_NAT"}, {"name", "External NAT"}}};
  }
  return network;
}

/// The zones that, by the error of a stock-out, could serve the request.
std::vector<std::string> zones_available(const json::object& error) {
  std::vector<std::string> zones;
  for (const json::object* detail : objects_of(&error, "errorDetails")) {
    const json::object* const info = object_of(*detail, "errorInfo");
    const json::object* const data = info == nullptr ? nullptr : object_of(*info, "metadatas");
    if (data == nullptr) {
      continue;
    }
    for (const std::string& zone : words_in(text_of(*data, "zonesAvailable"))) {
      if (is_cloud_name(zone)) {
        zones.push_back(zone);
      }
    }
  }
  return zones;
}

/// The reason why a finished operation failed. Never kRate: repeating the request by its id gives
/// the same failure.
ProviderError operation_error(const json::object& error) {
  const std::string code = text_of(error, "code");
  const auto has = [&](std::string_view part) { return code.find(part) != std::string::npos; };
  ProviderErrorKind kind = ProviderErrorKind::kConfig;
  // EXHAUSTED: the pool of machines (ZONE_RESOURCE_POOL_) or the subnet's addresses (IP_SPACE_).
  if (has("EXHAUSTED") || has("STOCKOUT") || has("RATE_EXCEEDED") || has("INTERNAL") ||
      has("UNAVAILABLE") || has("TIMEOUT")) {
    kind = ProviderErrorKind::kCapacity;
  } else if (has("QUOTA") || has("LIMIT_EXCEEDED")) {
    kind = ProviderErrorKind::kQuota;
  } else if (has("PERMISSION") || has("FORBIDDEN")) {
    kind = ProviderErrorKind::kAuth;
  }
  return {kind, fmt::format("{}: {}", readable(code), readable(text_of(error, "message"))),
          zones_available(error), std::nullopt};
}

ServerState state_of(const std::string& status) {
  if (status == "PROVISIONING" || status == "STAGING" || status == "PENDING") {
    return ServerState::kStarting;
  }
  if (status == "RUNNING" || status == "REPAIRING") {
    return ServerState::kRunning;
  }
  // STOPPING, SUSPENDING, DEPROVISIONING, and states that are not known here. Also STOPPED,
  // TERMINATED and SUSPENDED: the disk is billed until the instance is deleted.
  return ServerState::kStopping;
}

/// Compute Engine deletes a spot instance that it takes away, and any instance at the end of its
/// lifetime (scheduling_of). So an instance that is stopped was shut down by our start script after
/// its worker had ended, or by hand, or is an on-demand one whose host was maintained.
bool is_stopped(const std::string& status) {
  return status == "STOPPED" || status == "TERMINATED";
}

/// Names of zones, types and accelerators are the last parts of addresses in Compute Engine's
/// answers. A restarted instance has been billed since its last start only.
Result<ServerStatus> server_of(const json::object& instance, std::int64_t now) {
  const std::string name = text_of(instance, "name");
  const std::string zone = last_part(text_of(instance, "zone"));
  const std::string status = text_of(instance, "status");
  if (!is_cloud_name(name) || !is_cloud_name(zone) || status.empty()) {
    return Error{Errc::kCorrupt, "an instance without name, zone or status"};
  }
  ServerStatus server;
  server.id = fmt::format("{}/{}", zone, name);
  server.state = state_of(status);
  server.failed = is_stopped(status);
  server.detail = readable(status);
  server.offer.zone = zone;
  server.offer.machine_type = last_part(text_of(instance, "machineType"));
  for (const json::object* accelerator : objects_of(&instance, "guestAccelerators")) {
    const json::value* const count = accelerator->if_contains("acceleratorCount");
    if (count != nullptr && count->is_int64()) {
      server.offer.machine_type += fmt::format(
          "+{}:{}", last_part(text_of(*accelerator, "acceleratorType")), count->get_int64());
    }
  }
  const json::object* const scheduling = object_of(instance, "scheduling");
  const bool spot = scheduling != nullptr && text_of(*scheduling, "provisioningModel") == "SPOT";
  server.offer.market = spot ? Market::kSpot : Market::kOnDemand;
  if (const json::object* const labels = object_of(instance, "labels"); labels != nullptr) {
    server.request_id = text_of(*labels, "mayfly-request");
  }
  std::string since = text_of(instance, "lastStartTimestamp");
  since = since.empty() ? text_of(instance, "creationTimestamp") : since;
  if (const std::optional<std::int64_t> start = parse_iso_time(since)) {
    server.uptime = seconds(std::max<std::int64_t>(0, now - *start));
  }
  return server;
}

/// Names of the zones that, by a page, Compute Engine could not reach. `zones`: the page's items,
/// or null.
std::vector<std::string> unreachable_in(const json::object& page, const json::object* zones) {
  std::vector<std::string> names;
  for (const auto& zone : zones == nullptr ? json::object() : *zones) {
    const json::object* const items = zone.value().if_object();
    const json::object* const warning = items == nullptr ? nullptr : object_of(*items, "warning");
    if (warning != nullptr && text_of(*warning, "code") == "UNREACHABLE") {
      names.push_back(last_part(std::string(zone.key())));
    }
  }
  const json::value* const others = page.if_contains("unreachables");
  if (others != nullptr && others->is_array()) {
    for (const json::value& one : others->get_array()) {
      if (one.is_string()) {
        names.push_back(last_part(std::string(one.get_string())));
      }
    }
  }
  return names;
}

constexpr const char* kSpotPrefix = "PREEMPTIBLE_";

/// "nvidia-tesla-t4" is counted as NVIDIA_T4_GPUS.
std::string metric_of_accelerator(std::string_view accelerator) {
  for (const std::string_view prefix : {"nvidia-", "tesla-"}) {
    if (accelerator.starts_with(prefix)) {
      accelerator.remove_prefix(prefix.size());
    }
  }
  std::string metric = "NVIDIA_";
  for (const char c : accelerator) {
    metric += c == '-' ? '_' : static_cast<char>(std::toupper(static_cast<unsigned char>(c)));
  }
  return metric + "_GPUS";
}

/// The quotas of GPUs that come with a machine type: how its name begins; the longest first. Those
/// of later types are not among the quotas of a region.
constexpr std::array<std::pair<std::string_view, std::string_view>, 4> kMetricsOfTypes = {{
    {"a2-ultragpu-", "NVIDIA_A100_80GB_GPUS"},
    {"a2-", "NVIDIA_A100_GPUS"},
    {"a3-highgpu-", "NVIDIA_H100_GPUS"},
    {"g2-standard-", "NVIDIA_L4_GPUS"},
}};

/// The quotas that servers of an offer use, by their usual names.
std::vector<std::string> metrics_of(const Offer& offer) {
  std::vector<std::string> metrics = {"CPUS"};
  const std::size_t plus = offer.machine_type.find('+');
  if (plus != std::string::npos) {
    const std::string extra = offer.machine_type.substr(plus + 1);
    metrics.push_back(metric_of_accelerator(extra.substr(0, extra.find(':'))));
  }
  for (const auto& [beginning, metric] : kMetricsOfTypes) {
    if (offer.machine_type.starts_with(beginning)) {
      metrics.emplace_back(metric);
      break;
    }
  }
  return metrics;
}

std::optional<double> number_of(const json::object& object, std::string_view name) {
  const json::value* const value = object.if_contains(name);
  return value != nullptr && value->is_number() ? std::optional(value->to_number<double>())
                                                : std::nullopt;
}

const GceQuota* find(const std::vector<GceQuota>& quotas, const std::string& metric) {
  const auto at = std::find_if(quotas.begin(), quotas.end(),
                               [&](const GceQuota& quota) { return quota.metric == metric; });
  return at == quotas.end() ? nullptr : &*at;
}

/// It is enough if one of the quotas has room.
void judge(const std::string& region, const std::vector<const GceQuota*>& any_of,
           std::vector<Finding>& findings) {
  bool has_room = false;
  std::string text;
  for (const GceQuota* quota : any_of) {
    has_room = has_room || quota->usage < quota->limit;
    text += fmt::format("{}{} {:g} of {:g} in use", text.empty() ? "" : ", ", quota->metric,
                        quota->usage, quota->limit);
  }
  if (!any_of.empty()) {
    findings.push_back({has_room, fmt::format("{} of {}: {}", has_room ? "quota" : "no quota left",
                                              region, text)});
  }
}

}  // namespace

Result<void> check(const GceOptions& options) {
  const auto bad = [](const std::string& what) { return Error{Errc::kInvalidInput, what}; };
  if (!is_cloud_name(options.job, "_")) {
    return bad("the job's name must be 1 to 63 of a-z, 0-9, '-' and '_' to be a label");
  }
  if (options.project.empty()) {
    return bad(
        "cloud_provider gce needs the id of a Google project: cloud_options \"project=ID "
        "zone=ZONE\"");
  }
  if (!is_cloud_name(options.project, ".:")) {
    return bad("project '" + readable(options.project) + "' is not the id of a Google project");
  }
  if (!options.zone.empty() && !is_cloud_name(options.zone)) {
    return bad("zone '" + readable(options.zone) + "' is not the name of a zone");
  }
  const Result<Url> endpoint = parse_url(options.endpoint);
  return endpoint.ok() ? Result<void>() : Result<void>(endpoint.error());
}

std::string gce_server_name(const std::string& request_id, std::uint32_t index) {
  std::string name = "mayfly-";
  for (const char c : request_id) {
    if (c != '-') {
      name += c;
    }
  }
  return fmt::format("{}-{}", name, index);
}

std::string gce_insert_id(const std::string& request_id, std::uint32_t index) {
  // Shaped like a random UUID (RFC 4122, 4.4), which is what the interface asks for.
  std::string hex = to_hex(sha256(fmt::format("{}/{}", request_id, index))).substr(0, 32);
  hex[12] = '4';
  hex[16] = 'a';
  return fmt::format("{}-{}-{}-{}-{}", hex.substr(0, 8), hex.substr(8, 4), hex.substr(12, 4),
                     hex.substr(16, 4), hex.substr(20, 12));
}

Result<std::string> gce_insert_body(const GceOptions& options, const ServerRequest& request,
                                    std::uint32_t index) {
  const std::string& zone = request.offer.zone.empty() ? options.zone : request.offer.zone;
  TRY_ASSIGN(const MachineType type, parse_machine_type(request.offer.machine_type));
  if (!is_cloud_name(zone)) {
    return Error{Errc::kInvalidInput, zone.empty() ? std::string("neither the offer nor the "
                                                                 "configuration names a zone")
                                                   : "'" + readable(zone) + "' is not a zone"};
  }
  json::object labels = {{"mayfly-job", options.job}, {"mayfly-request", request.request_id}};
  for (const auto& [name, value] : request.labels) {
    labels[name] = value;
  }
  const json::object disk = {
      {"boot", true},
      {"autoDelete", true},
      {"initializeParams", json::object{{"sourceImage", options.image},
                                        {"diskSizeGb", std::to_string(options.disk_gb)}}}};
  json::object body = {{"name", gce_server_name(request.request_id, index)},
                       {"machineType", fmt::format("zones/{}/machineTypes/{}", zone, type.name)},
                       {"labels", std::move(labels)},
                       {"scheduling", scheduling_of(request, has_gpu(type))},
                       {"disks", json::array{disk}},
                       {"networkInterfaces", json::array{network_of(options)}}};
  if (!type.accelerator.empty()) {
    body["guestAccelerators"] = json::array{
        json::object{{"acceleratorType", fmt::format("projects/{}/zones/{}/acceleratorTypes/{}",
                                                     options.project, zone, type.accelerator)},
                     {"acceleratorCount", type.accelerators}}};
  }
  if (!request.startup_text.empty()) {
    body["metadata"] = json::object{
        {"items",
         json::array{json::object{{"key", "startup-script"}, {"value", request.startup_text}}}}};
  }
  if (!options.service_account.empty()) {
    body["serviceAccounts"] = json::array{
        json::object{{"email", options.service_account},
                     {"scopes", json::array{"https://www.googleapis.com/auth/cloud-platform"}}}};
  }
  return json::serialize(body);
}

/// Compute Engine uses status 403 for missing rights as well as for quotas and for too many
/// requests; only the reason in the body tells them apart.
ProviderError gce_error(const HttpResponse& answer, std::string_view what) {
  const Result<json::object> body = parse_object(answer.body, kNoObject);
  const json::object* const error = body.ok() ? object_of(body.value(), "error") : nullptr;
  const std::vector<const json::object*> errors = objects_of(error, "errors");
  const std::string reason = errors.empty() ? "" : text_of(*errors.front(), "reason");
  const std::string message = error == nullptr ? "" : text_of(*error, "message");
  ProviderError result = by_status(
      answer.status, fmt::format("{}: HTTP {} {} {}", what, answer.status, readable(reason),
                                 message.empty() ? "without a reason" : readable(message)));
  result.retry_after = retry_after(answer);
  if (reason == "rateLimitExceeded" || reason == "userRateLimitExceeded" ||
      reason == "resourceNotReady") {
    result.kind = ProviderErrorKind::kRate;
  } else if (reason == "quotaExceeded" || reason == "QUOTA_EXCEEDED") {
    result.kind = ProviderErrorKind::kQuota;
  } else if (reason.find("POOL_EXHAUSTED") != std::string::npos) {
    result.kind = ProviderErrorKind::kCapacity;
  }
  return result;
}

Result<GceOperation> parse_gce_operation(std::string_view text) {
  TRY_ASSIGN(const json::object parsed, parse_object(text, kNoObject));
  GceOperation operation;
  operation.name = text_of(parsed, "name");
  const std::string status = text_of(parsed, "status");
  if (!is_cloud_name(operation.name) ||
      (status != "PENDING" && status != "RUNNING" && status != "DONE")) {
    return Error{Errc::kCorrupt, "the answer does not describe an operation"};
  }
  operation.done = status == "DONE";
  const json::object* const error = object_of(parsed, "error");
  if (operation.done && error != nullptr) {
    const std::vector<const json::object*> errors = objects_of(error, "errors");
    operation.error = operation_error(errors.empty() ? *error : *errors.front());
  }
  return operation;
}

Result<ServerStatus> parse_gce_instance(std::string_view text, std::int64_t now) {
  const Result<json::object> parsed = parse_object(text, kNoObject);
  return parsed.ok() ? server_of(parsed.value(), now) : Result<ServerStatus>(parsed.error());
}

Result<ServerPage> parse_gce_page(std::string_view text, std::int64_t now,
                                  const std::set<std::string>& zones_needed) {
  TRY_ASSIGN(const json::object parsed, parse_object(text, kNoObject));
  const json::object* const zones = object_of(parsed, "items");
  if (zones == nullptr && parsed.contains("items")) {
    return Error{Errc::kCorrupt, "the answer is not a list of instances by zone"};
  }
  for (const std::string& zone : unreachable_in(parsed, zones)) {
    if (zones_needed.contains(zone)) {
      return Error{Errc::kCorrupt,
                   "Compute Engine cannot reach " + zone + ", so its list is not complete"};
    }
  }
  ServerPage page;
  page.next_token = text_of(parsed, "nextPageToken");
  for (const auto& zone : zones == nullptr ? json::object() : *zones) {
    for (const json::object* instance : objects_of(zone.value().if_object(), "instances")) {
      TRY_ASSIGN(ServerStatus server, server_of(*instance, now));
      page.servers.push_back(std::move(server));
    }
  }
  return page;
}

Result<std::vector<GceQuota>> parse_gce_quotas(std::string_view text) {
  TRY_ASSIGN(const json::object region, parse_object(text, kNoObject));
  std::vector<GceQuota> quotas;
  for (const json::object* quota : objects_of(&region, "quotas")) {
    const std::string metric = text_of(*quota, "metric");
    const std::optional<double> limit = number_of(*quota, "limit");
    const std::optional<double> usage = number_of(*quota, "usage");
    if (!metric.empty() && limit && usage) {
      quotas.push_back({readable(metric), *limit, *usage});
    }
  }
  return quotas;
}

std::vector<Finding> judge_gce_quotas(const std::string& region,
                                      const std::vector<GceQuota>& quotas,
                                      const std::vector<Offer>& offers) {
  std::set<std::pair<std::string, Market>> drawn_on;
  for (const Offer& offer : offers) {
    for (const std::string& metric : metrics_of(offer)) {
      drawn_on.emplace(metric, offer.market);
    }
  }
  if (offers.empty()) {
    drawn_on.emplace("CPUS", Market::kSpot);
  }
  std::vector<Finding> findings;
  for (const auto& [metric, market] : drawn_on) {
    std::vector<const GceQuota*> any_of;
    for (const std::string& name : market == Market::kSpot
                                       ? std::vector<std::string>{kSpotPrefix + metric, metric}
                                       : std::vector<std::string>{metric}) {
      if (const GceQuota* const quota = find(quotas, name)) {
        any_of.push_back(quota);
      }
    }
    judge(region, any_of, findings);
  }
  return findings;
}

}  // namespace mayfly::cloud_hooks
