#include "cloud_hooks/ec2/ec2_messages.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <pugixml.hpp>

#include "cloud_hooks/http/http_sender.hpp"

namespace mayfly::cloud_hooks {
namespace {

constexpr const char* kVersion = "2016-11-15";

template <std::size_t N>
bool is_one_of(const std::string& code, const std::array<std::string_view, N>& codes) {
  return std::find(codes.begin(), codes.end(), code) != codes.end();
}

ProviderErrorKind kind_of(const std::string& code, ProviderErrorKind otherwise) {
  constexpr std::array<std::string_view, 14> kRate = {
      "RequestLimitExceeded", "Throttling",
      "ThrottlingException",  "EC2ThrottledException",
      "RequestThrottled",     "InternalError",
      "InternalFailure",      "ServiceUnavailable",
      "Unavailable",          "ServerInternal",
      "RequestTimeout",       "IncorrectInstanceState",
      "IncorrectState",       "BandwidthLimitExceeded"};
  constexpr std::array<std::string_view, 15> kAuth = {
      "AuthFailure",           "UnauthorizedOperation",
      "SignatureDoesNotMatch", "InvalidClientTokenId",
      "ExpiredToken",          "RequestExpired",
      "OptInRequired",         "MissingAuthenticationToken",
      "IncompleteSignature",   "AccessDenied",
      "AccessDeniedException", "Blocked",
      "PendingVerification",   "UnrecognizedClientException",
      "InvalidSecurity"};
  constexpr std::array<std::string_view, 4> kCapacity = {
      "SpotMaxPriceTooLow", "InsufficientFreeAddressesInSubnet", "IdempotentInstanceTerminated",
      "CapacityNotAvailable"};
  if (is_one_of(code, kRate)) {
    return ProviderErrorKind::kRate;
  }
  if (is_one_of(code, kAuth)) {
    return ProviderErrorKind::kAuth;
  }
  if (is_one_of(code, kCapacity) ||
      (code.starts_with("Insufficient") && code.ends_with("Capacity"))) {
    return ProviderErrorKind::kCapacity;
  }
  if (code.ends_with("LimitExceeded") || code.ends_with("CountExceeded")) {
    return ProviderErrorKind::kQuota;
  }
  return otherwise;
}

/// The zones with capacity in a message that ends "... or choosing eu-west-1b, eu-west-1c."
std::vector<std::string> zones_in(const std::string& message) {
  constexpr std::string_view kBefore = "choosing ";
  std::vector<std::string> zones;
  const std::size_t start = message.find(kBefore);
  if (start == std::string::npos) {
    return zones;
  }
  const std::string list = message.substr(start + kBefore.size());
  for (const std::string& word : words_in(list.substr(0, list.find('.')))) {
    if (is_cloud_name(word) && word != "or") {
      zones.push_back(word);
    }
  }
  return zones;
}

std::string text_of(const pugi::xml_node& node, const char* path) {
  return node.first_element_by_path(path).child_value();
}

ServerState state_of(const std::string& name) {
  return name == "pending"      ? ServerState::kStarting
         : name == "running"    ? ServerState::kRunning
         : name == "terminated" ? ServerState::kGone
                                : ServerState::kStopping;  // also stopped by hand: its disk bills
}

ServerStatus server_of(const pugi::xml_node& item, std::int64_t now) {
  ServerStatus server;
  server.id = text_of(item, "instanceId");
  server.state = state_of(text_of(item, "instanceState/name"));
  server.offer.machine_type = text_of(item, "instanceType");
  server.offer.zone = text_of(item, "placement/availabilityZone");
  server.offer.market =
      text_of(item, "instanceLifecycle") == "spot" ? Market::kSpot : Market::kOnDemand;
  // Codes: docs.aws.amazon.com/AWSEC2/latest/APIReference/API_StateReason.html. Our start script
  // shuts the instance down when its worker has ended.
  const std::string code = text_of(item, "stateReason/code");
  server.detail = readable(code.empty() ? text_of(item, "reason") : code);
  server.failed = code == "Client.InstanceInitiatedShutdown";
  for (const pugi::xml_node& tag : item.child("tagSet").children("item")) {
    if (std::string_view(tag.child_value("key")) == "mayfly-request") {
      server.request_id = tag.child_value("value");
    }
  }
  if (const std::optional<std::int64_t> start = parse_iso_time(text_of(item, "launchTime"))) {
    server.uptime = seconds(std::max<std::int64_t>(0, now - *start));
  }
  return server;
}

void add_tags(Ec2Form& form, const Ec2Options& options, const ServerRequest& request) {
  std::vector<std::pair<std::string, std::string>> tags = {{"mayfly-job", options.job},
                                                           {"mayfly-request", request.request_id},
                                                           {"Name", "mayfly-" + options.job}};
  tags.insert(tags.end(), request.labels.begin(), request.labels.end());
  form.emplace_back("TagSpecification.1.ResourceType", "instance");
  for (std::size_t i = 0; i < tags.size(); ++i) {
    form.emplace_back(fmt::format("TagSpecification.1.Tag.{}.Key", i + 1), tags[i].first);
    form.emplace_back(fmt::format("TagSpecification.1.Tag.{}.Value", i + 1), tags[i].second);
  }
}

}  // namespace

Result<void> check(const Ec2Options& options) {
  const auto bad = [](const std::string& what) { return Error{Errc::kInvalidInput, what}; };
  if (!is_cloud_name(options.job, "_")) {
    return bad("the job's name must be 1 to 63 of a-z, 0-9, '-' and '_' to be a tag");
  }
  if (options.region.empty()) {
    return bad("cloud_provider ec2 needs the name of an AWS region: cloud_options \"region=NAME\"");
  }
  if (!is_cloud_name(options.region)) {
    return bad("region '" + readable(options.region) + "' is not the name of an AWS region");
  }
  if (!options.endpoint.empty()) {
    if (const Result<Url> endpoint = parse_url(options.endpoint); !endpoint.ok()) {
      return endpoint.error();
    }
  }
  return {};
}

/// The lifetime is enforced by the machine itself: EC2 has no such limit, but a machine that shuts
/// down is terminated (InstanceInitiatedShutdownBehavior). User data runs as root; only root can
/// read the script, which contains a secret of the job. Base64 preserves any content of it. The
/// script is not put into /run, because many images mount that without the right to execute files.
/// If the script cannot be started, or is killed, the machine shuts down, because it would be
/// billed without being used.
std::string ec2_user_data(const std::string& startup_text, Duration lifetime_max) {
  std::string script = "#!/bin/sh\n";
  if (lifetime_max > Duration(0)) {
    const auto limit = std::chrono::ceil<std::chrono::minutes>(lifetime_max).count();
    script += fmt::format("shutdown -P +{}\n", limit);
  }
  if (!startup_text.empty()) {
    script += fmt::format(
        "umask 077\nscript=$(mktemp \"${{TMPDIR:-/var/tmp}}/mayfly-startup-XXXXXX\")\n"
        "base64 -d >\"$script\" <<'END'\n{}\nEND\n"
        "chmod 700 \"$script\"\n\"$script\"\n"
        "[ $? -lt 126 ] || shutdown -P now\n",
        base64_encode(startup_text));
  }
  return script;
}

Result<Ec2Form> ec2_run_form(const Ec2Options& options, const ServerRequest& request) {
  constexpr std::size_t kUserDataBytesMax = 16 * 1024;  // EC2's limit, before base64
  if (options.image.empty()) {
    return Error{Errc::kInvalidInput, "EC2 needs an image (ami-...)"};
  }
  if (request.offer.machine_type.empty()) {
    return Error{Errc::kInvalidInput, "the offer names no machine type"};
  }
  Ec2Form form = {{"Action", "RunInstances"},
                  {"Version", kVersion},
                  {"ImageId", options.image},
                  {"InstanceType", request.offer.machine_type},
                  {"MinCount", "1"},  // a part of the servers is better than none
                  {"MaxCount", std::to_string(request.count)},
                  {"ClientToken", request.request_id},
                  {"InstanceInitiatedShutdownBehavior", "terminate"}};
  const std::string& zone = request.offer.zone;
  const bool is_subnet = zone.starts_with("subnet-");
  if (const std::string& subnet = is_subnet ? zone : options.subnet; !subnet.empty()) {
    form.emplace_back("SubnetId", subnet);
  }
  if (!zone.empty() && !is_subnet) {
    form.emplace_back("Placement.AvailabilityZone", zone);
  }
  for (std::size_t i = 0; i < options.security_groups.size(); ++i) {
    form.emplace_back(fmt::format("SecurityGroupId.{}", i + 1), options.security_groups[i]);
  }
  if (!options.key_name.empty()) {
    form.emplace_back("KeyName", options.key_name);
  }
  if (!options.instance_profile.empty()) {
    form.emplace_back("IamInstanceProfile.Name", options.instance_profile);
  }
  if (request.offer.market == Market::kSpot) {
    const std::string spot = "InstanceMarketOptions.SpotOptions.";
    form.emplace_back("InstanceMarketOptions.MarketType", "spot");
    form.emplace_back(spot + "SpotInstanceType", "one-time");
    form.emplace_back(spot + "InstanceInterruptionBehavior", "terminate");
  }
  if (!request.startup_text.empty() || request.lifetime_max > Duration(0)) {
    const std::string data = ec2_user_data(request.startup_text, request.lifetime_max);
    if (data.size() > kUserDataBytesMax) {
      return Error{Errc::kInvalidInput,
                   fmt::format("the startup script makes {} bytes of user data, EC2 takes {}",
                               data.size(), kUserDataBytesMax)};
    }
    form.emplace_back("UserData", base64_encode(data));
  }
  add_tags(form, options, request);
  return form;
}

/// EC2 allows pages of 1000 servers. Each takes about 5 KiB, so such a page could exceed the limit
/// of answers.
Ec2Form ec2_list_form(const Ec2Options& options, const std::string& next_token) {
  Ec2Form form = {{"Action", "DescribeInstances"},
                  {"Version", kVersion},
                  {"Filter.1.Name", "tag:mayfly-job"},
                  {"Filter.1.Value.1", options.job},
                  {"MaxResults", "200"}};
  if (!next_token.empty()) {
    form.emplace_back("NextToken", next_token);
  }
  return form;
}

Ec2Form ec2_server_form(const std::string& action, const std::string& id) {
  return {{"Action", action}, {"Version", kVersion}, {"InstanceId.1", id}};
}

Ec2Error parse_ec2_error(const HttpResponse& answer, std::string_view what) {
  pugi::xml_document document;
  document.load_buffer(answer.body.data(), answer.body.size());
  const pugi::xml_node error = document.first_element_by_path("Response/Errors/Error");
  const std::string code = readable(text_of(error, "Code"));
  const std::string message = text_of(error, "Message");
  Ec2Error result{code,
                  by_status(answer.status,
                            fmt::format("{}: HTTP {} {}: {}", what, answer.status, code,
                                        message.empty() ? "without a reason" : readable(message)))};
  result.error.kind = kind_of(code, result.error.kind);
  result.error.retry_after = retry_after(answer);
  if (result.error.kind == ProviderErrorKind::kCapacity) {
    result.error.zones_available = zones_in(message);
  }
  return result;
}

Result<ServerPage> parse_ec2_instances(std::string_view xml, std::int64_t now) {
  pugi::xml_document document;
  const pugi::xml_parse_result parsed = document.load_buffer(xml.data(), xml.size());
  const pugi::xml_node root = document.document_element();
  const bool run = std::string_view(root.name()) == "RunInstancesResponse";
  const bool listed = std::string_view(root.name()) == "DescribeInstancesResponse";
  if (!parsed || (!run && !listed) || !root.child(run ? "instancesSet" : "reservationSet")) {
    return Error{Errc::kCorrupt, "the answer is not a list of instances"};
  }
  ServerPage page;
  page.next_token = text_of(root, "nextToken");
  const auto take = [&](const pugi::xml_node& set) {
    for (const pugi::xml_node& item : set.children("item")) {
      page.servers.push_back(server_of(item, now));
    }
  };
  if (run) {
    take(root.child("instancesSet"));
  }
  for (const pugi::xml_node& reservation : root.child("reservationSet").children("item")) {
    take(reservation.child("instancesSet"));
  }
  const bool complete =
      std::all_of(page.servers.begin(), page.servers.end(),
                  [](const ServerStatus& server) { return is_cloud_name(server.id); });
  return complete ? Result<ServerPage>(std::move(page))
                  : Result<ServerPage>(Error{Errc::kCorrupt, "an instance without an id"});
}

}  // namespace mayfly::cloud_hooks
