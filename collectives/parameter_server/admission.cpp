#include "collectives/parameter_server/admission.hpp"

namespace mayfly::parameter_server {

void Admission::set_view(const ShardView& view, ShardRole role) {
  view_ = view.view;
  role_ = role;
  workers_ = view.workers;
  keys_[view.view] = view.key;
}

bool Admission::is_admissible(const Header& greeting) const {
  const auto key = keys_.find(ViewId{greeting.view});
  if (key == keys_.end() || key->second != greeting.key) {
    return false;
  }
  return greeting.type == MessageType::kFollow
             ? role_ == ShardRole::kFollows && greeting.shard == shard_
             : role_ == ShardRole::kLeads && workers_.contains(MemberId{greeting.worker});
}

AdmissionVerdict Admission::judge(const Header& greeting) const {
  if (is_admissible(greeting)) {
    return AdmissionVerdict::kAdmit;
  }
  return ViewId{greeting.view} <= view_ ? AdmissionVerdict::kRefuse : AdmissionVerdict::kWait;
}

}  // namespace mayfly::parameter_server
