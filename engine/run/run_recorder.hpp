#pragma once

// Records a run: passes the reports of the coordinator and the workers to the classes that keep
// them in memory, and writes them to the run directory, the terminal and, at the end, the summary.

#include <cstdint>
#include <functional>
#include <optional>
#include <string>

#include "elastic/net/coordinator_server.hpp"
#include "engine/job/job.hpp"
#include "engine/run/checkpoint_store.hpp"
#include "engine/run/job_cost.hpp"
#include "engine/run/job_news.hpp"
#include "engine/run/job_progress.hpp"
#include "engine/run/member_logs.hpp"
#include "engine/run/member_roles.hpp"
#include "engine/run/program_failures.hpp"
#include "engine/run/records.hpp"
#include "engine/run/run_directory.hpp"
#include "engine/run/run_history.hpp"
#include "engine/run/run_listener.hpp"
#include "engine/run/run_output.hpp"

namespace mayfly::engine {

struct Fact;

/// Its functions are called by the coordinator's server, on its thread, except where a comment says
/// otherwise.
class RunRecorder final : public elastic::CoordinatorObserver {
 public:
  static constexpr Duration kLookInterval = seconds(1);  ///< see look_at_members()

  /// For requests that are not recorded; called on the thread of the coordinator's server.
  struct Hooks {
    /// elastic::CoordinatorObserver::on_command()
    std::function<elastic::CommandReply(const elastic::CoordinatorServer&, const elastic::Command&)>
        on_command;
    /// elastic::CoordinatorObserver::on_transfer()
    std::function<void(UniqueFd socket, std::string host)> on_transfer;
  };

  /// `history`: the records in the directory of a job that is continued. `job`, `directory` and
  /// `listener` outlive the recorder; while the server runs, only the recorder uses the latter two.
  RunRecorder(const Job& job, RunDirectory& directory, RunListener& listener, RunHistory history,
              Hooks hooks);

  void on_started(elastic::CoordinatorServer& server) override { server_ = &server; }
  void on_note(Instant when, const elastic::coordinator_effect::Note& note) override;
  void on_view(Instant when, const elastic::View& view) override;
  void on_recovery(const elastic::Recovery& recovery) override;
  void on_join(const elastic::Join& join) override;
  void on_report(MemberId member, ByteSpan payload, Instant happened) override;
  void on_transfer(UniqueFd socket, std::string host) override {
    hooks_.on_transfer(std::move(socket), std::move(host));
  }
  elastic::CommandReply on_command(const elastic::Command& command) override {
    return hooks_.on_command(*server_, command);
  }
  void on_ended(elastic::Outcome outcome, const std::string& detail) override {
    news_.end_with({outcome, detail});
  }
  void on_news() override { news_.announce(); }

  // Any thread:
  /// The state of the job in memory, for other threads.
  [[nodiscard]] JobNews& news() { return news_; }
  [[nodiscard]] const JobProgress& progress() const { return progress_; }
  [[nodiscard]] JobCost& cost() { return cost_; }
  [[nodiscard]] const MemberRoles& roles() const { return roles_; }
  /// RunDirectory::seconds_at().
  [[nodiscard]] double seconds_at(Instant when) const { return output_.seconds_at(when); }
  /// A checkpoint is in the run directory now.
  void checkpoint_received(const ReceivedCheckpoint& received);
  /// A checkpoint is not stored in the run directory, or a worker is refused because of the state
  /// with which it would start.
  void checkpoint_refused(const std::string& why);
  /// A checkpoint was copied to the place of --checkpoint-to.
  void checkpoint_copied(Step step, const std::string& where, Duration took);
  /// A checkpoint could not be copied there.
  void checkpoint_not_copied(const std::string& why);
  /// Records an event with this detail and passes it to the listener.
  void note(const std::string& kind, const std::string& detail);
  /// Records an event with any fields.
  void fact(const Fact& fact);
  /// Passes a line to the listener without recording an event.
  void print(const std::string& line);

  // One thread:
  /// Records changes of the members, and the cost of those with a price, at most every
  /// kLookInterval; to be called more often.
  void look_at_members(const elastic::CoordinatorServer& server);
  /// To be called when the server is destroyed: writes summary.json and passes the summary to the
  /// listener, unless the job was refused. False if it could not be written; the listener gets that
  /// error as well.
  [[nodiscard]] bool write_summary(const JobEnd& end);

 private:
  // A report of a worker:
  void receive(RunOutput::Turn& out, const StepRecord& step);
  void receive(RunOutput::Turn& out, const EvaluationRecord& evaluation,
               Instant happened = monotonic_now());
  void receive(RunOutput::Turn& out, const CheckpointRecord& checkpoint);
  void receive(RunOutput::Turn& out, const FatalRecord& fatal);
  void receive(RunOutput::Turn& out, const WorkerRecord& worker);
  void receive(RunOutput::Turn& out, const NoteRecord& note);
  void receive(RunOutput::Turn& out, const StateRecord& state);
  void receive(RunOutput::Turn& out, const FallBackRecord& reported);
  void receive(RunOutput::Turn& out, const ShardRecord& reported);
  void receive(RunOutput::Turn& out, const ProgramFailureRecord& failure);
  void receive(RunOutput::Turn& /*out*/, const LogRecord& /*lines*/) {}  // see on_report()
  void note_missing_records();
  void close_accounts();

  const Job& job_;
  const Hooks hooks_;
  RunOutput output_;
  JobNews news_;
  JobCost cost_;
  MemberRoles roles_;
  JobProgress progress_;
  Instant looked_;  // of look_at_members(), used by its thread only
  // Used by the server's thread only:
  elastic::CoordinatorServer* server_ = nullptr;
  MemberLogs member_logs_;
  ProgramFailures program_failures_;
  std::optional<std::string> restart_;  // its reason, until the next view
};

}  // namespace mayfly::engine
