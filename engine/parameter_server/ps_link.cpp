#include "engine/parameter_server/ps_link.hpp"

namespace mayfly::engine {

PsLink::~PsLink() {
  std::unique_lock lock(mutex_);
  leave_returned_.wait(lock, [this] { return !is_in_on_leave_; });
}

void PsLink::run_view(const elastic::View& view) {
  StopAnswers::Answer answer;
  Step committed{};
  {
    const std::lock_guard lock(mutex_);
    view_ = view;
    answer = answers_.begin(view.id);
    committed = answers_.committed();
  }
  client_.post(elastic::member_event::GroupFormed{view.id});
  client_.post(elastic::member_event::StateSynced{view.id});
  elastic::Progress progress;
  progress.view = view.id;
  progress.committed = committed;
  client_.send_progress(progress);
  hooks_.on_view(view);
  say(std::move(answer));
}

void PsLink::wait_for_quiet() {
  const std::lock_guard lock(mutex_);
  answers_.wait_for_quiet();
}

void PsLink::say(StopAnswers::Answer answer) {
  if (answer) {
    client_.post(elastic::member_event::TrainerStopped{*std::move(answer)});
  }
}

void PsLink::stop(elastic::Stopped why) {
  hooks_.on_hold();
  StopAnswers::Answer answer;
  {
    const std::lock_guard lock(mutex_);
    answer = answers_.stop(std::move(why));
  }
  say(std::move(answer));
}

void PsLink::broke(std::optional<MemberId> culprit, const std::string& why) {
  elastic::Stopped stopped;
  stopped.failed = true;
  stopped.culprit = culprit;
  stopped.detail = why;
  stop(std::move(stopped));
}

void PsLink::cut_off(const std::string& why) {
  broke(client_.id(), why);
}

void PsLink::abort_group(ViewId /*view*/) {
  stop({});
}

void PsLink::ask_for_boundary(const elastic::member_effect::AskForBoundary& /*ask*/) {
  StopAnswers::Answer answer;
  {
    const std::lock_guard lock(mutex_);
    answer = answers_.boundary();
  }
  hooks_.on_hold();
  say(std::move(answer));
}

void PsLink::quiet(ViewId held_in) {
  StopAnswers::Answer answer;
  {
    const std::lock_guard lock(mutex_);
    answer = answers_.quiet(held_in);
  }
  say(std::move(answer));
}

void PsLink::finished() {
  StopAnswers::Answer answer;
  {
    const std::lock_guard lock(mutex_);
    answer = answers_.finished();
  }
  say(std::move(answer));
}

void PsLink::leave(const elastic::member_effect::Leave& leave) {
  {
    const std::lock_guard lock(mutex_);
    leave_ = leave;
    is_in_on_leave_ = true;
  }
  hooks_.on_leave();
  const std::lock_guard lock(mutex_);
  is_in_on_leave_ = false;
  leave_returned_.notify_all();
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
