#pragma once

// Requests to Compute Engine (v1) and its answers, as values and text, and the quotas of a project.
// Pure. Any thread.

#include <cstdint>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.hpp"
#include "cloud_hooks/core/provider.hpp"
#include "cloud_hooks/http/message.hpp"

namespace mayfly::cloud_hooks {

struct GceOptions {
  std::string job;      ///< value of the label "mayfly-job": [a-z0-9_-], 1 to 63 characters
  std::string project;  ///< id, not number
  std::string zone;     ///< of offers without one; may be empty
  std::string image = "projects/debian-cloud/global/images/family/debian-12";
  std::uint32_t disk_gb = 20;
  std::string network = "global/networks/default";
  std::string subnetwork;        ///< instead of the network; "regions/R/subnetworks/S"
  bool external_address = true;  ///< without one, a new server needs Cloud NAT to reach other hosts
  std::string service_account;   ///< e-mail that servers run as; empty: servers have no rights
  std::string endpoint = "https://compute.googleapis.com";
  std::vector<Offer> offers;  ///< checked by examine(); list() needs to see their zones
  Duration operation_wait_max = seconds(90);  ///< for request() to learn whether there is capacity
};

/// kInvalidInput, naming the option, if one cannot be used.
[[nodiscard]] Result<void> check(const GceOptions& options);

/// Name of the `index`-th server of a request; the same whenever the request is repeated.
[[nodiscard]] std::string gce_server_name(const std::string& request_id, std::uint32_t index);
/// UUID of the insertion of that server, for Compute Engine's own idempotence.
[[nodiscard]] std::string gce_insert_id(const std::string& request_id, std::uint32_t index);

/// Body of instances.insert. A machine type "n1-standard-8+nvidia-tesla-t4:2" has two T4 attached.
/// kInvalidInput for a machine type that is not of this form, or a zone that is no name.
[[nodiscard]] Result<std::string> gce_insert_body(const GceOptions& options,
                                                  const ServerRequest& request,
                                                  std::uint32_t index);

/// The meaning of an answer with an error status. `what` is a readable name of the request.
[[nodiscard]] ProviderError gce_error(const HttpResponse& answer, std::string_view what);

struct GceOperation {
  std::string name;
  bool done = false;
  std::optional<ProviderError>
      error;  ///< of a finished operation; stock-outs are reported only here
};

/// kCorrupt if it is not a description of an operation.
[[nodiscard]] Result<GceOperation> parse_gce_operation(std::string_view json);

/// One instance. Its id is "zone/name". `now`: seconds since 1970 by Compute Engine's clock.
[[nodiscard]] Result<ServerStatus> parse_gce_instance(std::string_view json, std::int64_t now);

/// One page of instances.aggregatedList. kCorrupt also if the page is not complete because one of
/// `zones` could not be reached: servers of that zone are still billed.
[[nodiscard]] Result<ServerPage> parse_gce_page(std::string_view json, std::int64_t now,
                                                const std::set<std::string>& zones = {});

struct GceQuota {
  std::string metric;  ///< Compute Engine's name, for example "PREEMPTIBLE_CPUS"
  double limit = 0;
  double usage = 0;

  friend bool operator==(const GceQuota&, const GceQuota&) = default;
};

/// Reads the quotas from the description of a region. kCorrupt if the text is not such a
/// description; quotas of another form are skipped.
[[nodiscard]] Result<std::vector<GceQuota>> parse_gce_quotas(std::string_view json);

/// Findings for `mayfly cloud doctor`: whether each quota that servers of these offers use
/// (processors, accelerators) has room. Spot servers use separate quotas, or the usual ones if the
/// project has none. Without offers only processors are checked. Quotas that the region does not
/// have are skipped.
[[nodiscard]] std::vector<Finding> judge_gce_quotas(const std::string& region,
                                                    const std::vector<GceQuota>& quotas,
                                                    const std::vector<Offer>& offers);

}  // namespace mayfly::cloud_hooks
