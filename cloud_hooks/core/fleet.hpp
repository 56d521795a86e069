#pragma once

// The servers of a job and the members that work on them: which member runs on which server, in
// which stage of its life each server is, and how many there are. It releases servers and tells
// members to leave when other parts of the policy ask for it; those parts know costs and request
// replacements. Pure; one thread.
//
// A worker that does not name its server is counted together with one server that waits for its
// worker. Otherwise worker and server would count twice, the job would seem to have too many, and
// the worker's server might be released. It is unknown on which of the waiting servers the worker
// runs, so none of them is released while it may run there. The same holds for a worker that names
// a server which was never seen, while a server that was requested before it joined still waits:
// its start-up script has probably set another name.
//
// Several workers may name the same server, for example those of a machine with several GPUs. They
// count as one, and the server is released after the last of them.

#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>
#include <string>

#include "base/ids.hpp"
#include "base/time.hpp"
#include "cloud_hooks/core/effect_list.hpp"
#include "cloud_hooks/core/offer_catalog.hpp"
#include "cloud_hooks/core/replacement_options.hpp"

namespace mayfly::cloud_hooks {

class Fleet {
 public:
  enum class Stage {
    kAwaited,    // no worker yet
    kWorking,    // its worker is a member
    kUnnamed,    // a worker that did not name its server may run on it
    kSilent,     // its worker was lost; it may come back until `deadline`
    kLeaving,    // its worker leaves, or it is being taken away
    kReleasing,  // we ended it and wait for it to be gone
  };
  /// The facts about a server when it is first seen.
  struct Arrival {
    std::string request_id;
    std::optional<std::size_t> offer;  // none: adopted, and of no offer of this job
    Instant born;                      // when its provider granted it
    Instant asked;                     // no worker on it can have joined earlier
    bool is_adopted = false;           // not requested by us: its worker may have joined before
    Duration lifetime{};               // as requested; 0 = no limit, or unknown
    std::optional<Instant> ends;       // the end of its lifetime
  };
  struct Server : Arrival {
    Stage stage = Stage::kAwaited;
    Instant seen;               // when this process first heard of it
    bool runs = false;          // it was seen running
    bool never_joined = false;  // it began to end before its worker had joined
    bool gives_way = false;     // it leaves once its successor works, and does not count
    Instant silent_since;       // of is_silent(); no deadline: until the provider answers
    Instant looked_for;         // request time of the last list that did not repeat an old state
    std::optional<Instant> deadline;  // of the stage
    std::optional<MemberId> member;
    std::uint32_t order = 0;  // younger servers have higher ones
    int refused_releases = 0;
    [[nodiscard]] bool stays() const {
      return stage == Stage::kAwaited || stage == Stage::kWorking;
    }
    [[nodiscard]] bool is_used() const { return stays() || stage == Stage::kUnnamed; }
    [[nodiscard]] bool is_ending() const {
      return stage == Stage::kLeaving || stage == Stage::kReleasing;
    }
  };
  struct Member {
    std::string server;  // empty: it did not name one
    Instant joined;
    bool leaves = false;
    bool server_is_gone = false;
    bool has_presumed_server = false;  // it is counted together with a server
    double speed = 0;                  // 0 = not measured yet
    bool is_irreplaceable = false;
    [[nodiscard]] bool stays() const { return !leaves && !server_is_gone; }
  };

  /// All arguments must outlive this object.
  Fleet(const ReplacementOptions& options, const OfferCatalog& catalog, EffectList& effects)
      : options_(options), catalog_(catalog), effects_(effects) {}

  // --- Queries ---

  /// Servers that are not known to be gone, by id. References to one stay valid until remove().
  [[nodiscard]] const std::map<std::string, Server>& servers() const { return servers_; }
  /// The server with that id; null if there is none.
  [[nodiscard]] const Server* find(const std::string& id) const;
  // Whether the offer of a server is for evaluators, and whether it is on demand. False if the
  // offer is unknown.
  [[nodiscard]] bool is_for_evaluator(const Server& server) const;
  [[nodiscard]] bool is_on_demand(const Server& server) const;
  /// Whether the server's worker cannot be replaced.
  [[nodiscard]] bool is_irreplaceable(const Server& server) const;
  /// The measured speed of the server's worker; 0 = none.
  [[nodiscard]] double measured_speed(const Server& server) const;
  /// measured_speed(), or without one the speed of the server's offer (OfferCatalog::speed).
  [[nodiscard]] double speed_of(const Server& server) const;
  /// The price of the server's offer; the highest of all offers if it is unknown.
  [[nodiscard]] double price_of(const Server& server) const;
  /// Whether its worker computes: its speed was measured, or, because some jobs measure none, it
  /// joined `join_timeout` ago.
  [[nodiscard]] bool is_at_work(Instant now, const Server& server) const;
  /// The time from which is_at_work() holds at the latest; none without a worker.
  [[nodiscard]] std::optional<Instant> at_work_by(const Server& server) const;
  /// Whether the server's worker was lost and may come back.
  [[nodiscard]] bool is_silent(const Server& server) const;
  /// Whether is_silent(), and the provider has not shown since the loss whether the server still
  /// exists.
  [[nodiscard]] bool is_loss_unlisted(const Server& server) const;
  /// A description for messages.
  [[nodiscard]] std::string describe(const Server& server) const;

