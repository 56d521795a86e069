#include "collectives/abort_signal.hpp"

#include <sys/eventfd.h>
#include <unistd.h>

#include <cstdint>

#include "base/check.hpp"

namespace mayfly::collectives {

AbortSignal::AbortSignal() : event_(::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)) {
  ENSURE(event_.valid(), "no descriptor left for an eventfd; raise the limit (ulimit -n)");
}

void AbortSignal::raise() noexcept {
  raised_.store(true, std::memory_order_release);
  const std::uint64_t one = 1;
  // Can only fail when the counter is full, and then the descriptor is readable already.
  [[maybe_unused]] const auto written = ::write(event_.get(), &one, sizeof one);
}

}  // namespace mayfly::collectives
