#pragma once

// Two transports as one: a view gets a group in host memory (the control group: small messages, the
// state of joiners) and one in device memory, which gradients go through. Both are formed for the
// same view and live and die together.

#include <memory>

#include "collectives/group.hpp"

namespace mayfly::collectives {

/// Its groups are `host`'s, with a part of `device` behind Group::on_device(). A failure of either
/// part aborts the other. form(): first the part in host memory, whose errors come sooner and name
/// culprits; the members of a view must all use a pair. The address is that of `host`; the device's
/// members meet in GroupSpec::store.
[[nodiscard]] std::unique_ptr<Transport> make_paired_transport(std::unique_ptr<Transport> host,
                                                               std::unique_ptr<Transport> device);

}  // namespace mayfly::collectives
