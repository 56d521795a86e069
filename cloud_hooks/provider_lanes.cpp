#include "cloud_hooks/provider_lanes.hpp"

#include "base/check.hpp"
#include "base/thread_priority.hpp"

namespace mayfly::cloud_hooks {

ProviderLanes::ProviderLanes(const std::vector<Provider*>& providers, const char* name) {
  ENSURE(!providers.empty(), "a lane has at least one provider");
  for (Provider* const provider : providers) {
    Lane& lane = lanes_.emplace_back();
    lane.provider = provider;
    lane.thread = std::thread([this, &lane, name] {
      become_low_latency_thread(name);
      run(lane);
    });
  }
}

ProviderLanes::~ProviderLanes() {
  {
    const std::lock_guard lock(mutex_);
    stopping_ = true;
  }
  for (Lane& lane : lanes_) {
    lane.given.notify_all();
    lane.thread.join();
  }
}

void ProviderLanes::give(Call call) {
  const std::lock_guard lock(mutex_);
  for (Lane& lane : lanes_) {
    if (!lane.call) {
      lane.call = std::move(call);
      lane.given.notify_all();
      return;
    }
  }
  waiting_.push_back(std::move(call));
}

void ProviderLanes::run(Lane& lane) {
  std::unique_lock lock(mutex_);
  while (true) {
    lane.given.wait(lock, [&] { return stopping_ || lane.call; });
    if (stopping_) {
      return;
    }
    lock.unlock();
    (*lane.call)(*lane.provider);  // without the mutex: no other thread uses a busy lane's call
    lock.lock();
    lane.call.reset();
    if (!waiting_.empty()) {
      lane.call = std::move(waiting_.front());
      waiting_.pop_front();
    }
  }
}

}  // namespace mayfly::cloud_hooks
