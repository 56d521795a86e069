#pragma once

// A job over loopback for tests: a real coordinator server and real member clients, with a trainer
// that only answers the coordinator's messages.

#include <atomic>
#include <condition_variable>
#include <functional>
#include <memory>
#include <mutex>
#include <set>
#include <string>
#include <vector>

#include "elastic/net/coordinator_server.hpp"
#include "elastic/net/member_client.hpp"

namespace mayfly::elastic {

/// A generous bound: a wait that takes longer fails the test.
inline constexpr Duration kHangBound = seconds(60);

/// Records the callbacks of the server, and lets tests wait for them.
class RecordingObserver final : public CoordinatorObserver {
 public:
  void on_note(Instant when, const coordinator_effect::Note& note) override;
  void on_view(Instant when, const View& view) override;
  void on_recovery(const Recovery& recovery) override;
  void on_report(MemberId member, ByteSpan payload, Instant happened) override;
  CommandReply on_command(const Command& command) override;
  void on_ended(Outcome outcome, const std::string& detail) override;
  void on_news() override;

  struct Seen {
    struct TimedNote {
      Instant when;
      coordinator_effect::Note note;
    };
    std::vector<TimedNote> notes;
    std::vector<View> views;
    std::vector<Recovery> recoveries;
    std::vector<std::pair<MemberId, Bytes>> reports;
    std::vector<Outcome> outcomes;
    std::set<MemberId> leaving;  // for at_news()
  };
  /// Sets a function that the server's thread calls on every on_news().
  void at_news(std::function<void(Seen&)> what);
  /// Waits until `condition` holds; false, with a test failure, after kHangBound.
  bool wait_until(const std::function<bool(const Seen&)>& condition, const char* what);
  /// Waits for a view of exactly these members and returns it.
  View wait_for_view(std::vector<MemberId> members);
  /// Waits for a note of this kind about this member and returns it.
  Seen::TimedNote wait_for_note(const std::string& kind, MemberId member);
  [[nodiscard]] Seen seen() const;

 private:
  void change(const std::function<void(Seen&)>& edit);

  mutable std::mutex mutex_;
  std::condition_variable changed_;
  Seen seen_;                           // guarded by mutex_
  std::function<void(Seen&)> at_news_;  // guarded by mutex_
};

/// A worker in this process. It reports each view as formed and synced, and obeys each Stop.
class ToyWorker final : public MemberHandler {
 public:
  ToyWorker(std::unique_ptr<MemberClient> client, bool ready = true);

  void run_view(const View& view) override;
  void abort_group(ViewId view) override;
  void ask_for_boundary(const member_effect::AskForBoundary& ask) override;
  void leave(const member_effect::Leave& leave) override;

  [[nodiscard]] MemberClient& client() { return *client_; }
  [[nodiscard]] MemberId id() const { return id_; }
  /// Waits until this worker is dismissed; returns the reason.
  member_effect::Leave wait_for_leave();
  /// Waits until this worker runs this view.
  void wait_for_view(ViewId view);
  [[nodiscard]] std::vector<ViewId> aborted() const;
  /// Reports that the job's last step is committed.
  void finish();
  /// From now on this worker does not answer Stop, as if it were in the middle of a long step.
  void never_stop() { stops_ = false; }
  /// Breaks the connection without a message.
  void vanish() { owned_.reset(); }

 private:
  void stopped(ViewId view, bool finished);

  const MemberId id_;
  std::atomic<bool> stops_ = true;
  mutable std::mutex mutex_;
  std::condition_variable changed_;
  ViewId view_{};  // guarded by mutex_, as all below
  std::vector<ViewId> aborted_;
  std::optional<member_effect::Leave> left_;
  std::unique_ptr<MemberClient> owned_;        // last: its thread calls this object until it ends
  MemberClient* const client_ = owned_.get();  // for that thread while owned_ is being reset
};

/// A coordinator and the means to add workers to it.
class TestJob {
 public:
  explicit TestJob(std::uint32_t initial_workers, CoordinatorOptions core = {});

  ~TestJob();

  /// Ends the server without a message to its members. restart_coordinator() starts another one on
  /// the same port with the same log.
  void kill_coordinator();
  void restart_coordinator();

  /// `reports`: the queue of an earlier worker of the same process, or null.
  std::unique_ptr<ToyWorker> add_worker(bool ready = true, ReportQueue* reports = nullptr);
  [[nodiscard]] Result<std::unique_ptr<MemberClient>> connect(
      Bytes token, std::vector<std::pair<std::string, std::string>> fingerprint = {},
      ReportQueue* reports = nullptr);
  /// Applies to members that are added from now on.
  void set_coordinator_timeout(Duration timeout) { coordinator_timeout_ = timeout; }

  [[nodiscard]] RecordingObserver& observer() { return observer_; }
  [[nodiscard]] CoordinatorServer& server() { return *server_; }
  [[nodiscard]] const Bytes& token() const { return token_; }
  [[nodiscard]] std::string endpoint() const { return endpoint_; }
  [[nodiscard]] CommandReply command(const std::string& verb, const std::string& argument = "");

 private:
  Bytes token_;
  CoordinatorOptions core_;
  std::string folder_;
  std::string endpoint_ = "127.0.0.1:0";
  Duration coordinator_timeout_ = seconds(600);
  RecordingObserver observer_;
  std::unique_ptr<CoordinatorServer> server_;
};

/// The ids of these workers, ascending.
[[nodiscard]] std::vector<MemberId> ids_of(const std::vector<std::unique_ptr<ToyWorker>>& workers);

}  // namespace mayfly::elastic
