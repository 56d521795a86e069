// What the lease desk does if training diverges: it lets everybody come to rest and goes on in kBsp
// from where all was well.

#include <algorithm>

#include "base/check.hpp"
#include "collectives/parameter_server/core/lease_table.hpp"

namespace mayfly::parameter_server {

/// Every shard has exactly the slices before `next_`, whole steps.
bool LeaseTable::is_at_rest() const {
  return plan_.is_border(next_) && applied_.prefix() == next_ && returned_.empty() && all_idle();
}

/// At the end of the present phase.
bool LeaseTable::is_recorded() const {
  const bool is_last = phase_ + 1 == plan_.phases().size();
  return is_last || (phase().is_recorded && !doubts_);
}

/// A phase ends here. Shards keep what they had at the beginnings of the last two phases, so it
/// must be one of these that is good: in doubt for longer than a phase, the one before.
void LeaseTable::note_cut(std::uint64_t slice) {
  good_ = doubts_ ? std::max(good_, cut_) : slice;
  cut_ = slice;
}

void LeaseTable::fall_back() {
  ENSURE(!plan_.rewound(), "kBsp is where jobs fall back to");
  diverged_ = false;
  if (next_ <= good_) {
    return;  // a worker has pushed what it had not leased
  }
  plan_.fall_back({next_, good_});
  phase_ = plan_.index_of(next_);
  cut_ = next_;
  good_ = next_;
  updates_ = 0;
  recorder_.reset();
  doubts_ = false;
}

/// No shard is known to have restored its parameters: they do so when the first round begins.
bool LeaseTable::must_restore() const {
  return plan_.rewound() && applied_.prefix() == plan_.rewound()->at;
}

}  // namespace mayfly::parameter_server
