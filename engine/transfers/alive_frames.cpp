#include "engine/transfers/alive_frames.hpp"

#include "base/time.hpp"
#include "engine/transfers/checkpoint_transfer.hpp"

namespace mayfly::engine {
namespace {

constexpr Duration kAliveEvery = seconds(2);  // well below kTransferIdleMax

}  // namespace

AliveFrames::~AliveFrames() {
  {
    const std::lock_guard lock(mutex_);
    is_over_ = true;
  }
  changed_.notify_all();
  thread_.join();
}

void AliveFrames::run(int fd) {
  std::unique_lock lock(mutex_);
  while (!changed_.wait_for(lock, kAliveEvery, [this] { return is_over_; })) {
    (void)send_frame(fd, {});  // sending the result will fail if the connection is broken
  }
}

}  // namespace mayfly::engine
