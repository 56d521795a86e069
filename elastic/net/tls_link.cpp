#include "elastic/net/tls_link.hpp"

#include <fcntl.h>
#include <openssl/ssl.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cstdlib>
#include <mutex>
#include <thread>
#include <utility>
#include <vector>

#include "base/net/wake_up.hpp"
#include "base/thread_priority.hpp"
#include "base/unique_fd.hpp"
#include "elastic/net/tls_relay.hpp"

namespace mayfly::elastic {
namespace {

// The time in which a process that ends can still send its last messages.
constexpr Duration kExitTimeout = seconds(1);

/// All encrypted connections of a process, and the thread that runs them.
class Hub {
 public:
  Hub() : thread_([this] { run(); }) {}

  void add(std::shared_ptr<TlsRelay> relay) {
    const std::lock_guard lock(mutex_);
    new_.push_back(std::move(relay));
    wake_.notify();
  }
  /// Waits until everything that the owners of closed connections have written is sent; afterwards
  /// no more data is transferred.
  void stop() {
    stop_by_ = (monotonic_now() + kExitTimeout).ns;
    wake_.notify();
    thread_.join();
  }

 private:
  void run() {
    become_low_latency_thread("tls");
    sigset_t all;
    sigfillset(&all);
    pthread_sigmask(SIG_BLOCK, &all, nullptr);  // also SIGPIPE from the network's socket
    std::vector<std::shared_ptr<TlsRelay>> relays;
    while (true) {
      take_new(relays);
      const Instant now = monotonic_now();
      std::size_t number = 0;
      std::erase_if(relays, [&](const std::shared_ptr<TlsRelay>& relay) {
        const bool is_over = !goes_on(*relay, number++, now);
        if (is_over) {
          relay->end();
        }
        return is_over;
      });
      if (const Instant stop_by{stop_by_}; stop_by.ns != 0) {
        const bool owes = std::any_of(relays.begin(), relays.end(),
                                      [](const auto& relay) { return relay->owes(); });
        if (!owes || now > stop_by) {
          return;
        }
      }
      wait(relays, now);
    }
  }

  /// `number`: the relay's index when polled_ was filled, or a higher one if it was added later.
  bool goes_on(TlsRelay& relay, std::size_t number, Instant now) const {
    if (2 * number + 2 >= polled_.size()) {
      return relay.advance(now, {POLLIN, POLLIN});
    }
    const std::array<short, 2> ready{polled_[2 * number + 1].revents,
                                     polled_[2 * number + 2].revents};
    const bool has_news = ready[0] != 0 || ready[1] != 0 || now > relay.look_again_at();
    return !has_news || relay.advance(now, ready);
  }

  void take_new(std::vector<std::shared_ptr<TlsRelay>>& relays) {
    const std::lock_guard lock(mutex_);
    wake_.clear();
    relays.insert(relays.end(), new_.begin(), new_.end());
    new_.clear();
  }

  void wait(const std::vector<std::shared_ptr<TlsRelay>>& relays, Instant now) {
    polled_.assign(1, {wake_.fd(), POLLIN, 0});
    Instant until = now + (stop_by_ != 0 ? milliseconds(20) : seconds(60));
    for (const auto& relay : relays) {
      for (const pollfd& entry : relay->polled()) {
        polled_.push_back(entry);
      }
      until = std::min(until, relay->look_again_at());
    }
    const Duration left = std::max(until - now, Duration(milliseconds(1)));
    (void)::poll(polled_.data(), polled_.size(), static_cast<int>(to_ms(left)) + 1);
  }

  const WakeUp wake_;
  std::mutex mutex_;
  std::vector<std::shared_ptr<TlsRelay>> new_;  // guarded by mutex_
  std::atomic<std::int64_t> stop_by_ = 0;       // an Instant; 0: no stop was requested
  std::vector<pollfd> polled_;                  // used by the thread only
  std::thread thread_;  // the last member, because the thread uses the others
};

// Never destroyed, because other threads may use it until the process ends. Its own thread ends
// before OpenSSL's exit handler frees OpenSSL's data. A forked child process makes its own Hub,
// because it does not have its parent's thread.
std::atomic<Hub*> the_hub = nullptr;
std::atomic<pid_t> hub_process = 0;
std::mutex hub_mutex;

Hub& hub() {
  const std::lock_guard lock(hub_mutex);
  if (hub_process != ::getpid()) {
    ::OPENSSL_init_ssl(0, nullptr);  // its exit handler then runs after the one below
    the_hub = new Hub;
    hub_process = ::getpid();
    std::atexit([] {
      if (hub_process.exchange(0) == ::getpid()) {
        the_hub.load()->stop();
      }
    });
  }
  return *the_hub;
}

SecureSocket secure(UniqueFd socket, ByteSpan token, TlsSide side, Bytes farewell) {
  std::array<int, 2> pair{-1, -1};
  const int failed =
      ::socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0, pair.data());
  if (failed != 0) {  // no descriptors are left: the caller gets an invalid one
    return {};
  }
  UniqueFd inside(pair[0]);
  UniqueFd outside(pair[1]);
  const int flags = ::fcntl(socket.get(), F_GETFL);
  ::fcntl(socket.get(), F_SETFL, flags | O_NONBLOCK);
  auto relay = std::make_shared<TlsRelay>(std::move(socket), std::move(inside), side, token,
                                          std::move(farewell));
  hub().add(relay);
  return {std::move(outside), std::move(relay)};
}

}  // namespace

SecureSocket secure_client(UniqueFd socket, ByteSpan token) {
  return secure(std::move(socket), token, TlsSide::kClient, {});
}

SecureSocket secure_server(UniqueFd socket, ByteSpan token, Bytes farewell) {
  return secure(std::move(socket), token, TlsSide::kServer, std::move(farewell));
}

}  // namespace mayfly::elastic
