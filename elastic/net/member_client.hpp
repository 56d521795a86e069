#pragma once

// A worker's control connection: drives elastic::Member on a thread of its own ("control"), which
// does nothing else, so that an abort is never late because the trainer is busy.
//
// If the coordinator is lost, the client tries its address again and then the others of the list,
// while the trainer continues without noticing. Reports are kept until a coordinator has
// acknowledged them.

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "base/bytes.hpp"
#include "base/ids.hpp"
#include "base/result.hpp"
#include "base/time.hpp"
#include "elastic/core/member.hpp"

namespace mayfly::elastic {

class ReportQueue;
class Sentinel;

struct MemberClientOptions {
  /// "host:port" of the coordinator, then of its standbys; 1 to kEndpointsMax.
  std::vector<std::string> endpoints;
  Bytes token;
  /// The sentinel of this worker, or null. The client arms it and keeps its data up to date; it
  /// must outlive the client.
  Sentinel* sentinel = nullptr;
  /// How long a member that needs a coordinator waits for one before it gives up.
  Duration coordinator_timeout = seconds(600);
  std::string address;     ///< address of this worker's gradient transport
  std::string server;      ///< the provider's name for this worker's server; empty = unknown
  std::string flight_dir;  ///< folder for the flight recorder's file; empty = none
  std::vector<std::pair<std::string, std::string>> fingerprint;
  /// The last member of this process, if it is to join again under that id.
  std::optional<Former> former = {};
  /// The queue of this client's reports. It may contain reports of earlier members of this process,
  /// which are sent first. Must outlive the client; null = a new queue.
  ReportQueue* reports = nullptr;
  /// Called from time to time while no coordinator has answered yet: true ends the search with
  /// kAborted. Empty = never.
  std::function<bool()> gives_up = {};
};

/// Carries out the machine's effects. Called on the control thread; must not block.
class MemberHandler {
 public:
  virtual ~MemberHandler() = default;
  virtual void run_view(const View& view) = 0;
  virtual void abort_group(ViewId view) = 0;
  virtual void ask_for_boundary(const member_effect::AskForBoundary& ask) = 0;
  virtual void leave(const member_effect::Leave& leave) = 0;
  /// A coordinator was found again. The argument is the number of reports that were dropped
  /// meanwhile because the queue was full.
  virtual void coordinator_returned(std::uint64_t /*reports_dropped*/) {}
};

class MemberClient {
 public:
  /// Sends what was posted, then closes the connection. Not on the control thread; waiting calls of
  /// store_get must have returned.
  virtual ~MemberClient() = default;

  [[nodiscard]] virtual MemberId id() const = 0;
  /// The id of the job, as in Welcome.
  [[nodiscard]] virtual std::uint64_t job() const = 0;
  /// True if members were training when this one was admitted: it will receive their state.
  [[nodiscard]] virtual bool joins_late() const = 0;
  /// From now on the machine's effects are passed to `handler`, which must outlive the client. To
  /// be called once. (Heartbeats are sent as soon as there is a connection.)
  virtual void start(MemberHandler& handler) = 0;

  // Any thread:
  /// True if this member was told to leave before start() was called.
  [[nodiscard]] virtual bool is_dismissed() const { return false; }
  /// Gives the machine an event (Loaded, TrainerStopped, GroupFormed, StateSynced, LeaveAsked).
  virtual void post(MemberEvent event) = 0;
  virtual void send_progress(const Progress& progress) = 0;
  virtual void send_report(Bytes payload, Instant happened) = 0;
  void send_report(Bytes payload) { send_report(std::move(payload), monotonic_now()); }
  /// The number of connections to coordinators so far. Reports that were acknowledged on an earlier
  /// one may be lost with that coordinator's machine.
  [[nodiscard]] virtual std::uint64_t connections() const { return 1; }
  /// The newest view that this member was told to run; 0 before the first.
  [[nodiscard]] virtual ViewId view() const { return ViewId{}; }
  /// The coordinator's key-value store of a view. store_get waits until a member sets the key; not
  /// on the control thread. kPeerLost when the client ends, kAborted once the view is over,
  /// kDeadline. If the coordinator is lost, requests are repeated to the next one, after all
  /// reports that were sent before them.
  virtual Result<void> store_set(ViewId view, const std::string& key, ByteSpan value) = 0;
  virtual Result<Bytes> store_get(ViewId view, const std::string& key, Instant deadline) = 0;
};

/// Connects to the first coordinator of the list that admits this worker (trying again until the
/// deadline while there is none) and authenticates. kRefused with the coordinator's reason: wrong
/// token, another model, no free place.
[[nodiscard]] Result<std::unique_ptr<MemberClient>> connect_member(
    const MemberClientOptions& options, Instant deadline);

/// Waits until a coordinator has acknowledged every report that this thread has sent before. Errors
/// as of store_get(); reports that were not acknowledged in time are still sent later.
Result<void> wait_for_reports(MemberClient& client, ViewId view, Instant deadline);

}  // namespace mayfly::elastic
