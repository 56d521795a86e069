#pragma once

// The last control events of this process, kept in memory and written to a file when something goes
// wrong: a member is lost or evicted, a group breaks, the job fails, the process gets a fatal
// signal. Same lines as the simulator's histories (elastic/core/history.hpp).

#include <array>
#include <atomic>
#include <cstddef>
#include <string>
#include <string_view>
#include <vector>

#include "base/time.hpp"
#include "elastic/core/coordinator.hpp"
#include "elastic/core/member.hpp"

namespace mayfly::elastic {

class FlightRecorder {
 public:
  /// Writes to `path` when there is a reason (above); empty = never. The file is not opened before.
  explicit FlightRecorder(std::string path);
  ~FlightRecorder();
  FlightRecorder(const FlightRecorder&) = delete;
  FlightRecorder& operator=(const FlightRecorder&) = delete;

  // One thread:
  /// An event that a state machine is about to get.
  void received(Instant now, const CoordinatorEvent& event);
  void received(Instant now, const MemberEvent& event);
  /// The effects that it returned.
  void decided(Instant now, const std::vector<CoordinatorEffect>& effects);
  void decided(Instant now, const std::vector<MemberEffect>& effects);
  /// If there has been a reason since the last call, appends the lines recorded since then.
  /// Separate from decided(), so that no member waits for a disk. A file that has grown large
  /// begins anew.
  void write_if_requested();

  /// From now on the last lines of every recorder of this process are written when it gets SIGSEGV,
  /// SIGBUS, SIGILL, SIGFPE or SIGABRT, before it dies. To be called once, early.
  static void write_on_fatal_signals();

 private:
  static constexpr std::size_t kLines = 512;
  static constexpr std::size_t kLineBytes = 240;
  struct Line {
    std::array<char, kLineBytes> text;
    std::size_t size = 0;
  };

  void add(std::string_view line);
  void write_from(int file, std::size_t first) const noexcept;
  static void on_fatal_signal(int number);

  const std::string path_;
  const Instant start_ = monotonic_now();
  std::vector<Line> ring_;  // kLines, allocated once, so that a signal handler can read them
  std::atomic<std::size_t> count_{0};  // lines ever added
  std::size_t written_ = 0;            // number of lines that were written
  bool write_requested_ = false;
};

}  // namespace mayfly::elastic
