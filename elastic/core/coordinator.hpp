#pragma once

// The coordinator as a pure state machine: the only author of views. Events in, effects out; no
// clock, no socket, no thread. elastic/net/coordinator_server drives it, and so does the simulator.

#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <variant>
#include <vector>

#include "base/time.hpp"
#include "elastic/core/blame.hpp"
#include "elastic/core/claims.hpp"
#include "elastic/core/coordinator_events.hpp"
#include "elastic/core/coordinator_options.hpp"
#include "elastic/core/failure_detector.hpp"
#include "elastic/core/membership.hpp"
#include "elastic/core/messages.hpp"
#include "elastic/core/outbox.hpp"
#include "elastic/core/speed_judge.hpp"
#include "elastic/core/stall_watch.hpp"
#include "elastic/core/view.hpp"
#include "elastic/core/view_change.hpp"
#include "elastic/core/view_log.hpp"
#include "elastic/core/view_store.hpp"

namespace mayfly::elastic {

/// What `mayfly status` shows of one member.
struct MemberStatus {
  MemberId id{};
  std::string host;
  std::uint32_t pid = 0;
  std::string phase;  ///< loading, ready, observing, active, leaving
  Step committed{};
  float microbatch_ms = 0;         ///< measured, of all its threads together; 0 = unknown
  double silent_ms = 0;            ///< since it was last heard from
  std::string activity;            ///< what its trainer does; empty = not told
  std::uint32_t microbatches = 0;  ///< its share of a step in the present view
  std::string server;              ///< the provider's name for what it runs on; empty = unknown
};

class Coordinator {
 public:
  /// Starts a job, or waits for one to take over if it is a standby.
  explicit Coordinator(CoordinatorOptions options);
  /// Goes on with the job that the log of a coordinator before it tells of. If that had ended it,
  /// the members that come back within resume_timeout are told, and then it ends once more. What
  /// the log says of the job (microbatches, fingerprint) must be equal to the options, but for what
  /// the first worker has said of a text that they leave open.
  Coordinator(CoordinatorOptions options, const LogContents& contents);

  /// Advances the machine by one event.
  [[nodiscard]] std::vector<CoordinatorEffect> handle(Instant now, const CoordinatorEvent& event);

  [[nodiscard]] const std::optional<View>& view() const { return membership_.view(); }
  [[nodiscard]] std::vector<MemberStatus> members() const;
  /// standby, resuming, waiting, running, stopping, paused, ended
  [[nodiscard]] std::string phase() const;
  /// It decides for the job. With a quorum that is not so while it waits for the members of the
  /// last view: they may obey another coordinator.
  [[nodiscard]] bool is_in_charge() const {
    return !options_.quorum || (has_begun_ && phase_ != Phase::kResuming && !no_quorum_since_);
  }
  /// Steps are made and no change is under way: nothing but silence needs a Tick soon.
  [[nodiscard]] bool is_undisturbed() const;
  /// The highest step that any member reported as committed; less after every holder of it was
  /// lost.
  [[nodiscard]] Step committed() const { return membership_.committed(); }
  /// 0 for a standby that has not heard of a job.
  [[nodiscard]] Incarnation incarnation() const { return incarnation_; }
  [[nodiscard]] std::uint64_t job() const { return job_; }

 private:
  enum class Phase { kResuming, kWaiting, kRunning, kStopping, kPaused, kEnded };

  // coordinator.cpp: events
  void on(const coordinator_event::WorkerConnected& event);
  void on(const coordinator_event::Received& event);
  void on(const coordinator_event::ConnectionLost& event);
  void on(const coordinator_event::SentinelReport& event);
  void on(const coordinator_event::SentinelBeat& event);
  void on(const coordinator_event::HostAnswers& event);
  void on(const coordinator_event::DrainAsked& event);
  void on(const coordinator_event::PauseAsked& event);
  void on(const coordinator_event::StopAsked& event);
  void on(const coordinator_event::FailAsked& event);
  void on(const coordinator_event::Tick& event);

  // coordinator_resume.cpp: before this coordinator is in charge
  void begin();
  void begin_incarnation(Incarnation incarnation);
  void collect();
  void take_back(const coordinator_event::WorkerConnected& event);
  [[nodiscard]] std::optional<coordinator_effect::Refuse> reason_to_turn_away(
      const coordinator_event::WorkerConnected& event) const;
  void welcome_back(MemberId id);
  void hear(MemberId id, const Peer& peer, const Message& message);
  void hear(MemberId id, const Peer& peer, const Resume& resume);
  [[nodiscard]] bool only_finished_returned() const;
  void take_charge_if_due();
  void take_charge();
  void place(MemberId id);
  void place_late(MemberId id, const Peer& peer);
  void fence(MemberId id);
  void on(MemberId id, const Peer& peer, const Resume& resume) { hear(id, peer, resume); }

