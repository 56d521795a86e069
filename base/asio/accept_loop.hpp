#pragma once

// Accepts the connections of a listening socket on an event loop, in bounded numbers at once, so
// that a flood of connections does not keep the loop's thread from its other work. While the
// process has no descriptor for waiting connections, it tries again every kAcceptRetryDelay instead
// of spinning. Everything runs on the thread of the event loop.

#include <boost/asio/io_context.hpp>
#include <boost/asio/posix/stream_descriptor.hpp>
#include <boost/asio/steady_timer.hpp>
#include <functional>

#include "base/net/accept.hpp"
#include "base/unique_fd.hpp"

namespace mayfly {

class AcceptLoop {
 public:
  /// Passes each connection to `take`. If connections wait because no descriptor is left, this is
  /// written to `log`, and then `on_full` is called with the reason (errno). The event loop must
  /// have ended when this object is destroyed. Ends the process if `listener` cannot be registered
  /// with the event loop.
  AcceptLoop(boost::asio::io_context& io, UniqueFd listener, RejectionLog& log,
             std::function<void(UniqueFd)> take, std::function<void(int error)> on_full = {});

  /// Starts accepting. Once.
  void start() { wait_for_more(); }
  /// Closes the listening socket; no function is called from now on.
  void stop();

 private:
  void wait_for_more();
  void accept_all();

  boost::asio::posix::stream_descriptor listener_;
  boost::asio::steady_timer retry_timer_;
  RejectionLog& log_;
  const std::function<void(UniqueFd)> take_;
  const std::function<void(int error)> on_full_;
};

}  // namespace mayfly
