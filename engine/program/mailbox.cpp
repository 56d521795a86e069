#include "engine/program/mailbox.hpp"

#include "base/check.hpp"

namespace mayfly::engine {

void Mailbox::add(const ProgramTask& task) {
  {
    const std::lock_guard lock(mutex_);
    queue_.push_back(task);
  }
  for_program_.notify_one();
}

bool Mailbox::wait_until_done() {
  std::unique_lock lock(mutex_);
  for_trainer_.wait(
      lock, [this] { return interrupted_ || (queue_.empty() && !current_ && !abandoned_); });
  return !interrupted_;
}

void Mailbox::drop_queued() {
  const std::lock_guard lock(mutex_);
  queue_.clear();
}

void Mailbox::discard() {
  std::unique_lock lock(mutex_);
  queue_.clear();
  for_trainer_.wait(lock, [this] { return !current_; });
}

void Mailbox::ask(const ProgramTask& task) {
  std::unique_lock lock(mutex_);
  ENSURE(!requested_, "the trainer asks for one thing at a time");
  requested_ = task;
  is_taken_ = false;
  for_program_.notify_one();
  for_trainer_.wait(lock, [this] { return !requested_ && !abandoned_; });
}

void Mailbox::end() {
  {
    const std::lock_guard lock(mutex_);
    ended_ = true;
    queue_.clear();
  }
  for_program_.notify_one();
}

void Mailbox::interrupt() {
  {
    const std::lock_guard lock(mutex_);
    interrupted_ = true;
  }
  for_trainer_.notify_all();
}

void Mailbox::clear_interrupt() {
  const std::lock_guard lock(mutex_);
  interrupted_ = false;
}

bool Mailbox::is_interrupted() const {
  const std::lock_guard lock(mutex_);
  return interrupted_;
}

void Mailbox::abandon() {
  const std::lock_guard lock(mutex_);
  abandoned_ = true;
}

std::optional<ProgramTask> Mailbox::next(Duration patience) {
  std::unique_lock lock(mutex_);
  if (current_ && (current_->kind == ProgramTask::Kind::kUpdate ||
                   current_->kind == ProgramTask::Kind::kLoad)) {
    finish_current();
  }
  ENSURE(!current_, "the task before is done");
  if (!for_program_.wait_for(lock, patience, [this] { return has_work(); })) {
    return std::nullopt;
  }
  return take();
}

ProgramTask Mailbox::take() {
  if (requested_ && !is_taken_) {
    is_taken_ = true;
    current_ = requested_;
    return *current_;
  }
  if (ended_) {
    return {};
  }
  current_ = queue_.front();
  queue_.pop_front();
  return *current_;
}

void Mailbox::done() {
  const std::lock_guard lock(mutex_);
  ENSURE(current_, "only what was taken can be done");
  finish_current();
}

std::optional<ProgramTask> Mailbox::current() const {
  const std::lock_guard lock(mutex_);
  return current_;
}

void Mailbox::finish_current() {
  current_.reset();
  if (requested_ && is_taken_) {
    requested_.reset();
    is_taken_ = false;
  }
  for_trainer_.notify_all();
}

}  // namespace mayfly::engine
