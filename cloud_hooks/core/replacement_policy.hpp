#pragma once

// Decides which servers a job requests and which it releases. A pure state machine: events with
// their time go in, effects come out. It has no clock, and the same code runs in the product
// (cloud_hooks/provider_driver) and in simulated markets.
//
// Its invariants, whatever the provider answers:
// - The number of workers' servers that are to stay, or that an open request may bring, is never
//   larger than max. A request that was given up may still bring more, which are released at once.
// - The hourly cost of all servers stays within the hourly budget. The job is stopped, and then
//   every server released, early enough that the total budget is not exceeded as long as releasing
//   takes no longer than `release_margin`.
// - With a composition, missing servers are requested of the offers that have fewer than it wants.
//   If these are refused, servers of other offers are requested, and exchanged later.
// - The servers of an offer that are to stay or may still appear are never more than its own limit.
// - A request without a known answer is only repeated unchanged, with the same id, until it is
//   answered or list() shows what became of it.
// - The job never waits for a replacement; it continues with the workers that it has.
// - A server is not released for lack of a worker while a worker that did not name its server may
//   run on it.
//
// It asks its parts (replacement_parts.hpp), each with its own rules and tests, in a fixed order
// after every event.

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "base/time.hpp"
#include "cloud_hooks/core/replacement_events.hpp"
#include "cloud_hooks/core/replacement_options.hpp"

namespace mayfly::cloud_hooks {

struct ReplacementParts;

class ReplacementPolicy {
 public:
  explicit ReplacementPolicy(ReplacementOptions options);
  ~ReplacementPolicy();
  ReplacementPolicy(ReplacementPolicy&&) noexcept;
  ReplacementPolicy& operator=(ReplacementPolicy&&) noexcept;

  /// Processes one event and returns the effects. Times of successive events never decrease.
  [[nodiscard]] std::vector<PolicyEffect> handle(Instant now, const PolicyEvent& event);
  /// The time of the next Tick, if no other event happens before; none = never.
  [[nodiscard]] std::optional<Instant> next_wake() const { return wake_; }
  [[nodiscard]] PolicyStatus status(Instant now) const;
  [[nodiscard]] Composition composition(Instant now) const;
  /// After Ended: no known server is billed any more, no answer is missing, and the servers of
  /// earlier processes are known.
  [[nodiscard]] bool settled() const;

 private:
  void on(Instant now, const policy_event::Begin& event);
  void on(Instant now, const policy_event::Tick& event);
  void on(Instant now, const policy_event::Scaled& event);
  void on(Instant now, const policy_event::WantedBack& event);
  void on(Instant now, const policy_event::Answered& event);
  void on(Instant now, const policy_event::Listed& event);
  void on(Instant now, const policy_event::ReleaseAnswered& event);
  void on(Instant now, const policy_event::Joined& event);
  void on(Instant now, const policy_event::Irreplaceable& event);
  void on(Instant now, const policy_event::Leaving& event);
  void on(Instant now, const policy_event::Gone& event);
  void on(Instant now, const policy_event::Measured& event);
  void on(Instant now, const policy_event::Closing& event);
  void on(Instant now, const policy_event::Ended& event);
  void plan(Instant now);
  void watch_budget(Instant now);
  void give_back(Instant now, std::uint32_t count, const std::string& why);
  [[nodiscard]] bool may_request() const;
  [[nodiscard]] bool may_exchange() const;
  [[nodiscard]] std::optional<Instant> find_next_wake(Instant now) const;

  std::unique_ptr<ReplacementParts> parts_;
  bool is_closing_ = false;
  bool ended_ = false;
  std::optional<Instant> wake_;
};

}  // namespace mayfly::cloud_hooks
