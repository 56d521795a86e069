#include "collectives/nccl/comm_signal.hpp"

#include <thread>

namespace mayfly::collectives {

void CommSignal::sleep(Duration at_most) {
  if (at_most <= Duration::zero()) {
    std::this_thread::yield();
    return;
  }
  std::unique_lock lock(mutex_);
  changed_.wait_for(lock, at_most, [&] { return news_; });
  news_ = false;
}

void CommSignal::sleep() {
  std::unique_lock lock(mutex_);
  changed_.wait(lock, [&] { return news_; });
  news_ = false;
}

}  // namespace mayfly::collectives
