#include "elastic/core/coordinator_events.hpp"

#include "base/check.hpp"

namespace mayfly::elastic {

const char* name_of(JobPhase phase) {
  switch (phase) {
    case JobPhase::kStandby: return "standby";
    case JobPhase::kResuming: return "resuming";
    case JobPhase::kWaiting: return "waiting";
    case JobPhase::kRunning: return "running";
    case JobPhase::kStopping: return "stopping";
    case JobPhase::kPaused: return "paused";
    case JobPhase::kEnded: return "ended";
  }
  UNREACHABLE("every phase has a name");
}

const char* name_of(ChangeCause cause) {
  switch (cause) {
    case ChangeCause::kLost: return "lost";
    case ChangeCause::kGroupFailed: return "group_failed";
    case ChangeCause::kCorrupted: return "corrupted";
    case ChangeCause::kJoin: return "join";
    case ChangeCause::kPromote: return "promote";
    case ChangeCause::kLeave: return "leave";
    case ChangeCause::kRebalance: return "rebalance";
    case ChangeCause::kStop: return "stop";
    case ChangeCause::kPause: return "pause";
    case ChangeCause::kFinish: return "finish";
  }
  UNREACHABLE("every cause has a name");
}

}  // namespace mayfly::elastic
