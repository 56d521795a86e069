#pragma once

// The servers of a job and the members that work on them: which member runs on which server, in
// which stage of its life each server is, and how many there are. It releases servers, and tells
// members to leave, when it is asked to; what a change costs, and what is requested in place of a
// server, is for others. Pure; one thread.
//
// A worker that does not name its server is counted together with one server that waits for its
// worker. Otherwise worker and server would count twice, the job would have too many, and the
// server of the worker would be released. It is unknown which server it really is, so none of these
// servers is released while it may be the one.

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
    kUnnamed,    // one of the workers that do not say where they run may be on it
    kSilent,     // its worker was lost; it may come back until `deadline`
    kLeaving,    // its worker leaves, or it is being taken away
    kReleasing,  // we ended it and wait for it to be gone
  };
  /// What is known of a server when it is first seen.
  struct Arrival {
    std::string request_id;
    std::optional<std::size_t> offer;  // none: adopted, and not on our list
    Instant born;                      // when its provider granted it
    Instant asked;                     // no worker on it can have joined us earlier
    bool is_adopted = false;           // of no request of ours: its worker may have joined before
    std::optional<Instant> ends;       // by its own lifetime
  };
  struct Server : Arrival {
    Stage stage = Stage::kAwaited;
    Instant seen;               // when we first heard of it
    bool runs = false;          // it was seen running
    bool never_joined = false;  // it began to end before its worker had joined
    bool gives_way = false;     // it leaves as soon as its successor works, and counts no more
    Instant silent_since;       // is_silent(); without a deadline: until the provider answers
    Instant looked_for;         // when the last list was asked for that did not merely repeat it
    std::optional<Instant> deadline;  // of the stage
    std::optional<MemberId> member;
    std::uint32_t order = 0;  // younger servers have higher ones
    [[nodiscard]] bool stays() const {
      return stage == Stage::kAwaited || stage == Stage::kWorking;
    }
    [[nodiscard]] bool is_used() const { return stays() || stage == Stage::kUnnamed; }
    [[nodiscard]] bool is_ending() const {
      return stage == Stage::kLeaving || stage == Stage::kReleasing;
    }
  };
  struct Member {
    std::string server;  // empty: it does not say
    Instant joined;
    bool leaves = false;
    bool server_is_gone = false;
    bool has_presumed_server = false;  // if it does not say: a server was taken for its own
    double speed = 0;                  // 0 = not measured yet
    bool is_irreplaceable = false;
    [[nodiscard]] bool stays() const { return !leaves && !server_is_gone; }
  };

  /// All of these outlive it.
  Fleet(const ReplacementOptions& options, const OfferCatalog& catalog, EffectList& effects)
      : options_(options), catalog_(catalog), effects_(effects) {}

  // --- What is known ---

  /// Servers that are not known to be gone, by id. References to one stay valid until remove().
  [[nodiscard]] const std::map<std::string, Server>& servers() const { return servers_; }
  /// The server with that id; null if there is none.
  [[nodiscard]] const Server* find(const std::string& id) const;
  // Whether the offer of a server is for evaluators, and whether it is on demand. False if the
  // offer is unknown.
  [[nodiscard]] bool is_for_evaluator(const Server& server) const;
  [[nodiscard]] bool is_on_demand(const Server& server) const;
  /// Its worker cannot be replaced.
  [[nodiscard]] bool is_irreplaceable(const Server& server) const;
  /// Its worker's measured speed; 0 = none.
  [[nodiscard]] double measured_speed(const Server& server) const;
  /// The same, or that of other servers of its offer.
  [[nodiscard]] double speed_of(const Server& server) const;
  /// The price of its offer; the highest of all if its offer is unknown.
  [[nodiscard]] double price_of(const Server& server) const;
  /// Whether its worker computes. If no speeds are reported at all, `join_timeout` decides.
  [[nodiscard]] bool is_at_work(Instant now, const Server& server) const;
  /// When is_at_work() at the latest; none without a worker.
  [[nodiscard]] std::optional<Instant> at_work_by(const Server& server) const;
  /// Its worker was lost, and may come back.
  [[nodiscard]] bool is_silent(const Server& server) const;
  /// The provider has not shown yet whether the server of this lost worker still exists.
  [[nodiscard]] bool is_loss_unlisted(const Server& server) const;
  /// One for messages.
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
  /// The time at which its worker has to leave because of its own lifetime; none = never.
  [[nodiscard]] std::optional<Instant> leaves_by(const Server& server) const;

  /// An event that concerns this server, whether or not it is known. `cost`: total cost, if it has
  /// ended.
  void tell(std::string kind, const std::string& id, std::string detail,
            std::optional<double> cost = {}) const;

  // --- What the provider shows; the server is known, except to add() ---

  /// A new server. If its worker has joined before, it works.
  const Server& add(Instant now, const std::string& id, const Arrival& arrival);
  /// It was seen running: from now on its worker has `join_timeout` to join.
  void started(Instant now, const std::string& id);
  /// The provider ends it; `failed`: because its program has ended. Returns whether that is news.
  [[nodiscard]] bool stopping(Instant now, const std::string& id, bool failed);
  /// Its program has ended while it was leaving: it is released at once. Returns, once, whether it
  /// began to end before its worker had joined.
  [[nodiscard]] bool stopped(Instant now, const std::string& id);
  /// A list that was asked for then lacks it, or its provider has looked at it for that list.
  void looked_for(const std::string& id, Instant asked);
  /// It does not exist any more. Returns what was known of it.
  Server remove(const std::string& id);
  /// Workers could not reach the coordinator for a while; the time for lost ones to come back
  /// begins now, as the provider has answered.
  void wait_anew_for_silent(Instant now);
  /// is_loss_unlisted() of any server.
  [[nodiscard]] bool has_unlisted_loss() const;

  // --- What the job shows; a member may be unknown ---

  /// Returns the server that works now: null if it is unknown, on its way out, or not named.
  const Server* joined(Instant now, MemberId id, const std::string& server);
  /// From now on its server is never given up for a smaller target or a better price.
  void irreplaceable(MemberId id);
  /// It will leave at a boundary. Returns whether that is news.
  [[nodiscard]] bool leaving(Instant now, MemberId id);
  struct Loss {
    bool was_announced = false;
    bool may_concern_server = false;   ///< the provider's list will show whether it has ended too
    std::optional<std::size_t> offer;  ///< of the server that is silent now
  };
  /// It is no longer a member: its server is released if that was announced, otherwise kept for a
  /// while so that it can come back, unless the job ends. Returns nothing if it is unknown.
  std::optional<Loss> gone(Instant now, MemberId id, bool job_ends);
  /// Its speed, in a unit that is the same for all. Returns the offer of its server, if both are
  /// known.
  std::optional<std::size_t> measured(MemberId id, double speed);

  // --- What is decided; servers are known ---

  /// Ends it.
  void release(Instant now, const std::string& id);
  /// Ends it; its worker, if it has one, is told to leave first.
  void let_go(Instant now, const std::string& id);
  /// The provider did not take the release, which is tried again then.
  void release_again_at(Instant moment, const std::string& id);
  /// Ends all servers that were not released yet.
  void release_all(Instant now);
  /// When the job has ended, no worker is waited for any more; evaluators may still measure.
  void release_unused(Instant now);
  /// Tells up to so many members that run on no known server to leave.
  void drain_without_server(std::uint32_t count);
  /// The stage of a server is over. Returns whether it is kept all the same, without a deadline,
  /// because a worker may run on it or could not be expected.
  [[nodiscard]] bool keeps_waiting(const std::string& id);
  /// Whether its successor is on its way.
  void set_gives_way(const std::string& id, bool gives_way);

 private:
  void presume_server(Member& member);
  void presume_worker(Server& server);
  void count_together(Member& member, Server& server);
  void wait_for_unnamed(Instant now);
  [[nodiscard]] bool has_unnamed() const;
  [[nodiscard]] bool may_have_unnamed_worker(const Server& server) const;
  [[nodiscard]] std::uint32_t counted_twice() const;

  const ReplacementOptions& options_;
  const OfferCatalog& catalog_;
  EffectList& effects_;
  std::map<std::string, Server> servers_;
  std::map<MemberId, Member> members_;
  std::uint32_t servers_seen_ = 0;
  bool has_told_unnamed_ = false;
};

}  // namespace mayfly::cloud_hooks
