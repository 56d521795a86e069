#include "elastic/core/view_store.hpp"

#include <utility>

#include "base/check.hpp"

namespace mayfly::elastic {

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
  values_[key] = std::move(value);
  const auto waiting = waiting_.find(key);
  if (waiting == waiting_.end()) {
    return {};
  }
  std::vector<MemberId> members = std::move(waiting->second);
  waiting_.erase(waiting);
  return members;
}

const Bytes* ViewStore::get(MemberId member, const std::string& key) {
  const auto place = values_.find(key);
  if (place != values_.end()) {
    return &place->second;
  }
  waiting_[key].push_back(member);
  return nullptr;
}

void ViewStore::clear() {
  values_.clear();
  waiting_.clear();
  bytes_ = 0;
}

}  // namespace mayfly::elastic
