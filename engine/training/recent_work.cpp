#include "engine/training/recent_work.hpp"

#include <utility>

namespace mayfly::engine {

WorkDone RecentWork::until(Instant now, const WorkDone& done) {
  const bool has_both = done.loaded.microbatches > mark_.loaded.microbatches &&
                        done.computed.microbatches > mark_.computed.microbatches;
  if (has_both && now - marked_at_ >= kInterval) {
    from_ = std::exchange(mark_, done);
    marked_at_ = now;
  }
  return {
      {done.loaded.microbatches - from_.loaded.microbatches, done.loaded.bytes - from_.loaded.bytes,
       done.loaded.fetch - from_.loaded.fetch, done.loaded.prep - from_.loaded.prep},
      {done.computed.microbatches - from_.computed.microbatches,
       done.computed.time - from_.computed.time,
       done.computed.processor - from_.computed.processor}};
}

}  // namespace mayfly::engine
