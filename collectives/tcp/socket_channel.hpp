#pragma once

#include <memory>

#include "base/unique_fd.hpp"
#include "collectives/tcp/channel.hpp"

namespace mayfly::collectives {

/// A channel over a connected stream socket (TCP or Unix-domain), which it owns.
[[nodiscard]] std::unique_ptr<Channel> make_socket_channel(UniqueFd socket);

}  // namespace mayfly::collectives
