#pragma once

// What the records of a run say of its servers: a lane for each request and the server that it
// brought, and money. Pure; one thread at a time.

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
  std::optional<double> cost;             ///< as the records say it
  std::optional<double> price;            ///< of an hour
  std::optional<double> on_demand_price;  ///< of an hour of the same type
};

/// A change of what servers cost, in the currency of the offers.
struct MoneyPoint {
  double t = 0;
  double spent = 0;  ///< or owed at least, until then
  double per_hour = 0;
  std::uint32_t billing = 0;  ///< servers
};

class Servers {
 public:
  /// The job's offers as its settings have them: TYPE@ZONE:MARKET=PRICE, separated by commas; only
  /// a type or a zone, and a price, must be there.
  void prices(const std::string& offers);
  /// `detail`: "2 x OFFER", perhaps with more after a comma.
  void requested(double t, const std::string& detail);
  /// `detail`: "KIND: OFFER: REASON".
  void refused(double t, const std::string& detail);
  void granted(double t, const std::string& server, const std::string& offer);
  void joined(double t, const std::string& server);
  /// A server whose worker is lost may be billed further: a later end with its cost replaces it.
  void ended(double t, const std::string& server, const std::string& end, const std::string& detail,
             std::optional<double> cost);
  void money(const MoneyPoint& point);
  /// The part of the job before ended at `t`, perhaps with its coordinator: nothing costs more
  /// then.
  void part_ended(double t);

  [[nodiscard]] const std::vector<ServerLane>& lanes() const { return lanes_; }
  [[nodiscard]] const std::vector<MoneyPoint>& points() const { return points_; }
  /// The cost until `now`: after the last record, servers go on costing what they cost in an hour.
  /// 0 without records. It is an estimate that the next record may lower.
  [[nodiscard]] double spent(double now) const;
  /// What the same hours would have cost on demand until `now`; nothing if a price is not known.
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
