#pragma once

// Membership of a job with parameter servers, for workers and servers alike. Views decide which
// members there are; training does not stop for them: a lost worker's slices are leased again, the
// others go on. So orders to stop are answered here, on the control thread; stop_answers.hpp says
// when.

#include <condition_variable>
#include <functional>
#include <mutex>
#include <optional>

#include "elastic/net/member_client.hpp"
#include "engine/parameter_server/stop_answers.hpp"

namespace mayfly::engine {

class PsLink final : public elastic::MemberHandler {
 public:
  struct Hooks {
    /// A view is there. Control thread; must not block.
    std::function<void(const elastic::View&)> on_view;
    /// No new step may begin until the next view.
    std::function<void()> on_hold = [] {};
    std::function<void()> on_leave;
  };

  /// `committed`: the step that this process says it has, the same for all of its kind; servers say
  /// one less than workers, so that a worker is asked for the job's last checkpoint.
  PsLink(elastic::MemberClient& client, Step committed, Step last, Hooks hooks)
      : client_(client), hooks_(std::move(hooks)), answers_(committed, last) {}
  /// Waits until the control thread has come back from on_leave(), the last that it calls: who has
  /// seen the order to leave may be done before that.
  ~PsLink() override;
  PsLink(const PsLink&) = delete;
  PsLink& operator=(const PsLink&) = delete;

  // Control thread:
  void run_view(const elastic::View& view) override;
  void abort_group(ViewId view) override;
  void ask_for_boundary(const elastic::member_effect::AskForBoundary& ask) override;
  void leave(const elastic::member_effect::Leave& leave) override;
  /// We have the first shard: planned orders are answered by quiet(). Call it in a hook.
  void wait_for_quiet();

  // Any thread:
  /// The first shard is held in this view, and all workers are at the end of a step.
  void quiet(ViewId held_in);
  /// This worker cannot exchange data with `culprit`, or, without one, with some other member; the
  /// coordinator decides which member leaves.
  void broke(std::optional<MemberId> culprit, const std::string& why);
  /// The network between us and others is cut, and we are no use here before that is mended: the
  /// coordinator lets us go at once.
  void cut_off(const std::string& why);
  /// The job's last step is committed and on record.
  void finished();
  [[nodiscard]] std::optional<elastic::View> view() const;
  [[nodiscard]] std::optional<elastic::member_effect::Leave> leave_order() const;

 private:
  /// Ends the view because of something that the coordinator did not ask for.
  void stop(elastic::member_event::TrainerStopped why);
  void say(StopAnswers::Answer answer);

  elastic::MemberClient& client_;
  const Hooks hooks_;
  mutable std::mutex mutex_;
  // Guarded by mutex_:
  StopAnswers answers_;
  std::optional<elastic::View> view_;  // the newest
  std::optional<elastic::member_effect::Leave> leave_;
  bool is_telling_ = false;  // on_leave() runs
  std::condition_variable told_;
};

}  // namespace mayfly::engine
