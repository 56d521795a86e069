#include "engine/faults/injector.hpp"

#include <linux/close_range.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>
#include <algorithm>
#include <climits>
#include <cmath>
#include <ctime>
#include <new>

namespace mayfly::engine {
namespace {

/// A value in place of a share: the child must end.
constexpr std::uint32_t kEnd = UINT32_MAX;

void sleep_for(std::int64_t ns) {
  timespec left{ns / 1'000'000'000, ns % 1'000'000'000};
  while (::nanosleep(&left, &left) != 0) {
  }
}

/// Runs in the child. Calls only functions that are safe between fork and exec, because the parent
/// has threads.
[[noreturn]] void stop_again_and_again(const std::atomic<std::uint32_t>& share, pid_t parent) {
  ::prctl(PR_SET_PDEATHSIG, SIGKILL);
  ::close_range(0, UINT_MAX, 0);
  for (const int signal : {SIGINT, SIGTERM, SIGHUP}) {
    ::signal(signal, SIG_IGN);  // the child must not end between a stop and its continuation
  }
  const std::int64_t period = DutyCycle::kPeriod.count();
  while (::getppid() == parent) {
    const std::uint32_t permille = share.load(std::memory_order_relaxed);
    if (permille == kEnd) {
      break;
    }
    const std::int64_t stopped = period / 1000 * permille;
    sleep_for(period - stopped);
    if (stopped > 0 && share.load(std::memory_order_relaxed) != kEnd && ::getppid() == parent) {
      ::kill(parent, SIGSTOP);
      sleep_for(stopped);
      ::kill(parent, SIGCONT);
    }
  }
  ::_exit(0);
}

}  // namespace

Result<std::unique_ptr<Injector>> Injector::start(std::vector<InjectionRule> rules) {
  std::unique_ptr<Injector> injector(new Injector(std::move(rules)));
  const bool stops = std::any_of(injector->rules_.begin(), injector->rules_.end(),
                                 [](const InjectionRule& rule) { return rule.stop > 0; });
  if (stops) {
    injector->duty_cycle_ = std::make_unique<DutyCycle>();
    TRY(injector->duty_cycle_->start());
  }
  return injector;
}

void Injector::begin_step(std::uint64_t step) {
  if (started_ns_ == 0) {
    started_ns_ = monotonic_now().ns;
  }
  step_ = step;
  if (duty_cycle_ != nullptr) {
    duty_cycle_->set_share(now().stop);
  }
}

InjectedEffects Injector::now() const {
  const std::int64_t started = started_ns_;
  if (rules_.empty() || started == 0) {
    return {};
  }
  return effects_at(rules_, step_, to_seconds(monotonic_now() - Instant{started}));
}

InjectedEffects Injector::while_loading(std::uint64_t step) const {
  const std::int64_t started = started_ns_;
  return effects_at(rules_, step,
                    started == 0 ? 0 : to_seconds(monotonic_now() - Instant{started}));
}

Duration Injector::slowdown_of(Duration took) const {
  const double longer = now().slow - 1;
  return Duration(static_cast<std::int64_t>(static_cast<double>(took.count()) * longer));
}

Result<void> DutyCycle::start() {
  void* const page =
      ::mmap(nullptr, sizeof(Permille), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  if (page == MAP_FAILED) {
    return Error{Errc::kIo, "no memory for the process that stops this one"};
  }
  share_ = new (page) Permille(0);
  const pid_t parent = ::getpid();
  child_ = ::fork();
  if (child_ == 0) {
    stop_again_and_again(*share_, parent);
  }
  return child_ > 0
             ? Result<void>()
             : Result<void>(Error{Errc::kIo, "cannot start the process that stops this one"});
}

void DutyCycle::set_share(double share) {
  share_->store(static_cast<std::uint32_t>(std::lround(1000 * std::clamp(share, 0.0, 0.95))),
                std::memory_order_relaxed);
}

DutyCycle::~DutyCycle() {
  if (child_ > 0) {  // it ends by itself: if killed, it might leave this process stopped
    share_->store(kEnd, std::memory_order_relaxed);
    ::waitpid(child_, nullptr, 0);
  }
  if (share_ != nullptr) {
    ::munmap(share_, sizeof(Permille));
  }
}

}  // namespace mayfly::engine
