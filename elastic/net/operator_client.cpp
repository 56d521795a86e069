#include "base/net/sockets.hpp"
#include "elastic/net/coordinator_server.hpp"
#include "elastic/net/frame.hpp"
#include "elastic/net/handshake.hpp"

namespace mayfly::elastic {

Result<CommandReply> send_command(const std::string& endpoint, ByteSpan token,
                                  const Command& command, Duration timeout) {
  const Instant deadline = monotonic_now() + timeout;
  Hello hello;
  hello.role = Role::kOperator;
  Result<OpenSession> session = open_session(endpoint, token, std::move(hello), deadline);
  if (!session.ok()) {
    return std::move(session).error();
  }
  const int fd = session.value().fd.get();
  TRY(send_message(fd, command, deadline));
  Result<Message> answer = receive_message(fd, deadline);
  if (!answer.ok()) {
    return std::move(answer).error();
  }
  if (auto* reply = std::get_if<CommandReply>(&answer.value())) {
    return std::move(*reply);
  }
  return Error{Errc::kCorrupt, std::string("unexpected ") + name_of(answer.value())};
}

}  // namespace mayfly::elastic
