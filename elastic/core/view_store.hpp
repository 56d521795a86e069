#pragma once

// The key-value store of one view, for rendezvous (Gloo's store, the NCCL unique id). A request for
// a key that is not set yet is answered when it is. Pure; owned by the coordinator; one thread.

#include <cstddef>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "base/bytes.hpp"
#include "base/ids.hpp"

namespace mayfly::elastic {

/// Bound on keys and values of one view together; enough for a full mesh of the largest group.
inline constexpr std::size_t kStoreBytesMax = 64u << 20;
/// Bound on the keys that one member waits for; a member that waits for more is evicted.
inline constexpr std::size_t kStoreWaitingBytesMax = 1u << 20;

class ViewStore {
 public:
  /// Sets a key, replacing its value. Returns the members that wait for it, each once per request,
  /// in the order of their requests. `accepted` is false if the store is full; then nothing
  /// changes.
  [[nodiscard]] std::vector<MemberId> set(const std::string& key, Bytes value, bool& accepted);
  /// The value, or nullptr: then `member` waits for the key.
  [[nodiscard]] const Bytes* get(MemberId member, const std::string& key);
  /// To be called when set() found the store full. True once until clear(), so that a member that
  /// fills the store does not fill the records with notes as well.
  [[nodiscard]] bool is_first_refusal() { return !std::exchange(has_refused_, true); }
  /// Size of the keys that this member waits for, in bytes.
  [[nodiscard]] std::size_t waiting_bytes(MemberId member) const;
  /// Forgets everything, the waiting requests included.
  void clear();

 private:
  std::map<std::string, Bytes> values_;
  std::map<std::string, std::vector<MemberId>> waiting_;
  std::map<MemberId, std::size_t> waiting_bytes_;
  std::size_t bytes_ = 0;
  bool has_refused_ = false;
};

}  // namespace mayfly::elastic
