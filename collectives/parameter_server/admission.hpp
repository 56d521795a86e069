#pragma once

// Which greetings a shard accepts: those with the key of a view that it knows, from the workers of
// the newest view if the shard leads, and from its leader if it follows. Pure; any thread.

#include <cstdint>
#include <map>
#include <set>

#include "base/ids.hpp"
#include "collectives/parameter_server/message.hpp"
#include "collectives/parameter_server/shard.hpp"

namespace mayfly::parameter_server {

enum class AdmissionVerdict : std::uint8_t {
  kAdmit,
  kWait,    ///< the greeting's view is not known here yet
  kRefuse,  ///< it will not be admitted
};

class Admission {
 public:
  /// `shard`: its number. Before the first view no worker is admitted.
  explicit Admission(std::uint32_t shard) : shard_(shard) {}

  /// A new view has begun. `role` is this server's role from now on, whatever the view contains: a
  /// shard that has led does not follow again.
  void set_view(const ShardView& view, ShardRole role);
  /// The newest view.
  [[nodiscard]] ViewId view() const { return view_; }

  /// The verdict about a greeting: kHello of a worker, kFollow of a leader.
  [[nodiscard]] AdmissionVerdict judge(const Header& greeting) const;

 private:
  [[nodiscard]] bool is_admissible(const Header& greeting) const;

  const std::uint32_t shard_;
  ViewId view_{};
  ShardRole role_ = ShardRole::kFollows;
  std::set<MemberId> workers_;            // of the newest view
  std::map<ViewId, std::uint64_t> keys_;  // of all views
};

}  // namespace mayfly::parameter_server
