#include "elastic/net/flight_recorder.hpp"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <csignal>
#include <utility>

#include "base/unique_fd.hpp"
#include "elastic/core/history.hpp"

namespace mayfly::elastic {
namespace {

constexpr off_t kFileBytesMax = off_t{4} << 20;
constexpr std::size_t kRecordersMax = 8;

/// The recorders that a signal handler writes. A recorder enters and leaves a place by one
/// exchange.
std::array<std::atomic<FlightRecorder*>, kRecordersMax> living{};

bool is_reason(const CoordinatorEffect& effect) {
  if (const auto* note = std::get_if<coordinator_effect::Note>(&effect)) {
    return note->kind == "lost" || note->kind == "evicted" || note->kind == "stalled" ||
           note->kind == "restarted";
  }
  const auto* ended = std::get_if<coordinator_effect::JobEnded>(&effect);
  return ended != nullptr &&
         (ended->outcome == Outcome::kFailed || ended->outcome == Outcome::kTooFewWorkers);
}

bool is_reason(const MemberEvent& event) {
  const auto* stopped = std::get_if<member_event::TrainerStopped>(&event);
  return (stopped != nullptr && stopped->report.failed) ||
         std::holds_alternative<member_event::CoordinatorLost>(event);
}

bool is_reason(const MemberEffect& effect) {
  const auto* leave = std::get_if<member_effect::Leave>(&effect);
  return leave != nullptr &&
         (is_eviction(leave->reason) || leave->reason == DismissReason::kJobFailed);
}

}  // namespace

FlightRecorder::FlightRecorder(std::string path) : path_(std::move(path)), ring_(kLines) {
  for (auto& place : living) {
    FlightRecorder* nobody = nullptr;
    if (place.compare_exchange_strong(nobody, this)) {
      return;
    }
  }
}

FlightRecorder::~FlightRecorder() {
  for (auto& place : living) {
    FlightRecorder* self = this;
    if (place.compare_exchange_strong(self, nullptr)) {
      return;
    }
  }
}

void FlightRecorder::received(Instant now, const CoordinatorEvent& event) {
  add(history_line(now - start_, event));
}

void FlightRecorder::received(Instant now, const MemberEvent& event) {
  add(history_line(now - start_, event));
  write_requested_ = write_requested_ || is_reason(event);
}

void FlightRecorder::decided(Instant now, const std::vector<CoordinatorEffect>& effects) {
  for (const CoordinatorEffect& effect : effects) {
    add(history_line(now - start_, effect));
    write_requested_ = write_requested_ || is_reason(effect);
  }
}

void FlightRecorder::decided(Instant now, const std::vector<MemberEffect>& effects) {
  for (const MemberEffect& effect : effects) {
    add(history_line(now - start_, effect));
    write_requested_ = write_requested_ || is_reason(effect);
  }
}

void FlightRecorder::add(std::string_view line) {
  if (line.empty()) {
    return;
  }
  const std::size_t count = count_.load(std::memory_order_relaxed);
  Line& place = ring_[count % kLines];
  place.size = std::min(line.size(), kLineBytes - 1);
  std::copy_n(line.begin(), place.size, place.text.begin());
  place.text[place.size++] = '\n';
  count_.store(count + 1, std::memory_order_release);
}

void FlightRecorder::write_from(int file, std::size_t first) const noexcept {
  const std::size_t count = count_.load(std::memory_order_acquire);
  for (std::size_t i = std::max(first, count > kLines ? count - kLines : 0); i < count; ++i) {
    const Line& line = ring_[i % kLines];
    [[maybe_unused]] const ssize_t ignored = ::write(file, line.text.data(), line.size);
  }
}

void FlightRecorder::write_if_requested() {
  if (!std::exchange(write_requested_, false) || path_.empty()) {
    return;
  }
  constexpr int kFlags = O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC;
  const UniqueFd file(::open(path_.c_str(), kFlags, 0644));
  struct stat facts {};
  if (!file.valid() || ::fstat(file.get(), &facts) != 0) {
    return;  // a failure of the recorder must not cause further failures
  }
  if (facts.st_size > kFileBytesMax && ::ftruncate(file.get(), 0) != 0) {
    return;
  }
  write_from(file.get(), written_);
  written_ = count_.load(std::memory_order_relaxed);
}

void FlightRecorder::on_fatal_signal(int number) {
  for (auto& place : living) {
    const FlightRecorder* recorder = place.load();
    if (recorder == nullptr || recorder->path_.empty()) {
      continue;
    }
    const int file = ::open(recorder->path_.c_str(), O_WRONLY | O_CREAT | O_APPEND, 0644);
    if (file >= 0) {
      recorder->write_from(file, 0);
      constexpr std::string_view kEnd = "the process received a fatal signal\n";
      [[maybe_unused]] const ssize_t ignored = ::write(file, kEnd.data(), kEnd.size());
      ::close(file);
    }
  }
  ::signal(number, SIG_DFL);
  ::raise(number);
}

void FlightRecorder::write_on_fatal_signals() {
  struct sigaction action {};
  action.sa_handler = &FlightRecorder::on_fatal_signal;
  action.sa_flags = static_cast<int>(SA_RESETHAND);
  for (const int number : {SIGSEGV, SIGBUS, SIGILL, SIGFPE, SIGABRT}) {
    ::sigaction(number, &action, nullptr);
  }
}

}  // namespace mayfly::elastic
