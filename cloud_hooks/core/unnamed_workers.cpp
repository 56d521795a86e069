// The part of the fleet about workers of which it is unknown on which server they run.

#include <algorithm>
#include <utility>

#include "cloud_hooks/core/fleet.hpp"

namespace mayfly::cloud_hooks {

/// Counts the member together with the server that was granted first of those without a worker.
void Fleet::presume_server(Member& member) {
  Server* oldest = nullptr;
  for (auto& [id, server] : servers_) {
    const bool waits = server.stage == Stage::kAwaited && !is_for_evaluator(server);
    if (waits && (oldest == nullptr || server.order < oldest->order)) {
      oldest = &server;
    }
  }
  if (oldest != nullptr) {
    count_together(member, *oldest);
  }
}

/// A worker may join before the answer to the request for its server arrives: the two are counted
/// together then.
void Fleet::presume_worker(Server& server) {
  for (auto& [id, member] : members_) {
    if (member.server.empty() && !member.has_presumed_server && member.joined > server.asked) {
      count_together(member, server);
      return;
    }
  }
}

void Fleet::count_together(Member& member, Server& server) {
  member.has_presumed_server = true;
  server.stage = Stage::kUnnamed;
  server.deadline.reset();
  note_unnamed();
}

void Fleet::note_unnamed() {
  if (std::exchange(unnamed_noted_, true)) {
    return;
  }
  const auto named = std::ranges::find_if(members_, [this](const auto& entry) {
    return is_unnamed(entry.second) && !entry.second.server.empty();
  });
  const std::string what =
      named == members_.end()
          ? "a worker does not say on which server it runs"
          : "a worker says that it runs on '" + named->second.server +
                "', which is no server of the provider, while a server waits for its worker";
  effects_.note(
      "worker_unnamed",
      what +
          ": the startup script should set MAYFLY_SERVER to the provider's name of the server. "
          "Servers of such workers are kept until the last of these workers has left");
}

/// When the last worker that did not name its server is gone, the servers that were kept for such
/// workers get a deadline.
void Fleet::wait_for_unnamed(Instant now) {
  if (has_unnamed()) {
    return;
  }
  for (auto& [id, server] : servers_) {
    if (server.stage == Stage::kUnnamed) {
      server.silent_since = now;
      server.deadline = now + options_.rejoin_patience;
    }
  }
}

/// Whether it is unknown on which server the member runs.
bool Fleet::is_unnamed(const Member& member) const {
  return member.server.empty() || (!member.server_is_gone && !servers_.contains(member.server));
}

bool Fleet::has_unnamed() const {
  return std::ranges::any_of(members_,
                             [this](const auto& entry) { return is_unnamed(entry.second); });
}

/// An unnamed worker may have been counted together with a server that has ended since without a
/// worker. In fact it runs on another server, which seems to wait for its worker still. The same
/// holds for a worker with the name of an unknown server, which is counted together with none, as
/// the answer with that server may be on its way. Returns the number of such pairs of worker and
/// server, which would be counted twice.
std::uint32_t Fleet::counted_twice() const {
  std::uint32_t presumed = 0;
  std::optional<Instant> last_misnamed;
  for (const auto& [id, member] : members_) {
    const bool is_misnamed = !member.server.empty() && is_unnamed(member);
    presumed += (member.has_presumed_server || is_misnamed) && member.stays() ? 1 : 0;
    if (is_misnamed && member.stays()) {
      last_misnamed = std::max(member.joined, last_misnamed.value_or(member.joined));
    }
  }
  std::uint32_t servers_of_unnamed = 0;
  std::uint32_t awaited = 0;
  for (const auto& [id, server] : servers_) {
    servers_of_unnamed += server.stage == Stage::kUnnamed ? 1 : 0;
    const bool may_be_meant = !last_misnamed || server.asked <= *last_misnamed;
    awaited += server.stage == Stage::kAwaited && !is_for_evaluator(server) && may_be_meant ? 1 : 0;
  }
  return presumed > servers_of_unnamed ? std::min(presumed - servers_of_unnamed, awaited) : 0;
}

bool Fleet::may_have_unnamed_worker(const Server& server) const {
  if (server.stage == Stage::kUnnamed) {
    return has_unnamed();
  }
  return server.stage == Stage::kAwaited && server.runs &&
         std::ranges::any_of(members_, [&](const auto& entry) {
           return is_unnamed(entry.second) && entry.second.joined >= server.asked;
         });
}

}  // namespace mayfly::cloud_hooks
