#pragma once

// The coordinator process's memory of a run: turns what the coordinator and the workers report into
// the run directory's files, the terminal's lines and, at the end, the summary.

#include <cstdint>
#include <functional>
#include <mutex>
#include <optional>
#include <string>

#include "elastic/net/coordinator_server.hpp"
#include "engine/job/job.hpp"
#include "engine/run/checkpoint_store.hpp"
#include "engine/run/job_cost.hpp"
#include "engine/run/job_news.hpp"
#include "engine/run/job_progress.hpp"
#include "engine/run/member_journal.hpp"
#include "engine/run/member_logs.hpp"
#include "engine/run/member_roles.hpp"
#include "engine/run/program_failures.hpp"
#include "engine/run/records.hpp"
#include "engine/run/run_directory.hpp"
#include "engine/run/run_history.hpp"
#include "engine/run/run_listener.hpp"
#include "engine/run/summary.hpp"

namespace mayfly::engine {

struct Fact;

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

  /// `history` is what the directory holds of a job that goes on.
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
  /// The end of the job, and what to look at before.
  [[nodiscard]] JobNews& news() { return news_; }
  [[nodiscard]] const JobProgress& progress() const { return progress_; }
  [[nodiscard]] JobCost& cost() { return cost_; }
  [[nodiscard]] const MemberRoles& roles() const { return roles_; }
  /// A checkpoint is in the run directory now.
  void checkpoint_received(const ReceivedCheckpoint& received);
  /// One does not come here, or a worker is not taken for what it would start with.
  void checkpoint_refused(const std::string& why);
  /// One is where --checkpoint-to says, or did not get there.
  void checkpoint_copied(Step step, const std::string& where, Duration took);
  void checkpoint_not_copied(const std::string& why);
  /// A fact that the launcher knows.
  void note(const std::string& kind, const std::string& detail);
  /// The same with any fields.
  void fact(const Fact& fact);
  /// Writes down what has changed of the members, at most every kLookInterval, and what those with
  /// a price have cost, so call it often.
  void look_at_members(const elastic::CoordinatorServer& server);
  /// RunDirectory::seconds_at(). Any thread.
  [[nodiscard]] double seconds_at(Instant when) const { return directory_.seconds_at(when); }
  /// Writes summary.json and tells the listener, unless the job was refused. False if it could not
  /// be written, which the listener is told with it. After the server is gone.
  [[nodiscard]] bool write_summary(const JobEnd& end);

 private:
  [[nodiscard]] static ViewEvent event_of(const elastic::View& view,
                                          const std::vector<elastic::MemberStatus>& members);
  // Under output_mutex_:
  template <typename R>
  void record(const R& record, Instant when = monotonic_now());  // as an event
  void receive(const StepRecord& record);
  void receive(const EvaluationRecord& record, Instant happened = monotonic_now());
  void receive(const CheckpointRecord& record);
  void receive(const FatalRecord& record);
  void receive(const WorkerRecord& record);
  void receive(const NoteRecord& record);
  void receive(const StateRecord& record);
  void receive(const FallBackRecord& record);
  void receive(const ShardRecord& record);
  void receive(const ProgramFailureRecord& record);
  void receive(const LogRecord&) {}  // goes to member_logs_
  // Under no mutex:
  bool went_wrong(const char* kind, const std::string& why, SaidFailure& said);
  void note_missing_records();
  void close_accounts();

  const Job& job_;
  RunDirectory& directory_;
  RunListener& listener_;
  const Hooks hooks_;
  elastic::CoordinatorServer* server_ = nullptr;  // who calls us; used on its thread only

  JobNews news_;
  JobCost cost_;
  MemberRoles roles_;
  JobProgress progress_;
  std::mutex output_mutex_;  // the directory and the listener are used by one thread at a time
  MemberLogs member_logs_;   // guarded by output_mutex_
  SaidFailure checkpoint_failures_;     // guarded by output_mutex_
  SaidFailure refusals_;                // guarded by output_mutex_
  SaidFailure copy_failures_;           // guarded by output_mutex_
  ProgramFailures program_failures_;    // guarded by output_mutex_
  std::optional<std::string> restart_;  // why; guarded by output_mutex_, until the view of it
  MemberJournal journal_;               // guarded by output_mutex_
  Instant looked_;                      // at the members; guarded by output_mutex_
};

}  // namespace mayfly::engine
