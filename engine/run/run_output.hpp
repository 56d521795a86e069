#pragma once

// What a run leaves while it goes on: the files of its directory, and what the listener is told.
// Several threads have something to write, one at a time.

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

  /// The right to write, from turn() until the object is destroyed. All that one event brings is
  /// written in one turn; so is what depends on what was written before.
  class Turn {
   public:
    RunDirectory& directory;
    RunListener& listener;
    MemberJournal& journal;  ///< of what members.jsonl has

    /// An event about a failure that may come again and again. The listener is told `line`, unless
    /// the failure of this kind before had the same cause (see SaidFailure). Whether it was told.
    bool failed(const std::string& kind, const boost::json::object& fields,
                const std::string& cause, const std::string& line);
    /// What fails with this kind has worked: its next failure is told.
    void worked(const std::string& kind);

   private:
    friend class RunOutput;
    explicit Turn(RunOutput& output);

    std::map<std::string, SaidFailure>& said_;
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
  std::map<std::string, SaidFailure> said_;  // by kind
};

}  // namespace mayfly::engine
