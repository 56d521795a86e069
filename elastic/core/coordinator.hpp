#pragma once

// The coordinator as a pure state machine: the only author of views. It takes events and returns
// effects; it has no clock, socket or thread, and must be used by one thread at a time.
// elastic/net/coordinator_server drives it, and so does the simulator. It asks the smaller machines
// that are its members in a fixed order; the rules of each are in its own file.
//
// Phases of the job (JobPhase), and what leads from one to the next:
//
//   waiting  -> running   enough workers are ready, with standbys also a majority of the last
//                         view: the next view is published
//   running  -> stopping  a member is lost, the group broke, or a change is planned: all members
//                         are told to stop, at once or at the next boundary
//   stopping -> running   every member has stopped or was evicted: the next view is published
//            -> waiting   the same, but workers, a majority or the job's state are missing
//            -> paused    the same, and an operator has asked for a pause
//   paused   -> running, waiting    the operator ends the pause
//   resuming -> running, waiting    the members of the last view have returned, or their time is
//                         over: this coordinator takes charge of that view if there was one
//   waiting, paused -> stopping     a lost member of the last view returns and still runs it
//   any      -> resuming  a member obeys another coordinator or knows a later view, or the members
//                         are sent to another coordinator because they are no majority here
//   any      -> ended     the last step is committed, the job is stopped, or it cannot go on
//
// A coordinator begins in "waiting", and in "resuming" if its log contains a view or if it is a
// standby. A standby that has not heard of a view shows the phase "standby".

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "base/time.hpp"
#include "elastic/core/admission.hpp"
#include "elastic/core/blame.hpp"
#include "elastic/core/claims.hpp"
#include "elastic/core/coordinator_events.hpp"
#include "elastic/core/coordinator_options.hpp"
#include "elastic/core/failure_detector.hpp"
#include "elastic/core/job_end.hpp"
#include "elastic/core/member_status.hpp"
#include "elastic/core/membership.hpp"
#include "elastic/core/messages.hpp"
#include "elastic/core/quorum.hpp"
#include "elastic/core/speed_judge.hpp"
#include "elastic/core/stall_watch.hpp"
#include "elastic/core/term.hpp"
#include "elastic/core/view.hpp"
#include "elastic/core/view_change.hpp"
#include "elastic/core/view_log.hpp"
#include "elastic/core/view_store.hpp"

namespace mayfly::elastic {

class Coordinator {
 public:
  /// Starts a job, or, as a standby, waits for a job to take over.
  explicit Coordinator(CoordinatorOptions options);
  /// Continues the job in the log of an earlier coordinator. If that coordinator had ended the job,
  /// members that return within resume_timeout are told so, and the job ends again. The log's
  /// microbatches and fingerprint must be equal to those of the options. A standby's log may have
  /// the job and an incarnation, but no view.
  Coordinator(CoordinatorOptions options, const LogContents& contents);

  /// Advances the machine by one event.
  [[nodiscard]] std::vector<CoordinatorEffect> handle(Instant now, const CoordinatorEvent& event);

  [[nodiscard]] const std::optional<View>& view() const { return membership_.view(); }
  [[nodiscard]] std::vector<MemberStatus> members() const;
  [[nodiscard]] JobPhase phase() const;
  /// True if this coordinator decides for the job, or has until its end. With a quorum it does not
  /// while it waits for the members of the last view, which may obey another coordinator.
  [[nodiscard]] bool is_in_charge() const;
  /// False for a standby that has never been in charge: its job() may change.
  [[nodiscard]] bool has_led() const { return !options_.standby || view_on_record_.has_value(); }
  /// True if absent members may return to their places, or if their deaths may count: until the
  /// next view has a quorum. Then messages of their sentinels are accepted, too.
  [[nodiscard]] bool awaits_members() const {
    const bool may_lack_quorum = phase_ == JobPhase::kStopping || phase_ == JobPhase::kWaiting;
    return phase_ == JobPhase::kResuming || (options_.quorum && may_lack_quorum);
  }
  /// True if members train and no change is under way: then Ticks may come less often, as they only
  /// detect silence.
  [[nodiscard]] bool is_undisturbed() const;
  /// The highest step that any member has reported as committed. It becomes lower when all members
  /// that held that step are lost.
  [[nodiscard]] Step committed() const { return membership_.committed(); }
  /// 0 for a standby that does not know a job yet.
  [[nodiscard]] Incarnation incarnation() const { return term_.incarnation(); }
  [[nodiscard]] std::uint64_t job() const { return term_.job(); }

