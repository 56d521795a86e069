#include "base/asio/accept_loop.hpp"

#include <cerrno>
#include <utility>

#include "base/check.hpp"

namespace mayfly {
namespace {

using boost::system::error_code;

constexpr std::size_t kAcceptsAtOnce = 64;

}  // namespace

AcceptLoop::AcceptLoop(boost::asio::io_context& io, UniqueFd listener, RejectionLog& log,
                       std::function<void(UniqueFd)> take, std::function<void(int error)> on_full)
    : listener_(io),
      retry_timer_(io),
      log_(log),
      take_(std::move(take)),
      on_full_(std::move(on_full)) {
  error_code error;
  listener_.assign(listener.release(), error);
  ENSURE(!error, "a listening socket can be registered");
}

void AcceptLoop::stop() {
  error_code ignored;
  listener_.close(ignored);
  retry_timer_.cancel();
}

void AcceptLoop::wait_for_more() {
  listener_.async_wait(boost::asio::posix::stream_descriptor::wait_read,
                       [this](const error_code& error) {
                         if (!error) {
                           accept_all();
                         }
                       });
}

void AcceptLoop::accept_all() {
  if (!listener_.is_open()) {
    return;  // stopped after this call was scheduled
  }
  // Asio's own accept would not set close-on-exec, so a process that is started at that moment
  // would inherit the connection and keep it open after this process has closed it.
  const AcceptEnd end = accept_waiting(listener_.native_handle(), kAcceptsAtOnce, take_);
  if (end != AcceptEnd::kNoDescriptors) {
    return wait_for_more();  // at once if there are more
  }
  const int reason = errno;
  log_.turned_away("everybody", "no descriptors are left");
  if (on_full_) {
    on_full_(reason);
  }
  retry_timer_.expires_after(kAcceptRetryDelay);
  retry_timer_.async_wait([this](const error_code& error) {
    if (!error) {
      accept_all();
    }
  });
}

}  // namespace mayfly
