#include "cloud_hooks/core/shortage.hpp"

#include <algorithm>

namespace mayfly::cloud_hooks {

bool Shortage::is_gathered(Instant now) {
  if (!gathered_at_) {
    gathered_at_ = first_loss_ ? std::max(now, *first_loss_ + gather_) : now;
  }
  return now >= *gathered_at_;
}

void Shortage::over() {
  first_loss_.reset();
  gathered_at_.reset();
  lost_.clear();
  is_reported_ = false;
}

}  // namespace mayfly::cloud_hooks
