#pragma once

// Puts a run on record: passes what the coordinator and the workers report to the parts that keep
// it in memory, and writes it to the run directory, the terminal and, at the end, the summary.

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

  /// For what the coordinator passes on and is not recorded; called on its server's thread.
  struct Hooks {
    /// elastic::CoordinatorObserver::on_command()
    std::function<elastic::CommandReply(const elastic::CoordinatorServer&, const elastic::Command&)>
        on_command;
    /// elastic::CoordinatorObserver::on_transfer()
    std::function<void(UniqueFd socket, std::string host)> on_transfer;
  };

  /// `history` is what the directory holds of a job that goes on. `job`, `directory` and `listener`
  /// outlive the recorder; while the server runs, nobody else uses the latter two.
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
  /// The parts that others ask about the job.
  [[nodiscard]] JobNews& news() { return news_; }
  [[nodiscard]] const JobProgress& progress() const { return progress_; }
  [[nodiscard]] JobCost& cost() { return cost_; }
  [[nodiscard]] const MemberRoles& roles() const { return roles_; }
  /// RunDirectory::seconds_at().
  [[nodiscard]] double seconds_at(Instant when) const { return output_.seconds_at(when); }
  /// A checkpoint is in the run directory now.
  void checkpoint_received(const ReceivedCheckpoint& received);
  /// A checkpoint does not come to the run directory, or a worker is refused for the state that it
  /// would start with.
  void checkpoint_refused(const std::string& why);
  /// A checkpoint is where --checkpoint-to says.
  void checkpoint_copied(Step step, const std::string& where, Duration took);
  /// A checkpoint could not be copied there.
  void checkpoint_not_copied(const std::string& why);
  /// An event with this detail, which the listener is told, too.
  void note(const std::string& kind, const std::string& detail);
  /// An event with any fields.
  void fact(const Fact& fact);
  /// A line for the listener, without an event.
  void tell(const std::string& line);

  // One thread:
  /// Records what has changed of the members, and what those with a price have cost, at most every
  /// kLookInterval; call it more often.
  void look_at_members(const elastic::CoordinatorServer& server);
  /// Writes summary.json and tells the listener, unless the job was refused. False if it could not
  /// be written, which the listener is told with it. When the server is gone.
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
  std::optional<std::string> restart_;  // why, until the view that follows
};

}  // namespace mayfly::engine
