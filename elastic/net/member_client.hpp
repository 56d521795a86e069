#pragma once

// A worker's control connection: drives elastic::Member on a thread of its own ("control"), which
// does nothing else, so that an abort is never late because the trainer is busy.

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "base/bytes.hpp"
#include "base/ids.hpp"
#include "base/result.hpp"
#include "base/time.hpp"
#include "elastic/core/member.hpp"

namespace mayfly::elastic {

struct MemberClientOptions {
  std::string endpoint;  ///< "host:port" of the coordinator
  Bytes token;
  std::string address;  ///< of our gradient transport
  std::vector<std::pair<std::string, std::string>> fingerprint;
};

/// Carries out the machine's effects. Called on the control thread; must not block.
class MemberHandler {
 public:
  virtual ~MemberHandler() = default;
  virtual void run_view(const View& view) = 0;
  virtual void abort_group(ViewId view) = 0;
  virtual void ask_for_boundary(ViewId view) = 0;
  virtual void leave(const member_effect::Leave& leave) = 0;
};

class MemberClient {
 public:
  /// Sends what was posted, then closes the connection. Not on the control thread; waiting calls of
  /// store_get must have returned.
  virtual ~MemberClient() = default;

  [[nodiscard]] virtual MemberId id() const = 0;
  /// Lets the machine act: from now on `handler`, which must outlive the client, hears of its
  /// effects. Once. (Heartbeats are sent from the moment of connecting.)
  virtual void start(MemberHandler& handler) = 0;

  // Any thread:
  /// Gives the machine an event (Loaded, TrainerStopped, GroupFormed, StateSynced, LeaveAsked).
  virtual void post(MemberEvent event) = 0;
  virtual void send_progress(const Progress& progress) = 0;
  virtual void send_report(Bytes payload) = 0;
  /// The coordinator's key-value store of a view. store_get waits until somebody sets the key; not
  /// on the control thread. kPeerLost without a coordinator, kAborted once the view is over,
  /// kDeadline.
  virtual Result<void> store_set(ViewId view, const std::string& key, ByteSpan value) = 0;
  virtual Result<Bytes> store_get(ViewId view, const std::string& key, Instant deadline) = 0;
};

/// Connects (retrying until the deadline while nobody listens) and authenticates. kRefused carries
/// the coordinator's reason: wrong token, another model, full.
[[nodiscard]] Result<std::unique_ptr<MemberClient>> connect_member(
    const MemberClientOptions& options, Instant deadline);

}  // namespace mayfly::elastic
