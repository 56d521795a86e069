#pragma once

// The servers of a path that are granted and not yet gone: the next event of each, their number by
// offer, and their bill. Offers are those of the candidate, times are seconds since the job's
// begin. Pure; one thread.

#include <cstdint>
#include <optional>
#include <vector>

#include "planner/simulation/candidate_offers.hpp"
#include "planner/simulation/draws.hpp"
#include "planner/simulation/earliest.hpp"
#include "planner/simulation/path_bill.hpp"

namespace mayfly::planner {

enum class ServerEvent {
  kJoins,  ///< its worker becomes a member
  kTaken,  ///< by the provider
  // The policy gives the server up, because
  kLifetimeEnds,
  kNotStarted,  ///< it does not run in time
  kNotJoined,   ///< it runs, but its worker has not joined in time
};

/// When the policy gives a server up, and why.
struct Leaving {
  double at_s = kNever;
  ServerEvent why = ServerEvent::kLifetimeEnds;
};

struct PathServer {
  std::size_t offer = 0;
  double asked_s = 0;
  ServerFate fate;
  Leaving leaving;
  std::uint64_t order = 0;  ///< younger servers have higher ones
  bool works = false;       ///< its worker has joined
  bool gives_way = false;   ///< it leaves as soon as its successor works, and does not count

  /// When its next event happens, and which one that is; kNever if there is none.
  [[nodiscard]] double next_s() const;
  [[nodiscard]] ServerEvent next() const;
};

class PathServers {
 public:
  /// `offers` must outlive it.
  PathServers(const CandidateOffers& offers, const Billing& billing);

  /// Removes all servers and clears the bill.
  void clear();

  /// Adds a server that is requested and granted now, at the next place, and bills it.
  void add(std::size_t offer, const ServerFate& fate, const Leaving& leaving, double now_s);
  /// The worker of the server at that place has joined.
  void start_work(std::size_t place);
  void set_gives_way(std::size_t place, bool gives_way);
  /// The server is gone; the last one takes its place.
  void remove(std::size_t place, double now_s);

  [[nodiscard]] std::size_t size() const { return servers_.size(); }
  [[nodiscard]] const PathServer& operator[](std::size_t place) const { return servers_[place]; }
  /// The place of the server with that ServerFate::serial, which exists.
  [[nodiscard]] std::size_t place_of(std::uint64_t serial) const;
  /// When the next event of a server happens; kNever if there is none.
  [[nodiscard]] double next_s() const { return events_.first_s(); }
  /// The place of the server with that event. Needs an event.
  [[nodiscard]] std::size_t next() const { return events_.first().value(); }

  // Servers that are present: all except one that gives way.
  [[nodiscard]] std::uint32_t present() const { return present_; }
  [[nodiscard]] std::uint32_t present(std::size_t offer) const { return present_of_[offer]; }
  [[nodiscard]] std::uint32_t on_demand_present() const { return on_demand_present_; }

  [[nodiscard]] std::uint32_t working(std::size_t offer) const;

  [[nodiscard]] const PathBill& bill() const { return bill_; }

 private:
  /// Counts a server of the offer that becomes present, or no longer is.
  void count(std::size_t offer, bool is_present);

  const CandidateOffers& offers_;
  std::vector<PathServer> servers_;
  Earliest events_;  // by place
  PathBill bill_;    // by place
  std::uint64_t granted_ = 0;
  std::uint32_t present_ = 0;
  std::uint32_t on_demand_present_ = 0;
  std::vector<std::uint32_t> present_of_;  // by offer
};

}  // namespace mayfly::planner
