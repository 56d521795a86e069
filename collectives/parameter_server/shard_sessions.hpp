#pragma once

// The sessions of one shard: at most one for each worker of the present view, one for the leader
// that the shard follows, and a bounded number of strangers, which wait for admission. One thread.

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <vector>

#include "base/ids.hpp"
#include "base/time.hpp"
#include "base/unique_fd.hpp"
#include "collectives/parameter_server/admission.hpp"
#include "collectives/parameter_server/session.hpp"
#include "collectives/parameter_server/shard.hpp"

namespace mayfly::parameter_server {

class ShardSessions {
 public:
  /// Most strangers; a further connection ends the session of one of them.
  static constexpr std::size_t kStrangersMax = 64;

  /// `payload_bytes`: of the shard's parameters.
  ShardSessions(const ShardOptions& options, std::uint64_t payload_bytes)
      : context_{options.number, payload_bytes, options.payload_hashes},
        admission_(options.number) {}

  /// A process has connected. If there are too many strangers, the session of the oldest one ends,
  /// preferably of one that has sent no greeting; a worker connects again.
  void add(UniqueFd socket);
  /// Ends the sessions of strangers whose time is over (Session::stranger_until()).
  void end_late(Instant now);
  /// When to call end_late() next; nothing without strangers.
  [[nodiscard]] std::optional<Instant> next_late() const;

  /// As Admission::set_view().
  void set_view(const ShardView& view, ShardRole role) { admission_.set_view(view, role); }
  [[nodiscard]] ViewId view() const { return admission_.view(); }
  /// Admits the next stranger whose greeting may be admitted, and ends the sessions of strangers
  /// that are refused. An earlier session of the same worker, or of a leader, ends. Null: there is
  /// no such stranger.
  Session* admit_next();

  /// All sessions, in the order in which they were added. They do not move.
  [[nodiscard]] const std::vector<std::unique_ptr<Session>>& all() const { return sessions_; }
  /// The session of this worker, or of the leader; null if there is none.
  [[nodiscard]] Session* of(MemberId worker) const;
  [[nodiscard]] Session* leader() const;
  /// Workers and strangers.
  [[nodiscard]] std::size_t except_leader() const;

  /// Ends the leader's session.
  void end_leader();
  /// As the functions of MessageStream, for each session.
  void keep_copies();
  void release(std::uint64_t through);
  /// Sends what there is to send, and forgets the sessions that are over.
  void flush();
  /// Closes every connection.
  void clear() { sessions_.clear(); }

  /// Sets the bytes that were exchanged with workers so far.
  void count(ShardFacts& facts) const;

 private:
  void make_room();

  SessionContext context_;
  Admission admission_;
  std::vector<std::unique_ptr<Session>> sessions_;
};

}  // namespace mayfly::parameter_server
