#pragma once

// Connections that were made or accepted without Asio, because Asio does not set close-on-exec. To
// be called on the thread of the event loop.

#include <boost/asio/ip/tcp.hpp>

#include "base/unique_fd.hpp"

namespace mayfly {

/// Registers a connection with the event loop of `socket`, which owns it from now on. Besides TCP
/// it may be one end of a pair of local sockets. Ends the process if the descriptor cannot be
/// registered.
void adopt(boost::asio::ip::tcp::socket& socket, UniqueFd connection);

}  // namespace mayfly
