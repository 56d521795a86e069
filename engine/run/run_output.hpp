#pragma once

// The output of a run while it goes on: the files of its directory and the calls of the listener.
// Several threads write, one at a time.

#include <boost/json/fwd.hpp>
#include <map>
#include <mutex>
#include <string>
#include <vector>

#include "engine/run/member_journal.hpp"
#include "engine/run/member_record.hpp"
#include "engine/run/records.hpp"
#include "engine/run/run_directory.hpp"
#include "engine/run/run_listener.hpp"

namespace mayfly::engine {

class RunOutput {
 public:
  /// `directory` and `listener` outlive the output; while several threads use the output, these two
  /// must not be used directly. `members`: the lines that an earlier process of the job wrote to
  /// members.jsonl.
  RunOutput(RunDirectory& directory, RunListener& listener,
            const std::vector<MemberRecord>& members);

  /// The right to write, from turn() until the object is destroyed. All output of one event is
  /// written in one turn, together with the output that depends on it.
  class Turn {
   public:
    RunDirectory& directory;
    RunListener& listener;
    MemberJournal& journal;  ///< of the lines in members.jsonl

    /// Records an event about a failure that may be repeated. The listener gets `line` unless the
    /// previous failure of this kind had the same cause (see ReportedFailure). Returns whether it
    /// did.
    bool failed(const std::string& kind, const boost::json::object& fields,
                const std::string& cause, const std::string& line);
    /// The operation that fails with this kind has succeeded, so the listener gets its next
    /// failure.
    void worked(const std::string& kind);

   private:
    friend class RunOutput;
    explicit Turn(RunOutput& output);

    std::map<std::string, ReportedFailure>& reported_;
    std::unique_lock<std::mutex> lock_;
  };

  /// Waits until no other thread has a turn. A thread that has one must not call this again. Any
  /// thread.
  [[nodiscard]] Turn turn() { return Turn(*this); }
  /// RunDirectory::seconds_at(). Any thread, also without a turn.
  [[nodiscard]] double seconds_at(Instant when) const { return directory_.seconds_at(when); }

 private:
  std::mutex mutex_;
  RunDirectory& directory_;
  RunListener& listener_;
  MemberJournal journal_;
  std::map<std::string, ReportedFailure> reported_;  // by kind
};

}  // namespace mayfly::engine