 private:
  // Events from outside. Each sets facts; advance() then decides once what follows from them.
  void dispatch(const CoordinatorEvent& event);
  [[nodiscard]] bool decides_nothing(const CoordinatorEvent& event);
  void on_worker_connected(const coordinator_event::WorkerConnected& event);
  void on_member_connected_again(const coordinator_event::WorkerConnected& event);
  void on_received(MemberId id, const Message& message);
  void on_sentinel_beat(const coordinator_event::SentinelBeat& event);
  void on_drain_asked(MemberId id, const std::string& reason);
  void on_tick();
  void advance();
  void check_invariants();

  // Before this coordinator is in charge: members return and report what they do.
  void begin();
  void collect();
  [[nodiscard]] bool is_turn_of(const Hello& hello);
  [[nodiscard]] bool has_ended_uncharged() const {
    return phase_ == JobPhase::kEnded && options_.quorum && !ended_in_charge_;
  }
  void on_message_of_returning(MemberId id, const Peer& peer, const Message& message);
  void on_resume(MemberId id, const Peer& peer, const Resume& resume);
  void take_charge_if_due();
  void take_charge();
  void place_all();
  void place(MemberId id);
  void place_returned(MemberId id, const Peer& peer);
  void dismiss_outdated(MemberId id);
  void wait_for_quorum(const std::string& lack);
  void check_quorum_time();
  void send_members_elsewhere(const std::string& detail);

  // Messages of members.
  void on_message_of_member(MemberId id, const Peer& peer, const Message& message);
  void on_stopped(MemberId id, const Stopped& stopped);
  void on_progress(MemberId id, const Progress& progress);
  void on_leave_request(MemberId id, const Peer& peer, const std::string& reason);
  void on_store_set(MemberId id, const StoreSet& set);
  void on_store_get(MemberId id, const StoreGet& get);
  void on_view_wanted(MemberId id, const Peer& peer, ViewId view);
  void on_gone(MemberId id, Incarnation accepted, std::uint64_t author);
  void settle_if_complete();

  // Removal of members: lost, evicted or dismissed.
  void lose(MemberId id, const std::string& detail, bool still_connected);
  void evict(const Accusation& accused, const std::string& kind = "evicted");
  void evict_all(const std::vector<Accusation>& accused);
  void remove(MemberId id, const std::string& why);
  void dismiss(MemberId id, const Dismiss& message);
  void dismiss_leavers();

  // From one view to the next.
  void start_planned_change();
  void begin_change(bool immediate, ChangeCause cause, std::vector<MemberId> members = {});
  void send_stop(std::vector<MemberId> members, bool at_boundary);
  void check_stop_deadline();
  void go_on();
  void wait(const std::string& detail);
  void offer_checkpoint();
  void publish();
  void end(const JobEnd::Ending& ending);

  // Judgement of members: which of them must be evicted.
  [[nodiscard]] std::optional<JobEnd::Ending> judge_ended_view();
  void judge_stalls();
  void judge_speeds();

  CoordinatorOptions options_;
  Term term_;
  Membership membership_;
  Quorum quorum_;
  WorkerQuota quota_;
  ReturnWatch returns_;
  ViewChange change_;
  ViewStore store_;
  JobEnd end_;
  FailureDetector detector_;
  StallWatch stalls_;
  BlameRecord blame_;
  ClaimJudge claims_;
  SpeedJudge speeds_;

  JobPhase phase_ = JobPhase::kWaiting;  // never kStandby, which only phase() returns
  bool has_begun_ = false;
  bool offers_checkpoint_ = false;        // members have left to join again with one
  bool ended_in_charge_ = false;          // is_in_charge() when the job ended
  std::optional<ViewId> view_on_record_;  // the last view in the view log
  struct NextJob {
    std::uint64_t job = 0;
    Instant asked;  // when a member of it was last refused
  };
  std::optional<NextJob> next_job_;  // of a standby that has not led
  Instant now_;  // instant of the event that is being handled; outbox_ is also of that event
  Outbox outbox_;
};

}  // namespace mayfly::elastic
