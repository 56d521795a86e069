#include "base/asio/sockets.hpp"

#include <sys/socket.h>

#include "base/check.hpp"

namespace mayfly {

void adopt(boost::asio::ip::tcp::socket& socket, UniqueFd connection) {
  using boost::asio::ip::tcp;
  sockaddr_storage address{};
  socklen_t size = sizeof address;
  ::getsockname(connection.get(), reinterpret_cast<sockaddr*>(&address), &size);
  boost::system::error_code error;
  socket.assign(address.ss_family == AF_INET6 ? tcp::v6() : tcp::v4(), connection.release(), error);
  ENSURE(!error, "a fresh socket can be registered");
}

}  // namespace mayfly
