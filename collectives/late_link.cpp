#include "collectives/late_link.hpp"

#include <poll.h>

#include <algorithm>
#include <utility>

#include "base/net/sockets.hpp"
#include "collectives/abort_signal.hpp"

namespace mayfly::collectives {
namespace {

class LateLink final : public RingLink {
 public:
  LateLink(std::unique_ptr<RingLink> link, DelaySource delay)
      : link_(std::move(link)), delay_(std::move(delay)) {}

  void begin(const RingTask& task) override {
    task_ = &task;
    due_ = monotonic_now() + delay_();
  }

  Result<bool> advance(std::optional<Instant> until) override {
    if (task_ != nullptr) {
      if (!wait_until_due(until)) {
        return false;
      }
      link_->begin(*std::exchange(task_, nullptr));
    }
    return link_->advance(until);
  }

  bool can_pause() const override { return link_->can_pause(); }

  void abort() noexcept override {
    link_->abort();  // first: whoever is woken begins its task there
    signal_.raise();
  }

 private:
  /// False: `until` comes first, and the link can be left there. An abort ends the wait: the link
  /// knows of it.
  bool wait_until_due(std::optional<Instant> until) {
    const bool pauses = until && *until < due_ && link_->can_pause();
    const Instant wake = pauses ? *until : due_;
    while (!signal_.raised() && monotonic_now() < wake) {
      pollfd watched{signal_.fd(), POLLIN, 0};
      (void)::poll(&watched, 1, poll_timeout_ms(wake));
    }
    return signal_.raised() || !pauses;
  }

  const std::unique_ptr<RingLink> link_;
  const DelaySource delay_;
  AbortSignal signal_;
  const RingTask* task_ = nullptr;  // has not begun on the link
  Instant due_;
};

}  // namespace

std::unique_ptr<RingLink> make_late_link(std::unique_ptr<RingLink> link, DelaySource delay) {
  return std::make_unique<LateLink>(std::move(link), std::move(delay));
}

}  // namespace mayfly::collectives
