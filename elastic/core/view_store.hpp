#pragma once

// The key-value store of one view, for rendezvous (Gloo's store, the NCCL unique id). A get of a
// key that is not there yet is answered when it is set. Pure; owned by the coordinator.

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
  /// Sets a key, replacing its value. Returns those who wait for it, each once per request, in the
  /// order they asked. False in `accepted` if the store is full; then nothing changed.
  [[nodiscard]] std::vector<MemberId> set(const std::string& key, Bytes value, bool& accepted);
  /// The value, or nullptr: then `member` waits for the key.
  [[nodiscard]] const Bytes* get(MemberId member, const std::string& key);
  /// set() found the store full. True once until clear(): who fills it could fill the records, too.
  [[nodiscard]] bool is_first_refusal() { return !std::exchange(has_refused_, true); }
  /// Of the keys that this member waits for.
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
