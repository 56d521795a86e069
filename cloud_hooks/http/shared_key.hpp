#pragma once

// A key that expires (a token, a role's keys), shared by all provider objects of one job, so that
// only one of them has to fetch it. The list of servers is requested every few seconds, so a
// request for a replacement hardly ever has to fetch a key first. Any thread.

#include <algorithm>
#include <cstdint>
#include <mutex>
#include <optional>
#include <utility>

namespace mayfly::cloud_hooks {

template <typename Key>
class SharedKey {
 public:
  /// The key; nothing if none is valid at `now`. Times are in seconds since 1970.
  [[nodiscard]] std::optional<Key> find(std::int64_t now) const {
    const std::lock_guard lock(mutex_);
    return key_ && now < valid_until_ ? key_ : std::nullopt;
  }
  /// The last key, valid or not.
  [[nodiscard]] std::optional<Key> last() const {
    const std::lock_guard lock(mutex_);
    return key_;
  }
  /// A key that expires `lifetime` seconds after `now`. It is used until five minutes before that,
  /// so that no request is sent with a key that expires on its way; a key of less than ten minutes
  /// is used for half of its time.
  void put(Key key, std::int64_t now, std::int64_t lifetime) {
    constexpr std::int64_t kMargin = 300;
    const std::lock_guard lock(mutex_);
    key_ = std::move(key);
    valid_until_ = now + std::max({lifetime - kMargin, lifetime / 2, std::int64_t{0}});
    has_had_key_ = true;
  }
  /// The key was refused and is not returned again.
  void forget() {
    const std::lock_guard lock(mutex_);
    key_.reset();
  }
  /// Whether there has ever been a key.
  [[nodiscard]] bool has_had_key() const {
    const std::lock_guard lock(mutex_);
    return has_had_key_;
  }

 private:
  mutable std::mutex mutex_;
  std::optional<Key> key_;  // guarded by mutex_, as are the others
  std::int64_t valid_until_ = 0;
  bool has_had_key_ = false;
};

}  // namespace mayfly::cloud_hooks
