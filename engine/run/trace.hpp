#pragma once

// A trace of a worker's time, thread by thread, as Chrome trace events (chrome://tracing,
// Perfetto). Each thread has a lane of its own: a ring of fixed size that only this thread fills
// and only the trainer empties, so recording takes no lock and allocates nothing. Without a trace
// there are no lanes, and a span costs only a null check.

#include <atomic>
#include <cstdint>
#include <deque>
#include <memory>
#include <mutex>
#include <string>
#include <string_view>
#include <vector>

#include "base/ids.hpp"
#include "base/result.hpp"
#include "base/time.hpp"
#include "engine/config/derived_settings.hpp"
#include "engine/run/line_file.hpp"

namespace mayfly::engine {

/// A named value of a span in addition to its step; `key` is a literal, null = no value.
struct TraceArgument {
  const char* key = nullptr;
  std::int64_t value = 0;
};

struct TraceEvent {
  const char* name = nullptr;  ///< a literal
  Instant begin;
  Instant end;  ///< not before `begin`
  std::uint64_t step = 0;
  TraceArgument argument;
};

/// One thread's events. The spans of a lane are nested or disjoint: an outer span must not begin
/// later or end earlier than an inner one.
class TraceLane {
 public:
  TraceLane(std::string name, const std::atomic<bool>& recording)
      : name_(std::move(name)), recording_(recording), ring_(kCapacity) {}

  // The lane's thread:
  [[nodiscard]] bool recording() const { return recording_.load(std::memory_order_relaxed); }
  void span(const char* name, Instant begin, Instant end, std::uint64_t step,
            TraceArgument argument = {});

  // The thread that writes the trace:
  /// Moves the recorded events to the end of `events`.
  void drain(std::vector<TraceEvent>& events);
  [[nodiscard]] bool half_full() const;
  [[nodiscard]] std::uint64_t dropped() const { return dropped_.load(std::memory_order_relaxed); }
  [[nodiscard]] const std::string& name() const { return name_; }

 private:
  static constexpr std::size_t kCapacity = std::size_t{1} << 14;

  std::string name_;
  const std::atomic<bool>& recording_;
  std::vector<TraceEvent> ring_;
  std::atomic<std::size_t> written_{0};  // both only grow; the index in the ring is the remainder
  std::atomic<std::size_t> drained_{0};
  std::atomic<std::uint64_t> dropped_{0};
};

/// Records a span from here to the end of the scope; does nothing if `lane` is null or its trace
/// does not record at the moment.
class TraceSpan {
 public:
  TraceSpan(TraceLane* lane, const char* name, std::uint64_t step, TraceArgument argument = {})
      : lane_(lane != nullptr && lane->recording() ? lane : nullptr),
        name_(name),
        step_(step),
        argument_(argument) {
    if (lane_ != nullptr) {
      begin_ = monotonic_now();
    }
  }
  ~TraceSpan() {
    if (lane_ != nullptr) {
      lane_->span(name_, begin_, monotonic_now(), step_, argument_);
    }
  }
  TraceSpan(const TraceSpan&) = delete;
  TraceSpan& operator=(const TraceSpan&) = delete;

 private:
  TraceLane* lane_;
  const char* name_;
  std::uint64_t step_;
  TraceArgument argument_;
  Instant begin_;
};

/// The trace of one worker. Any thread may call lane(); only the trainer's thread calls the other
/// functions.
class Trace {
 public:
  explicit Trace(TraceWindow window) : window_(window) {}
  /// Writes the remaining events and closes the file's JSON array.
  ~Trace();

  /// A new lane; lives as long as the trace.
  [[nodiscard]] TraceLane* lane(const std::string& name);

  /// Creates the folder and FOLDER/member-ID.json, to which flush() writes from now on, one event
  /// per line. Replaces a file of that name unless this trace wrote it: a member that joins again
  /// may keep its id.
  [[nodiscard]] Result<void> open(const std::string& folder, MemberId member);
  /// To be called when a view or its step `step_of_view` begins: decides whether lanes record.
  /// Flushes when the window ends, a lane is half full, or the last flush was a second ago, so that
  /// the trace of a killed worker lacks little.
  void at_step(std::uint64_t step_of_view);
  /// Appends the events of the lanes to the file; a failure is logged once and ends the recording.
  void flush();

 private:
  void write(const std::string& lines);
  void close();
  [[nodiscard]] bool any_half_full();
  [[nodiscard]] std::string header(const TraceLane& lane, std::size_t number) const;

  TraceWindow window_;
  std::atomic<bool> recording_{true};
  std::mutex mutex_;
  std::deque<TraceLane> lanes_;  // guarded by mutex_; addresses of lanes do not change
  std::size_t introduced_ = 0;   // lanes whose names are in the file
  std::unique_ptr<LineFile> file_;
  std::uint64_t member_ = 0;
  Instant flushed_;
  bool failed_ = false;
};

/// The null-safe lane of a trace that may be off.
[[nodiscard]] inline TraceLane* lane_of(Trace* trace, const std::string& name) {
  return trace == nullptr ? nullptr : trace->lane(name);
}

/// Merges the events that the workers of a run left in `folder` into one JSON file for Perfetto.
/// Lines torn by a kill are left out. kNotFound if there is none.
[[nodiscard]] Result<void> merge_traces(const std::string& folder, const std::string& file);

}  // namespace mayfly::engine
