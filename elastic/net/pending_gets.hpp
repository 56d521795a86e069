#pragma once

// The requests of a member's threads for values of the coordinator's key-value store. Shared
// between these threads and the control thread.

#include <condition_variable>
#include <map>
#include <mutex>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "base/bytes.hpp"
#include "base/ids.hpp"
#include "base/result.hpp"
#include "base/time.hpp"
#include "elastic/core/messages.hpp"

namespace mayfly::elastic {

class PendingGets {
 public:
  // The thread that waits:
  /// Announces a wait for the key, so that an answer is kept. kPeerLost after end().
  Result<void> expect(ViewId view, const std::string& key);
  /// Waits for the value that expect() has announced. kAborted once the view is over, kDeadline,
  /// kPeerLost.
  Result<Bytes> wait(ViewId view, const std::string& key, Instant deadline);

  // The control thread:
  void answer(const StoreValue& value);
  /// The view is over: its keys will not be set any more.
  void end_views_up_to(ViewId view);
  /// The member has left or has no coordinator any more.
  void end();
  /// The requests without an answer, which a new coordinator must be sent again.
  [[nodiscard]] std::vector<StoreGet> unanswered() const;

 private:
  struct Slot {
    std::optional<Bytes> value;
    int waiting = 0;
  };
  using Key = std::pair<ViewId, std::string>;

  mutable std::mutex mutex_;
  std::condition_variable changed_;
  std::map<Key, Slot> slots_;  // guarded by mutex_, like all members below
  std::optional<ViewId> last_ended_;
  bool ended_ = false;
};

}  // namespace mayfly::elastic
