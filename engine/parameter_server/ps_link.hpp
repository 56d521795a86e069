#pragma once

// The connection between the control thread and a worker or server of a job with parameter servers.
// Training does not stop when the view changes: the slices of a lost worker are leased to other
// workers, which continue. Therefore orders to stop are answered here, on the control thread;
// stop_answers.hpp describes when.

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
    /// Called with each new view. Control thread; must not block.
    std::function<void(const elastic::View&)> on_view;
    /// Called when no new step may begin until the next view.
    std::function<void()> on_hold = [] {};
    /// Called when leave_order() has been set.
    std::function<void()> on_leave;
  };

  /// `committed`: the step that this process reports as committed. All workers report the same one,
  /// and servers one less, so that the coordinator asks a worker for the job's last checkpoint.
  PsLink(elastic::MemberClient& client, Step committed, Step last, Hooks hooks)
      : client_(client), hooks_(std::move(hooks)), answers_(committed, last) {}
  /// Waits until the control thread has returned from on_leave(), the last hook that it calls: the
  /// thread that reads leave_order() may destroy this object before that.
  ~PsLink() override;
  PsLink(const PsLink&) = delete;
  PsLink& operator=(const PsLink&) = delete;

  // Control thread:
  void run_view(const elastic::View& view) override;
  void abort_group(ViewId view) override;
  void ask_for_boundary(const elastic::member_effect::AskForBoundary& ask) override;
  void leave(const elastic::member_effect::Leave& leave) override;
  /// To be called in a hook if this process leads the first shard: planned orders to stop are then
  /// answered by quiet().
  void wait_for_quiet();

  // Any thread:
  /// To be called when the first shard is held in this view and all workers have finished a step.
  void quiet(ViewId held_in);
  /// Reports that this process cannot exchange data with `culprit`, or, without one, with some
  /// other member. The coordinator decides which member leaves.
  void broke(std::optional<MemberId> culprit, const std::string& why);
  /// Reports that this process itself is cut off from other members and can do nothing for the job
  /// before its network works again. The coordinator evicts it at once.
  void cut_off(const std::string& why);
  /// To be called when the job's last step is committed and on record.
  void finished();
  [[nodiscard]] std::optional<elastic::View> view() const;
  [[nodiscard]] std::optional<elastic::member_effect::Leave> leave_order() const;

 private:
  /// Reports that this process has stopped. `why` is empty if the coordinator has ordered it.
  void stop(elastic::Stopped why);
  void say(StopAnswers::Answer answer);

  elastic::MemberClient& client_;
  const Hooks hooks_;
  mutable std::mutex mutex_;
  // Guarded by mutex_:
  StopAnswers answers_;
  std::optional<elastic::View> view_;  // the newest
  std::optional<elastic::member_effect::Leave> leave_;
  bool is_in_on_leave_ = false;  // the control thread
  std::condition_variable leave_returned_;
};

}  // namespace mayfly::engine
