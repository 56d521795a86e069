#include "engine/transfers/connection_queue.hpp"

#include <fcntl.h>
#include <fmt/format.h>
#include <pthread.h>
#include <sys/socket.h>

#include <cerrno>
#include <cstddef>
#include <utility>

#include "base/log.hpp"
#include "base/system_error.hpp"

namespace mayfly::engine {
namespace {

constexpr std::size_t kWaitingMax = 64;

}  // namespace

ConnectionQueue::ConnectionQueue(const char* thread) : thread_([this] { run(); }) {
  pthread_setname_np(thread_.native_handle(), thread);
}

ConnectionQueue::~ConnectionQueue() {
  {
    const std::lock_guard lock(mutex_);
    is_closing_ = true;
    waiting_.clear();
    if (serving_ >= 0) {
      ::shutdown(serving_, SHUT_RDWR);
    }
  }
  changed_.notify_all();
  thread_.join();
}

void ConnectionQueue::add(Connection connection, Serve serve) {
  {
    const std::lock_guard lock(mutex_);
    if (is_closing_) {
      return;
    }
    if (waiting_.size() == kWaitingMax) {
      waiting_.pop_front();
      --pending_;
    }
    waiting_.push_back({std::move(connection), std::move(serve)});
    ++pending_;
  }
  changed_.notify_all();
}

void ConnectionQueue::run() {
  while (true) {
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [this] { return is_closing_ || !waiting_.empty(); });
    if (is_closing_) {
      return;
    }
    Entry entry = std::move(waiting_.front());
    waiting_.pop_front();
    // A duplicate, so that the destructor cannot shut down a descriptor that was closed and reused.
    // Without one the destructor would have to wait for the client, so the connection is closed.
    const UniqueFd own(::fcntl(entry.connection.socket.get(), F_DUPFD_CLOEXEC, 0));
    const int error = own.valid() ? 0 : errno;
    serving_ = own.get();
    lock.unlock();
    const Result<void> served = own.valid()
                                    ? entry.serve(entry.connection)
                                    : system_error("it is closed, the client tries again", error);
    if (!served.ok()) {
      log::info(
          fmt::format("connection from {}: {}", entry.connection.host, served.error().detail));
    }
    lock.lock();
    serving_ = -1;
    --pending_;
  }
}

}  // namespace mayfly::engine
