// What a worker does about a server that it cannot reach although both reach the coordinator.

#include <fmt/format.h>

#include "base/log.hpp"
#include "engine/parameter_server/ps_trainer.hpp"
#include "engine/run/records.hpp"

namespace mayfly::engine {

using parameter_server::LinkFault;

bool PsTrainer::wait_for_link() {
  if (parts_.reach.is_away(monotonic_now())) {
    const double most = to_ms(parts_.reach.until() - monotonic_now()) / 1000;
    log::info(fmt::format("cut off from a server; waits for it, at most {:.0f} s", most));
    parts_.board.enter(elastic::Activity::kIdle, Step{});
  }
  while (!is_told_to_leave() && parts_.reach.is_away(monotonic_now())) {
    (void)parts_.reach.probe_once(wake_);
  }
  return !is_told_to_leave();
}

/// Who has to go is for the coordinator to decide, unless it is this worker: that harms nobody, and
/// who waits for it can go on at once.
void PsTrainer::report_unreachable(std::uint32_t shard, LinkFault fault) {
  const std::optional<elastic::View> view = link_.view();
  const std::optional<std::string> address = servers_.leader_address(shard);
  if (failed_ || !view || !address) {
    return;  // the job ends
  }
  const std::string what = fmt::format("shard {} on member {} ({}) does not answer", shard,
                                       value(servers_.leader_member(shard)), *address);
  if (over_ || fault != LinkFault::kCut) {
    link_.broke(std::nullopt, what);
    return;
  }
  const std::uint64_t self = value(parts_.client.id());
  if (const std::optional<MemberId> server = servers_.server_to_give_up(*view, shard)) {
    note("server_cut_off",
         fmt::format("{} to member {}, the only worker: the server has to go", what, self));
    link_.broke(server, what);
    return;
  }
  const bool is_last = count_workers(*view) == 1;
  note("worker_cut_off",
       fmt::format("{} to member {}{}", what, self,
                   is_last ? ", the only worker: the job waits until some worker's link works"
                           : ", which stays out until its link works"));
  parts_.reach.cut_off(*address, monotonic_now());
  link_.cut_off(what);
}

void PsTrainer::note(const char* kind, const std::string& text) {
  log::warning(text);
  parts_.client.send_report(encode_record(NoteRecord{kind, text}));
}

}  // namespace mayfly::engine