  // coordinator_quorum.cpp: the consent of a majority
  struct Consent {
    std::set<MemberId> members;   // who would be part of the next view, or can never be of another
    bool last_view_died = false;  // nobody can have committed a step of it
  };
  [[nodiscard]] Consent consent() const;
  [[nodiscard]] std::optional<std::vector<ViewBase>> next_bases(const Consent& given) const;
  [[nodiscard]] std::optional<std::string> missing_quorum() const;
  [[nodiscard]] std::optional<std::string> reason_to_wait() const;
  [[nodiscard]] bool is_dispensable(MemberId id) const;
  void is_gone(MemberId id, Incarnation accepted, std::uint64_t author);
  void note_active(MemberId id, ViewId view, Step committed);
  void wait_for_quorum(const std::string& detail);
  [[nodiscard]] Duration quorum_patience() const;
  void check_quorum_time();
  void send_away(const std::string& detail);

  // coordinator_messages.cpp: what members say
  void on(MemberId id, const Peer& peer, const Ready& ready);
  void on(MemberId id, const Peer& peer, const Stopped& stopped);
  void on(MemberId id, const Peer& peer, const Formed& formed);
  void on(MemberId id, const Peer& peer, const Synced& synced);
  void on(MemberId id, const Peer& peer, const Progress& progress);
  void on(MemberId id, const Peer& peer, const LeaveRequest& request);
  void on(MemberId id, const Peer& peer, const Report& report);
  void on(MemberId id, const Peer& peer, const StoreSet& set);
  void on(MemberId id, const Peer& peer, const StoreGet& get);
  void on(MemberId id, const Peer& peer, const WorkerDied& died);
  void on(MemberId id, const Peer& peer, const ViewWanted& wanted);
  void on(MemberId id, const Peer& peer, const CaughtUp& caught_up);
  template <typename Other>
  void on(MemberId id, const Peer& peer, const Other& other);
  void settle_if_complete();

  // coordinator_admission.cpp: who may come, who goes
  [[nodiscard]] std::optional<std::string> reason_to_refuse(const Hello& hello) const;
  /// What was open in the job's fingerprint is what this worker says.
  void settle_fingerprint(const std::vector<std::pair<std::string, std::string>>& worker);
  void lose(MemberId id, const std::string& detail, bool still_connected);
  /// `told`: any for which is_eviction() holds.
  void evict(MemberId id, const std::string& reason, DismissReason told = DismissReason::kEvicted);
  /// Evicts a member whose state must not be used again, not by itself either.
  void expel(MemberId id, const std::string& what);
  void put_out(MemberId id, const std::string& reason, DismissReason told, const std::string& kind);
  void remove(MemberId id, const std::string& why);
  void dismiss(MemberId id, DismissReason reason, bool write_checkpoint, const std::string& detail,
               bool may_rejoin = false);
  void dismiss_leavers();

  // coordinator_change.cpp: from one view to the next
  void advance();
  void start_planned_change();
  void begin_change(bool immediate, const std::string& cause, std::vector<MemberId> members);
  void tell(ViewChange::Tell what);
  void tell_to_stop(MemberId id, bool at_boundary);
  void excuse_own_pause(Duration pause);
  void check_stop_deadline();
  void go_on();
  void wait(const std::string& detail);
  void check_waiting_time();
  [[nodiscard]] std::optional<std::string> missing_workers() const;
  void pause();

  // coordinator_end.cpp: how the job ends
  bool end_if_over();
  /// `with_checkpoint`: the member with the newest state writes a last one.
  void end(Outcome outcome, const std::string& detail, bool with_checkpoint);
  void end_again_if_due();

  void publish();
  [[nodiscard]] View make_next_view() const;

  // coordinator_judges.cpp: who has to go
  void judge_claims();
  void judge_blame();
  /// True if the job ended, because nobody can say who is right.
  [[nodiscard]] bool judge_states();
  void judge_stalls();
  void judge_speeds();
  void evict_all(const std::vector<Accusation>& liars, DismissReason told);

  [[nodiscard]] std::uint32_t share_of(MemberId id) const;
  [[nodiscard]] bool is_quiet(const CoordinatorEvent& event);

  CoordinatorOptions options_;
  std::vector<std::pair<std::string, std::string>> fingerprint_;
  std::vector<std::pair<std::string, std::string>> logged_fingerprint_;  // as the view log has it
  FailureDetector detector_;
  StallWatch stalls_;
  BlameRecord blame_;
  ClaimJudge claims_;
  SpeedJudge speeds_;
  ViewStore store_;

  // Which job, and our term.
  std::uint64_t job_ = 0;
  Incarnation incarnation_{};
  bool has_begun_ = false;
  std::optional<log_record::JobEnded> ended_before_;  // by the coordinator before us
  std::optional<Instant> collecting_since_;           // kResuming
  std::optional<Instant> first_return_;               // kResuming: the first Resume
  bool is_view_active_ = false;                       // somebody has committed a step of view_
  std::set<MemberId> gone_;                 // of view_ and its bases, for ever; they obeyed us last
  std::optional<Instant> no_quorum_since_;  // and some members wait here
  std::optional<Instant> idle_since_;       // not in charge, with a quorum required

  Phase phase_ = Phase::kWaiting;
  Membership membership_;
  ViewChange change_;
  MemberId last_id_{};
  bool pause_asked_ = false;
  std::optional<std::string> stop_asked_;
  bool is_finishing_ = false;  // the job is to be stopped, and some have done its last step
  std::optional<Instant> waiting_since_;

  Instant now_;  // of the event that is being handled, as outbox_
  Outbox outbox_;
};

}  // namespace mayfly::elastic