  /// Workers, and servers for workers, that are to stay; without those that give way.
  [[nodiscard]] std::uint32_t staying() const;
  /// Servers for evaluators that are to stay.
  [[nodiscard]] std::uint32_t staying_for_evaluators() const;
  /// Servers of the offer that are to stay, or are kept for workers that do not name them.
  [[nodiscard]] std::uint32_t present(std::size_t offer) const;
  /// Servers of the offer whose workers are members.
  [[nodiscard]] std::uint32_t working(std::size_t offer) const;
  /// Servers that leave or were released.
  [[nodiscard]] std::uint32_t ending() const;
  /// Whether a server may have a worker, or still bring one.
  [[nodiscard]] bool may_bring_worker() const;
  /// Whether a server draws on the same quota as the offer.
  [[nodiscard]] bool uses_quota_of(std::size_t offer) const;
  /// The next time at which a stage or a lifetime is over; none = never.
  [[nodiscard]] std::optional<Instant> next_deadline() const;
  /// The time at which the worker must leave because of the server's lifetime; none = never.
  [[nodiscard]] std::optional<Instant> leaves_by(const Server& server) const;

  /// An event that concerns this server, whether or not it is known. `cost`: total cost, if it has
  /// ended.
  void note(std::string kind, const std::string& id, std::string detail,
            std::optional<double> cost = {}) const;

  // --- Facts from the provider; the server is known, except in add() ---

  /// A new server. If its worker has joined before, it works.
  const Server& add(Instant now, const std::string& id, const Arrival& arrival);
  /// The server was seen running: from now on its worker has `join_timeout` to join.
  void started(Instant now, const std::string& id);
  /// By the provider, the server began at `begin`: until it has been seen running, its lifetime is
  /// postponed accordingly, because a batch system may queue it.
  void lifetime_began(const std::string& id, Instant begin);
  /// The provider ends the server; `failed`: because its program has ended. Returns whether the end
  /// was not expected.
  [[nodiscard]] bool stopping(Instant now, const std::string& id, bool failed);
  /// Its program has ended while it was leaving: it is released at once. Returns, once, whether it
  /// began to end before its worker had joined.
  [[nodiscard]] bool stopped(Instant now, const std::string& id);
  /// The list that was requested at `asked` lacks the server, or has its present state, not a
  /// repeated one.
  void looked_for(const std::string& id, Instant asked);
  /// The server does not exist any more. Returns its last entry.
  Server remove(const std::string& id);
  /// The provider has answered after an interruption: lost workers get the whole `rejoin_patience`
  /// from now on, because they could not reach the coordinator either.
  void wait_anew_for_silent(Instant now);
  /// Whether is_loss_unlisted() holds for any server.
  [[nodiscard]] bool has_unlisted_loss() const;

  // --- Facts from the job; a member may be unknown ---

  /// A worker has become a member. Returns its server, which works now; null if the server was not
  /// named, is unknown or ending, or has a worker already.
  const Server* joined(Instant now, MemberId id, const std::string& server);
  /// The member cannot be replaced: from now on its server is never given up for a smaller target
  /// or a better price.
  void irreplaceable(MemberId id);
  /// The member will leave at a boundary. Returns whether that was not known before.
  [[nodiscard]] bool leaving(Instant now, MemberId id);
  struct Loss {
    bool was_announced = false;
    bool may_concern_server = false;   ///< the provider's list will show whether it has ended too
    std::optional<std::size_t> offer;  ///< of the server that is silent now
  };
  /// The worker is no longer a member. Its server stays if another worker runs on it. Otherwise it
  /// is released if the loss was announced or the job ends, or else kept for `rejoin_patience`, so
  /// that the worker can come back. Returns nothing if the member is unknown.
  std::optional<Loss> gone(Instant now, MemberId id, bool job_ends);
  /// The member's speed, in a unit that is the same for all members. Returns the offer of its
  /// server, if both are known.
  std::optional<std::size_t> measured(MemberId id, double speed);

  // --- Decisions; servers are known ---

  /// Ends it.
  void release(Instant now, const std::string& id);
  /// Ends the server; tells its worker, if it has one, to leave first.
  void let_go(Instant now, const std::string& id);
  /// The provider did not accept the release. It is repeated after `wait` at the earliest, and
  /// after twice as long as the last time.
  void release_again(Instant now, const std::string& id, Duration wait);
  /// Ends all servers that were not released yet.
  void release_all(Instant now);
  /// The job has ended: releases servers that wait for a worker. Evaluators may still measure.
  void release_unused(Instant now);
  /// Tells up to `count` members that run on no known server to leave.
  void drain_without_server(std::uint32_t count);
  /// The deadline of a server has passed. Returns whether the server is kept nevertheless, without
  /// a deadline: an unnamed worker may run on it, or the provider has not answered since its worker
  /// was lost.
  [[nodiscard]] bool keeps_waiting(const std::string& id);
  /// Sets whether the server will be replaced by a successor that was requested.
  void set_gives_way(const std::string& id, bool gives_way);

 private:
  [[nodiscard]] std::optional<MemberId> worker_on(const std::string& server) const;
  void set_worker(Instant now, Server& server, MemberId worker) const;
  void presume_server(Member& member);
  void presume_worker(Server& server);
  void count_together(Member& member, Server& server);
  void wait_for_unnamed(Instant now);
  [[nodiscard]] bool is_unnamed(const Member& member) const;
  [[nodiscard]] bool has_unnamed() const;
  [[nodiscard]] bool may_have_unnamed_worker(const Server& server) const;
  [[nodiscard]] std::uint32_t counted_twice() const;
  void note_unnamed();

  const ReplacementOptions& options_;
  const OfferCatalog& catalog_;
  EffectList& effects_;
  std::map<std::string, Server> servers_;
  std::map<MemberId, Member> members_;
  std::uint32_t servers_seen_ = 0;
  bool unnamed_noted_ = false;
};

}  // namespace mayfly::cloud_hooks
