#include "engine/training/observer.hpp"

#include <fmt/format.h>
#include <pthread.h>
#include <unistd.h>

#include <algorithm>
#include <utility>

#include "base/check.hpp"
#include "engine/state/state_transfer.hpp"

namespace mayfly::engine {
namespace {

constexpr std::size_t kStepsAlwaysKept = 4;
constexpr std::size_t kBlanksMax = 2;
constexpr std::size_t kPageBytes = 4096;

}  // namespace

ObserverMemory make_observer_memory(StateKeeper& state, const StepMeans& means) {
  ObserverMemory memory{state.make_observed(), PackedBytes(state.packed_size()), {}};
  for (std::size_t at = 0; at < memory.packed.size(); at += kPageBytes) {
    memory.packed.span()[at] = std::byte{0};
  }
  for (std::size_t i = 0; i < kBlanksMax; ++i) {
    memory.blanks.push_back(means.blank());
  }
  return memory;
}

Observer::Observer(ObserverMemory memory, StateSource source, std::uint64_t queue_bytes_max,
                   CaughtUpFunction on_caught_up)
    : source_(std::move(source)),
      queue_bytes_max_(queue_bytes_max),
      on_caught_up_(std::move(on_caught_up)),
      state_(std::move(memory.state)),
      packed_(std::move(memory.packed)),
      blanks_(std::move(memory.blanks)),
      last_(source_.committed) {
  thread_ = std::thread([this] { run(); });
}

Observer::~Observer() {
  {
    const std::lock_guard lock(mutex_);
    stopping_ = true;
  }
  changed_.notify_all();
  stop_.notify();
  thread_.join();
}

ObservedStep Observer::blank() {
  const std::lock_guard lock(mutex_);
  if (blanks_.empty()) {
    return {};
  }
  ObservedStep step = std::move(blanks_.back());
  blanks_.pop_back();
  return step;
}

void Observer::add(ObservedStep step) {
  {
    const std::lock_guard lock(mutex_);
    if (failure_.has_value()) {
      return;
    }
    ENSURE(step.step == next(last_), "sums are kept without a gap");
    const std::uint64_t bytes_each = step.means.size() * sizeof(float);
    last_ = step.step;
    queue_.push_back(std::move(step));
    if (queue_.size() > kStepsAlwaysKept && queue_.size() * bytes_each > queue_bytes_max_) {
      fail_locked({Errc::kDeadline,
                   fmt::format("the state has not arrived within {} steps", queue_.size())});
    }
    check_invariants();
  }
  changed_.notify_all();
}

void Observer::expect(std::uint32_t state_check) {
  {
    const std::lock_guard lock(mutex_);
    expected_ = state_check;
  }
  changed_.notify_all();
}

void Observer::resume_after(Step committed) {
  const std::lock_guard lock(mutex_);
  if (failure_.has_value() || last_ <= committed) {
    return;
  }
  if (last_ != next(committed) || queue_.empty()) {
    fail_locked({Errc::kCorrupt, "the job goes on from before the steps whose sums are applied"});
    return;
  }
  queue_.pop_back();
  last_ = committed;
  check_invariants();
}

/// Invariants between any two calls, under mutex_ and in constant time, until hand_over().
void Observer::check_invariants() const {
  ENSURE(!failure_ || queue_.empty(), "after a failure no sums are kept");
  ENSURE(queue_.empty() || (queue_.back().step == last_ &&
                            value(queue_.front().step) + queue_.size() == value(next(last_))),
         "the kept sums are those of consecutive steps, up to the last one added");
}

Step Observer::observed() const {
  const std::lock_guard lock(mutex_);
  return failure_.has_value() ? Step{} : last_;
}

void Observer::hand_over() {
  const std::lock_guard lock(mutex_);
  ENSURE(caught_up_, "the state is there");
  for (const ObservedStep& step : queue_) {
    state_->apply(step);
  }
  queue_.clear();
  ENSURE(state_->committed() == last_, "every sum is applied");
  state_->hand_over();
}

std::optional<Observer::Failure> Observer::failure() const {
  const std::lock_guard lock(mutex_);
  return failure_;
}

void Observer::fail_locked(Error error) {
  if (!failure_.has_value()) {
    failure_ = Failure{std::move(error), monotonic_now()};
  }
  queue_.clear();
  blanks_.clear();
}

void Observer::run() {
  pthread_setname_np(pthread_self(), "observer");
  Result<void> received = receive();
  if (received.ok()) {
    received = compare_state();
  }
  if (!received.ok()) {
    const std::lock_guard lock(mutex_);
    fail_locked(received.error());
    return;
  }
  replay();
}

Result<void> Observer::receive() {
  const std::size_t size = packed_.size();
  std::vector<WantedPart> parts;
  for (std::size_t i = 0; i < source_.donors.size(); ++i) {
    const PartRange range = part_of(size, i, source_.donors.size());
    parts.push_back(
        {source_.donors[i], packed_.span().subspan(range.first, range.last - range.first)});
  }
  TRY(fetch_parts(source_.since, source_.key, parts, stop_.fd(), kStateIdleMax, source_.token));
  TRY(state_->unpack(packed_.span()));
  packed_ = {};
  if (state_->committed() != source_.committed) {
    return Error{Errc::kCorrupt,
                 fmt::format("the donors sent the state after step {} instead of {}",
                             value(state_->committed()), value(source_.committed))};
  }
  return {};
}

/// Compares the received state with the hash on which the members agreed in the first step of the
/// view.
Result<void> Observer::compare_state() {
  const std::uint32_t check = state_->check() & 0x7fffffffU;
  std::unique_lock lock(mutex_);
  changed_.wait(lock, [this] { return expected_.has_value() || stopping_; });
  if (stopping_) {
    return Error{Errc::kAborted, "the state is not needed any more"};
  }
  if (*expected_ != check) {
    return Error{Errc::kCorrupt, "the received state differs from that of the members"};
  }
  return {};
}

void Observer::replay() {
  std::unique_lock lock(mutex_);
  while (!stopping_ && !failure_.has_value()) {
    if (queue_.size() <= 1) {
      caught_up_ = true;
      const Step step = last_;
      lock.unlock();
      on_caught_up_(step);
      return;
    }
    ObservedStep step = std::move(queue_.front());
    queue_.pop_front();
    check_invariants();
    lock.unlock();
    state_->apply(step);
    lock.lock();
    if (blanks_.size() < kBlanksMax) {
      blanks_.push_back(std::move(step));
    }
  }
}

}  // namespace mayfly::engine
