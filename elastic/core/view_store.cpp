#include "elastic/core/view_store.hpp"

#include <utility>

#include "base/check.hpp"

namespace mayfly::elastic {
namespace {

constexpr std::size_t kWaitBytes = 64;  // approximate size of an entry besides its key

}  // namespace

std::vector<MemberId> ViewStore::set(const std::string& key, Bytes value, bool& accepted) {
  const auto place = values_.find(key);
  const std::size_t before = place == values_.end() ? 0 : key.size() + place->second.size();
  ENSURE(before <= bytes_, "the byte count includes every entry");
  const std::size_t after = bytes_ - before + key.size() + value.size();
  accepted = after <= kStoreBytesMax;
  if (!accepted) {
    return {};
  }
  bytes_ = after;
  ENSURE(key.size() <= bytes_, "an entry takes at least the bytes of its key");
  values_[key] = std::move(value);
  const auto waiting = waiting_.find(key);
  if (waiting == waiting_.end()) {
    return {};
  }
  std::vector<MemberId> members = std::move(waiting->second);
  waiting_.erase(waiting);
  for (const MemberId member : members) {
    ENSURE(waiting_bytes_[member] >= key.size() + kWaitBytes,
           "a member that waits for a key was counted");
    waiting_bytes_[member] -= key.size() + kWaitBytes;
  }
  return members;
}

const Bytes* ViewStore::get(MemberId member, const std::string& key) {
  const auto place = values_.find(key);
  if (place != values_.end()) {
    return &place->second;
  }
  waiting_[key].push_back(member);
  waiting_bytes_[member] += key.size() + kWaitBytes;
  return nullptr;
}

std::size_t ViewStore::waiting_bytes(MemberId member) const {
  const auto place = waiting_bytes_.find(member);
  return place == waiting_bytes_.end() ? 0 : place->second;
}

void ViewStore::clear() {
  values_.clear();
  waiting_.clear();
  waiting_bytes_.clear();
  bytes_ = 0;
  has_refused_ = false;
}

}  // namespace mayfly::elastic
