#pragma once

// A key that expires (a token, a role's keys), as all provider objects of one job know it: whoever
// has fetched one has done it for the others. The list of servers is asked for every few seconds,
// so that a request for a replacement hardly ever has to fetch a key first. Any thread.

#include <cstdint>
#include <mutex>
#include <optional>
#include <utility>

namespace mayfly::cloud_hooks {

template <typename Key>
class SharedKey {
 public:
  /// Nothing if there is none that is good at `now`; times are in seconds since 1970.
  [[nodiscard]] std::optional<Key> find(std::int64_t now) const {
    const std::lock_guard lock(mutex_);
    return key_ && now < good_until_ ? key_ : std::nullopt;
  }
  /// The last one, good or not.
  [[nodiscard]] std::optional<Key> last() const {
    const std::lock_guard lock(mutex_);
    return key_;
  }
  void put(Key key, std::int64_t good_until) {
    const std::lock_guard lock(mutex_);
    key_ = std::move(key);
    good_until_ = good_until;
    had_one_ = true;
  }
  /// It was refused.
  void forget() {
    const std::lock_guard lock(mutex_);
    key_.reset();
  }
  /// There has ever been one.
  [[nodiscard]] bool had_one() const {
    const std::lock_guard lock(mutex_);
    return had_one_;
  }

 private:
  mutable std::mutex mutex_;
  std::optional<Key> key_;  // guarded by mutex_, as are the others
  std::int64_t good_until_ = 0;
  bool had_one_ = false;
};

}  // namespace mayfly::cloud_hooks
