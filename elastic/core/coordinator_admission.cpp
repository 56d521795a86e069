#include <algorithm>

#include "base/check.hpp"
#include "elastic/core/coordinator.hpp"

// Who may come, and how members go: lost, evicted or dismissed.

namespace mayfly::elastic {
namespace {

using Fingerprint = std::vector<std::pair<std::string, std::string>>;

const std::string* find(const Fingerprint& fingerprint, const std::string& name) {
  const auto place = std::find_if(fingerprint.begin(), fingerprint.end(),
                                  [&name](const auto& pair) { return pair.first == name; });
  return place == fingerprint.end() ? nullptr : &place->second;
}

std::string difference(const std::string& name, const std::string* job, const std::string* worker) {
  const std::string nothing = "nothing";
  return name + ": the job has " + (job != nullptr ? *job : nothing) + ", this worker has " +
         (worker != nullptr ? *worker : nothing);
}

/// `asked` is the job's fingerprint before any worker: an empty text there is open, and then it
/// agrees with everything as long as either side has not said anything.
std::optional<std::string> first_difference(const Fingerprint& asked, const Fingerprint& job,
                                            const Fingerprint& worker) {
  for (const auto& [name, expected] : job) {
    const std::string* found = find(worker, name);
    const std::string* before = find(asked, name);
    const bool may_be_open = before != nullptr && before->empty();
    const bool is_open = may_be_open && (expected.empty() || (found != nullptr && found->empty()));
    if (found == nullptr || (*found != expected && !is_open)) {
      return difference(name, &expected, found);
    }
  }
  for (const auto& [name, found] : worker) {
    if (find(job, name) == nullptr) {
      return difference(name, nullptr, &found);
    }
  }
  return std::nullopt;
}

}  // namespace

std::optional<std::string> Coordinator::reason_to_refuse(const Hello& hello) const {
  if (hello.protocol != kProtocolVersion) {
    return "protocol: the job has version " + std::to_string(kProtocolVersion) +
           ", this worker has version " + std::to_string(hello.protocol);
  }
  if (hello.role != Role::kWorker) {
    return "only workers become members";
  }
  if (phase_ == Phase::kEnded) {
    return "the job has ended";
  }
  if (!fingerprint_.empty()) {
    if (auto text = first_difference(options_.fingerprint, fingerprint_, hello.fingerprint)) {
      return text;
    }
  }
  if (membership_.peers().size() - membership_.count(Peer::Phase::kDismissed) >=
      options_.max_workers) {
    return "the job has all the workers it may have (" + std::to_string(options_.max_workers) + ")";
  }
  return std::nullopt;
}

void Coordinator::settle_fingerprint(const Fingerprint& worker) {
  if (options_.fingerprint.empty()) {  // an embedded test: the first worker's, and no log of it
    fingerprint_ = fingerprint_.empty() ? worker : fingerprint_;
    return;
  }
  for (auto& [name, text] : fingerprint_) {
    const std::string* said = find(worker, name);
    if (text.empty() && said != nullptr) {
      text = *said;
    }
  }
  // Whoever leads the job after us must not take other workers. With a quorum the members that
  // return say it again before anybody else is let in.
  if (fingerprint_ != logged_fingerprint_ && job_ != 0 && !options_.quorum) {
    outbox_.append(log_record::JobStarted{job_, options_.microbatches, fingerprint_}, true);
    logged_fingerprint_ = fingerprint_;
  }
}

void Coordinator::lose(MemberId id, const std::string& detail, bool still_connected) {
  const Peer* peer = membership_.find(id);
  if (peer == nullptr) {
    return;
  }
  const bool was_dismissed = peer->phase == Peer::Phase::kDismissed;
  // With a quorum its consent may still be needed: it is told when it comes back and the view is
  // over.
  if (still_connected && !was_dismissed && !options_.quorum) {
    outbox_.send(id, Dismiss{DismissReason::kEvicted, false, detail,
                             true});  // should it still be able to hear
  }
  outbox_.add(coordinator_effect::Disconnect{id});
  outbox_.note(was_dismissed ? "disconnected" : "lost", id, detail);
  remove(id, detail);
}

void Coordinator::evict(MemberId id, const std::string& reason, DismissReason told) {
  put_out(id, reason, told, "evicted");
}

void Coordinator::expel(MemberId id, const std::string& what) {
  put_out(id, what, DismissReason::kCorrupted, "corrupted");
}

void Coordinator::put_out(MemberId id, const std::string& reason, DismissReason told,
                          const std::string& kind) {
  outbox_.send(id, Dismiss{told, false, reason, true});
  membership_.fence(id);
  outbox_.add(coordinator_effect::Disconnect{id});
  outbox_.note(kind, id, reason);
  remove(id, reason);
}

void Coordinator::remove(MemberId id, const std::string& why) {
  const bool is_change = (phase_ == Phase::kRunning || phase_ == Phase::kStopping) &&
                         membership_.at(id).phase != Peer::Phase::kDismissed &&
                         membership_.is_in_view(id);
  detector_.forget(id);
  stalls_.forget(id);
  membership_.remove(id);
  if (is_change) {
    begin_change(true, "lost", {id});
    change_.explain_if_open(why);
  }
}

void Coordinator::dismiss(MemberId id, DismissReason reason, bool write_checkpoint,
                          const std::string& detail, bool may_rejoin) {
  membership_.dismiss(id);
  detector_.forget(id);
  stalls_.forget(id);
  outbox_.send(id, Dismiss{reason, write_checkpoint, detail, may_rejoin});
}

void Coordinator::dismiss_leavers() {
  const bool is_view_ending =
      phase_ == Phase::kStopping && membership_.count(Peer::Phase::kActive) > 0;
  for (const auto& [id, peer] : membership_.peers()) {
    if (!peer.leaving) {
      continue;
    }
    const bool is_free = peer.phase == Peer::Phase::kLoading ||
                         (peer.is_candidate() && !is_view_ending &&
                          membership_.may_leave(id, phase_ == Phase::kRunning));
    if (is_free) {
      dismiss(id, DismissReason::kDrained, false, peer.leave_reason);
      outbox_.note("left", id, peer.leave_reason);
    }
  }
}

}  // namespace mayfly::elastic
