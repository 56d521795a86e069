#pragma once

// Two transports as one: a view gets a group in host memory (the control group: small messages, the
// state of joining workers) and one in device memory, which reduces gradients. Both are formed for
// the same view; if one of them fails, the other one is aborted.

#include <memory>

#include "collectives/group.hpp"

namespace mayfly::collectives {

/// Its groups are those of `host`, with a group of `device` in Group::on_device(). A failure of
/// either part aborts the other. form() first forms the part in host memory, whose errors occur
/// sooner and name culprits; all members of a view must use a pair. The address is that of `host`;
/// the device's members use GroupSpec::store.
[[nodiscard]] std::unique_ptr<Transport> make_paired_transport(std::unique_ptr<Transport> host,
                                                               std::unique_ptr<Transport> device);

}  // namespace mayfly::collectives
