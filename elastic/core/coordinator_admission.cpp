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
  if (peers_.size() - count(Peer::Phase::kDismissed) >= options_.max_workers) {
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
    append(log_record::JobStarted{job_, options_.microbatches, fingerprint_}, true);
    logged_fingerprint_ = fingerprint_;
  }
}

void Coordinator::lose(MemberId id, const std::string& detail, bool still_connected) {
  const auto place = peers_.find(id);
  if (place == peers_.end()) {
    return;
  }
  const bool was_dismissed = place->second.phase == Peer::Phase::kDismissed;
  // With a quorum its consent may still be needed: it is told when it comes back and the view is
  // over.
  if (still_connected && !was_dismissed && !options_.quorum) {
    send(id,
         Dismiss{DismissReason::kEvicted, false, detail, true});  // should it still be able to hear
  }
  effects_.emplace_back(coordinator_effect::Disconnect{id});
  note(was_dismissed ? "disconnected" : "lost", id, detail);
  remove(place, detail);
}

void Coordinator::evict(MemberId id, const std::string& reason, DismissReason told) {
  const auto place = peers_.find(id);
  ENSURE(place != peers_.end(), "only members can be evicted");
  send(id, Dismiss{told, false, reason, true});
  fenced_.insert(id);
  effects_.emplace_back(coordinator_effect::Disconnect{id});
  note("evicted", id, reason);
  remove(place, reason);
}

void Coordinator::remove(Peers::iterator place, const std::string& why) {
  const MemberId id = place->first;
  const bool is_change = (phase_ == Phase::kRunning || phase_ == Phase::kStopping) &&
                         place->second.phase != Peer::Phase::kDismissed && is_in_view(id);
  detector_.forget(id);
  stalls_.forget(id);
  peers_.erase(place);
  if (is_change) {
    begin_change(true, "lost", {id});
    change_->detail = change_->detail.empty() ? why : change_->detail;
  }
}

void Coordinator::dismiss(MemberId id, Peer& peer, DismissReason reason, bool write_checkpoint,
                          const std::string& detail, bool may_rejoin) {
  ENSURE(peer.phase != Peer::Phase::kDismissed, "a member is dismissed once");
  peer.phase = Peer::Phase::kDismissed;
  detector_.forget(id);
  stalls_.forget(id);
  send(id, Dismiss{reason, write_checkpoint, detail, may_rejoin});
}

void Coordinator::dismiss_leavers() {
  const bool is_view_ending = phase_ == Phase::kStopping && count(Peer::Phase::kActive) > 0;
  for (auto& [id, peer] : peers_) {
    if (!peer.leaving) {
      continue;
    }
    const bool is_free = peer.phase == Peer::Phase::kLoading ||
                         (peer.is_candidate() && !is_view_ending && may_leave(id, peer));
    if (is_free) {
      dismiss(id, peer, DismissReason::kDrained, false, peer.leave_reason);
      note("left", id, peer.leave_reason);
    }
  }
}

bool Coordinator::may_leave(MemberId id, const Peer& peer) const {
  const bool holds_no_state_of_the_job =
      peer.phase == Peer::Phase::kReady && (!view_ || phase_ == Phase::kRunning);
  if (holds_no_state_of_the_job) {
    return true;
  }
  // The only holder of the last committed step stays for one more view, so that no commit is
  // undone; and with parameter servers the last worker stays until another one is there.
  const Candidates others = candidates();
  return std::any_of(others.begin(), others.end(), [&](const auto& other) {
    const auto& works = options_.counts_as_worker;
    const bool holds_as_much =
        works ? works(other.second->address) : other.second->committed >= peer.committed;
    return other.first != id && !other.second->leaving && holds_as_much;
  });
}

bool Coordinator::works(const Peer& peer) const {
  const bool computes = !options_.counts_as_worker || options_.counts_as_worker(peer.address);
  return computes && (peer.phase == Peer::Phase::kActive || peer.is_candidate()) &&
         !peer.lacks_state();
}

bool Coordinator::leaves_somebody(MemberId leaver) const {
  return std::any_of(peers_.begin(), peers_.end(), [this, leaver](const Peers::value_type& entry) {
    return entry.first != leaver && works(entry.second) && !entry.second.leaving;
  });
}

/// Who has to go stays until there is another one, and has no time to wait for one that is silent.
bool Coordinator::somebody_else_works(MemberId member) const {
  return std::any_of(peers_.begin(), peers_.end(), [this, member](const Peers::value_type& entry) {
    return entry.first != member && works(entry.second);
  });
}

/// For spares, beside the members in this phase. One on its way out needs no place: a spare may
/// come before it goes.
std::size_t Coordinator::free_places(Peer::Phase of_members) const {
  const auto taken = static_cast<std::size_t>(
      std::count_if(peers_.begin(), peers_.end(), [of_members](const Peers::value_type& entry) {
        return entry.second.phase == of_members && !entry.second.leaving;
      }));
  return options_.view_max - std::min<std::size_t>(taken, options_.view_max);
}

}  // namespace mayfly::elastic
