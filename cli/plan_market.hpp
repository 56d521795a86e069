#pragma once

// The market file of `mayfly plan`: facts about offers besides their prices, about zones and about
// the job, as TOML (docs/planner.md). Any thread.

#include <optional>
#include <string>
#include <vector>

#include "base/result.hpp"
#include "cloud_hooks/core/offer_catalog.hpp"
#include "planner/simulation/all_reduce_speed.hpp"
#include "planner/simulation/market.hpp"

namespace mayfly::cli {

/// One offer of the file. `missing` names a value that a plan needs and the file lacks.
struct MarketOffer {
  planner::OfferModel model;
  planner::WorkerSpeed speed;      ///< images_per_s is 0 if the file does not have it
  std::optional<double> relative;  ///< speed relative to other offers, as in [[cloud.offer]]
  bool has_price = false;
  std::string missing;  ///< "images_per_second", "a lifetime", ...; empty = nothing
};

struct MarketFile {
  std::string name;                       ///< for messages
  std::optional<std::string> priced;      ///< date of the prices, YYYY-MM-DD
  std::optional<std::string> calibrated;  ///< date of everything else
  std::string model;                      ///< network that the speeds were measured with
  std::vector<MarketOffer> offers;
  std::vector<planner::ZoneModel> zones;
  std::vector<planner::MeasuredSpeed> scaling;  ///< of the first offer's machine
  planner::JobModel job;  ///< without work and speed: times, costs, uncertainties
};

/// Reads the file, and the traces that it names, by paths relative to it. kInvalidInput with file
/// and line for an unknown key, a wrong type or a number out of range.
[[nodiscard]] Result<MarketFile> read_market_file(const std::string& path);

/// The part of the file that parses a text; `folder` is where its traces are.
[[nodiscard]] Result<MarketFile> parse_market(const std::string& text, const std::string& file_name,
                                              const std::string& folder);

}  // namespace mayfly::cli
