#pragma once

// Servers of AWS's EC2, over its Query interface. See docs/cloud_providers.md.

#include <cstdint>
#include <functional>
#include <memory>

#include "base/result.hpp"
#include "cloud_hooks/core/provider.hpp"
#include "cloud_hooks/ec2/aws_credentials.hpp"
#include "cloud_hooks/ec2/ec2_messages.hpp"
#include "cloud_hooks/ec2/ec2_promises.hpp"
#include "cloud_hooks/http/http_sender.hpp"

namespace mayfly::cloud_hooks {

/// `unix_seconds` is the wall clock; if it is wrong, it is corrected with the time in EC2's
/// answers. kInvalidInput if an option cannot be used, also for an endpoint that is neither
/// https:// nor on this host. Several providers of one job share `promises` and `role`; null: this
/// one has its own.
[[nodiscard]] Result<std::unique_ptr<Provider>> make_ec2_provider(
    Ec2Options options, AwsCredentialOptions credentials, std::unique_ptr<HttpSender> sender,
    std::function<std::int64_t()> unix_seconds, std::shared_ptr<Ec2Promises> promises = nullptr,
    std::shared_ptr<SharedAwsRole> role = nullptr);

}  // namespace mayfly::cloud_hooks
