#pragma once

// The coordinator on the network: accepts control connections, authenticates them with the job
// token, turns frames, timers and broken connections into events of elastic::Coordinator and
// carries out its effects. Everything runs on one thread of its own.

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "base/bytes.hpp"
#include "base/result.hpp"
#include "base/time.hpp"
#include "base/unique_fd.hpp"
#include "elastic/core/coordinator.hpp"
#include "elastic/net/view_log_file.hpp"

namespace mayfly::elastic {

struct CoordinatorServerOptions {
  std::string host = "127.0.0.1";  ///< address to listen on
  std::string advertise;           ///< address to connect to; empty = host
  std::uint16_t port = 0;          ///< 0 = any free port
  Bytes token;                     ///< the job's secret
  std::string flight_path;         ///< file of the flight recorder; empty = none
  CoordinatorOptions core;
  /// True: `core` is not known yet, and is given by CoordinatorServer::begin(). Until then workers
  /// are told to try again later, and the job is "waiting"; not of a standby.
  bool begins_later = false;
  /// The view log, already begun or continued; the server keeps it locked. Null: no log is kept.
  std::unique_ptr<DurableViewLog> view_log;
};

class CoordinatorServer;

/// Callbacks to the rest of the process. Called on the server's thread; must not block for long and
/// must not call the server except through its thread-safe functions.
class CoordinatorObserver {
 public:
  virtual ~CoordinatorObserver() = default;
  /// The first call. The server is valid until the last of the calls below has returned, also while
  /// its owner destroys it.
  virtual void on_started(CoordinatorServer& /*server*/) {}
  virtual void on_note(Instant when, const coordinator_effect::Note& note) = 0;
  /// A coordinator that continues a job may repeat a view that its predecessor has recorded.
  virtual void on_view(Instant when, const View& view) = 0;
  virtual void on_recovery(const Recovery& recovery) = 0;
  virtual void on_join(const Join& /*join*/) {}
  /// `happened`: when the reported event occurred, by this server's clock.
  virtual void on_report(MemberId member, ByteSpan payload, Instant happened) = 0;
  /// Commands other than drain, pause, resume and stop (status, scale, ...).
  virtual CommandReply on_command(const Command& command) = 0;
  /// A client on `host` that knows the token wants to transfer a checkpoint, and waits for a
  /// Welcome on this socket, which does not block. The observer serves it on another thread.
  virtual void on_transfer(UniqueFd /*socket*/, std::string /*host*/) {}
  virtual void on_ended(Outcome outcome, const std::string& detail) = 0;
  /// The list of members, their wish to leave, or the job's phase may have changed; status() is up
  /// to date. Not called for steps, speeds and silences.
  virtual void on_news() {}
};

/// A consistent copy of the coordinator's state.
struct JobStatus {
  JobPhase phase = JobPhase::kWaiting;
  Step committed{};
  ViewId view{};
  std::vector<MemberStatus> members;
  bool in_charge = false;  ///< of the job; only then does `members` contain all members of the job
  Instant news;            ///< instant of the event that on_news() was last called for
};

class CoordinatorServer {
 public:
  virtual ~CoordinatorServer() = default;

  /// "host:port" to connect to.
  [[nodiscard]] virtual std::string endpoint() const = 0;

  // Any thread:
  /// To be called once, if begins_later: admits workers from now on. `core` is called on the
  /// server's thread and returns the options. No effect if the job was stopped meanwhile.
  virtual void begin(std::function<CoordinatorOptions()> core) = 0;
  virtual void drain(MemberId member, std::string reason) = 0;
  virtual void pause(bool paused) = 0;
  virtual void stop(std::string reason) = 0;
  virtual void fail(std::string reason) = 0;
  [[nodiscard]] virtual JobStatus status() const = 0;
};

/// A random number that is not 0, for CoordinatorOptions::identity.
[[nodiscard]] std::uint64_t make_identity();

/// Listens and starts the thread. kIo if the port is in use (the text names it). `observer` must
/// outlive the server. Destroying the server flushes what was sent, then closes all connections.
[[nodiscard]] Result<std::unique_ptr<CoordinatorServer>> start_coordinator(
    CoordinatorServerOptions options, CoordinatorObserver& observer);

}  // namespace mayfly::elastic
