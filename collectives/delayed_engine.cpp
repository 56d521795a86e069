#include "collectives/delayed_engine.hpp"

#include <poll.h>

#include <utility>

#include "base/net/sockets.hpp"
#include "collectives/abort_signal.hpp"

namespace mayfly::collectives {
namespace {

class DelayedEngine final : public GroupEngine {
 public:
  DelayedEngine(std::unique_ptr<GroupEngine> engine, DelaySource delay)
      : engine_(std::move(engine)), delay_(std::move(delay)) {}

  void begin(const Operation& operation) override {
    operation_ = &operation;
    due_ = monotonic_now() + delay_();
  }

  Result<bool> advance(std::optional<Instant> until) override {
    if (operation_ != nullptr) {
      if (!wait_until_due(until)) {
        return false;
      }
      engine_->begin(*std::exchange(operation_, nullptr));
    }
    return engine_->advance(until);
  }

  bool returns_by(std::optional<Instant> until) const override {
    return engine_->returns_by(until);
  }

  void abort() noexcept override {
    engine_->abort();  // first: a thread that is woken begins its operation there
    signal_.raise();
  }

  bool settles() const override { return engine_->settles(); }
  void settle() override { engine_->settle(); }

 private:
  /// False: `until` comes first, and the engine can be left there. An abort ends the wait: the
  /// engine knows of it.
  bool wait_until_due(std::optional<Instant> until) {
    const bool pauses = until && *until < due_ && engine_->returns_by(until);
    const Instant wake = pauses ? *until : due_;
    while (!signal_.raised() && monotonic_now() < wake) {
      pollfd watched{signal_.fd(), POLLIN, 0};
      (void)::poll(&watched, 1, poll_timeout_ms(wake));
    }
    return signal_.raised() || !pauses;
  }

  const std::unique_ptr<GroupEngine> engine_;
  const DelaySource delay_;
  AbortSignal signal_;
  const Operation* operation_ = nullptr;  // that has not begun in the engine
  Instant due_;
};

}  // namespace

std::unique_ptr<GroupEngine> make_delayed_engine(std::unique_ptr<GroupEngine> engine,
                                                 DelaySource delay) {
  return std::make_unique<DelayedEngine>(std::move(engine), std::move(delay));
}

}  // namespace mayfly::collectives
