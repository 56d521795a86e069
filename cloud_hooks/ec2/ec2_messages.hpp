#pragma once

// Requests to EC2 (Query interface, 2016-11-15) and its answers, as values and text. Pure. Any
// thread.

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/result.hpp"
#include "cloud_hooks/core/provider.hpp"
#include "cloud_hooks/http/message.hpp"

namespace mayfly::cloud_hooks {

struct Ec2Options {
  std::string job;     ///< value of the tag "mayfly-job": [a-z0-9_-], 1 to 63 characters
  std::string region;  ///< for example "eu-west-1"
  std::string image;   ///< "ami-..."; must run the user data's script, as Debian's and Ubuntu's do
  std::string subnet;  ///< of offers whose zone is not a subnet itself; empty: the default one
  std::vector<std::string> security_groups;  ///< "sg-..."
  std::string key_name;                      ///< for ssh; may be empty
  std::string instance_profile;              ///< role of the servers, by name; may be empty
  std::string machine_type;  ///< for examine()'s dry-run request; empty: none is made
  std::string endpoint;      ///< empty: the region's own
};

/// kInvalidInput, naming the option, if one cannot be used.
[[nodiscard]] Result<void> check(const Ec2Options& options);

using Ec2Form = std::vector<std::pair<std::string, std::string>>;

/// RunInstances. The request's id is the client token, so a repetition starts nothing new. A zone
/// "subnet-..." is a subnet. kInvalidInput if the startup script is too long for user data.
[[nodiscard]] Result<Ec2Form> ec2_run_form(const Ec2Options& options, const ServerRequest& request);
/// DescribeInstances of this job.
[[nodiscard]] Ec2Form ec2_list_form(const Ec2Options& options, const std::string& next_token);
/// An action on one server: DescribeInstances or TerminateInstances.
[[nodiscard]] Ec2Form ec2_server_form(const std::string& action, const std::string& id);

/// The script that a server gets as user data: it ends the server after `lifetime_max`, and runs
/// `startup_text` whatever its interpreter is.
[[nodiscard]] std::string ec2_user_data(const std::string& startup_text, Duration lifetime_max);

struct Ec2Error {
  std::string code;  ///< EC2's own, for example "InsufficientInstanceCapacity"; may be empty
  ProviderError error;
};

/// The meaning of an answer with an error status. `what` is a readable name of the request.
[[nodiscard]] Ec2Error parse_ec2_error(const HttpResponse& answer, std::string_view what);

/// The instances in an answer of RunInstances or DescribeInstances. `now`: seconds since 1970 by
/// EC2's clock. kCorrupt if it is not such an answer.
[[nodiscard]] Result<ServerPage> parse_ec2_instances(std::string_view xml, std::int64_t now);

}  // namespace mayfly::cloud_hooks
