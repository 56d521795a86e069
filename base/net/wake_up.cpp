#include "base/net/wake_up.hpp"

#include <sys/eventfd.h>
#include <unistd.h>

#include <cstdint>

#include "base/check.hpp"

namespace mayfly {

WakeUp::WakeUp() : event_(::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)) {
  ENSURE(event_.valid(), "no descriptor left for an eventfd; raise the limit (ulimit -n)");
}

void WakeUp::notify() const noexcept {
  const std::uint64_t one = 1;
  // This can only fail if the counter is full, and then the descriptor is readable already.
  [[maybe_unused]] const auto written = ::write(event_.get(), &one, sizeof one);
}

void WakeUp::clear() const noexcept {
  std::uint64_t count = 0;
  [[maybe_unused]] const auto got = ::read(event_.get(), &count, sizeof count);
}

}  // namespace mayfly
