#pragma once

// The servers of a run, from its records: a lane for each request and its server, and money. Pure;
// one thread at a time.

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

namespace mayfly::observe {

struct ServerLane {
  std::string server;  ///< the provider's id; empty: the request was refused
  std::string offer;   ///< such as "p3.2xlarge in zone-a (spot)"
  double asked = 0;
  std::optional<double> granted;
  std::optional<double> joined;
  std::optional<double> ended;
  std::string end;  ///< "ended", "lost", "given up", "refused"
  std::string detail;
  std::optional<double> cost;             ///< from the records
  std::optional<double> price;            ///< for an hour
  std::optional<double> on_demand_price;  ///< for an hour of the same type on demand
};

/// A change of the servers' cost, in the currency of the offers.
struct MoneyPoint {
  double t = 0;
  double spent = 0;  ///< or at least owed, until then
  double per_hour = 0;
  std::uint32_t billing = 0;  ///< servers
};

class Servers {
 public:
  /// Reads the job's offers in the form of its settings: TYPE@ZONE:MARKET=PRICE, separated by
  /// commas. A type or a zone, and a price, are required.
  void prices(const std::string& offers);
  /// `detail`: "2 x OFFER", perhaps with more after a comma.
  void requested(double t, const std::string& detail);
  /// `detail`: "KIND: OFFER: REASON".
  void refused(double t, const std::string& detail);
  void granted(double t, const std::string& server, const std::string& offer);
  void joined(double t, const std::string& server);
  /// A server whose worker is lost may still be billed: a later end with its cost replaces this
  /// one.
  void ended(double t, const std::string& server, const std::string& end, const std::string& detail,
             std::optional<double> cost);
  void money(const MoneyPoint& point);
  /// The previous part of the job ended at `t`, perhaps with its coordinator: from then on its
  /// servers cost nothing.
  void part_ended(double t);

  [[nodiscard]] const std::vector<ServerLane>& lanes() const { return lanes_; }
  [[nodiscard]] const std::vector<MoneyPoint>& points() const { return points_; }
  /// The cost until `now`, if the hourly cost of the last record continues; 0 without records. An
  /// estimate that the next record may lower.
  [[nodiscard]] double spent(double now) const;
  /// The cost of the same hours on demand until `now`; nothing if a price is not known.
  [[nodiscard]] std::optional<double> on_demand_cost(double now) const;

 private:
  struct Request {
    double t = 0;
    std::string offer;
    std::uint32_t missing = 0;
  };

  [[nodiscard]] Request* open_request(const std::string& text);
  [[nodiscard]] ServerLane* lane_of(const std::string& server);

  std::map<std::string, double> prices_;     // of offers
  std::map<std::string, double> on_demand_;  // of types
  std::vector<Request> requests_;
  std::vector<ServerLane> lanes_;
  std::map<std::string, std::size_t> by_server_;
  std::vector<MoneyPoint> points_;
};

}  // namespace mayfly::observe
