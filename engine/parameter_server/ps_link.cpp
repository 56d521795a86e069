#include "engine/parameter_server/ps_link.hpp"

namespace mayfly::engine {

PsLink::~PsLink() {
  std::unique_lock lock(mutex_);
  told_.wait(lock, [this] { return !is_telling_; });
}

void PsLink::run_view(const elastic::View& view) {
  bool is_finished = false;
  {
    const std::lock_guard lock(mutex_);
    view_ = view;
    runs_ = true;
    boundary_asked_ = false;
    is_finished = finished_;
  }
  client_.post(elastic::member_event::GroupFormed{view.id});
  client_.post(elastic::member_event::StateSynced{view.id});
  elastic::Progress progress;
  progress.view = view.id;
  progress.committed = committed_;
  client_.send_progress(progress);
  hooks_.on_view(view);
  if (is_finished) {
    stop();
  }
}

void PsLink::broke(std::optional<MemberId> culprit, const std::string& why) {
  elastic::member_event::TrainerStopped stopped;
  stopped.failed = true;
  stopped.culprit = culprit;
  stopped.detail = why;
  hooks_.on_hold();
  stop(std::move(stopped));
}

void PsLink::cut_off(const std::string& why) {
  elastic::member_event::TrainerStopped stopped;
  stopped.failed = true;
  stopped.culprit = client_.id();
  stopped.detail = why;
  hooks_.on_hold();
  stop(std::move(stopped));
}

void PsLink::stop(elastic::member_event::TrainerStopped stopped) {
  {
    const std::lock_guard lock(mutex_);
    if (!runs_ || !view_) {
      return;
    }
    runs_ = false;
    boundary_asked_ = false;
    stopped.view = view_->id;
    stopped.finished = finished_;
    stopped.committed = finished_ ? last_ : committed_;
  }
  client_.post(stopped);
}

void PsLink::abort_group(ViewId /*view*/) {
  hooks_.on_hold();
  stop();
}

void PsLink::ask_for_boundary(const elastic::member_effect::AskForBoundary& /*ask*/) {
  hooks_.on_hold();
  if (!waits_for_quiet_) {
    stop();
    return;
  }
  const std::lock_guard lock(mutex_);
  boundary_asked_ = true;
}

void PsLink::quiet() {
  {
    const std::lock_guard lock(mutex_);
    if (!boundary_asked_) {
      return;
    }
  }
  stop();
}

void PsLink::finished() {
  {
    const std::lock_guard lock(mutex_);
    finished_ = true;
  }
  stop();
}

void PsLink::leave(const elastic::member_effect::Leave& leave) {
  {
    const std::lock_guard lock(mutex_);
    leave_ = leave;
    is_telling_ = true;
  }
  hooks_.on_leave();
  const std::lock_guard lock(mutex_);
  is_telling_ = false;
  told_.notify_all();
}

std::optional<elastic::View> PsLink::view() const {
  const std::lock_guard lock(mutex_);
  return view_;
}

std::optional<elastic::member_effect::Leave> PsLink::leave_order() const {
  const std::lock_guard lock(mutex_);
  return leave_;
}

}  // namespace mayfly::engine
