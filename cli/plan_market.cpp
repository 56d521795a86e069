#include "cli/plan_market.hpp"

#include <fmt/format.h>
#include <toml++/toml.h>

#include <algorithm>
#include <filesystem>
#include <set>

#include "base/file.hpp"
#include "base/parse.hpp"
#include "base/time.hpp"
#include "base/try_assign.hpp"
#include "engine/config/config.hpp"
#include "engine/config/config_toml.hpp"

namespace mayfly::cli {
namespace {

using planner::LifetimeTable;
using planner::QuantileTable;

// The time that a loss and a join cost the other workers in a measurement (docs/benchmarks.md,
// elasticity-2-cores).
constexpr double kRecoveryS = 0.05;
constexpr double kJoinStopS = 0.02;
constexpr std::size_t kMarketBytesMax = 1 << 22;
constexpr std::size_t kTraceBytesMax = 1 << 26;
constexpr double kMost = 1e9;                     // of any number in the file
constexpr std::uint32_t kBlocksMost = 1'000'000;  // of a trace: at least eleven years

/// A table of the file whose keys are read one after the other; the first fault is kept.
class Reader {
 public:
  Reader(const toml::table& table, std::string file_name)
      : table_(table), file_name_(std::move(file_name)) {}

  std::optional<double> number(const std::string& key, double least, double most = kMost) {
    const toml::node* node = take(key);
    if (node == nullptr) {
      return std::nullopt;
    }
    return number_of(key, *node, least, most);
  }
  std::string text(const std::string& key) {
    const toml::node* node = take(key);
    if (node == nullptr) {
      return {};
    }
    if (!node->is_string()) {
      complain(key, *node, "expects a string");
      return {};
    }
    return node->as_string()->get();
  }
  /// YYYY-MM-DD.
  std::optional<std::string> date(const std::string& key) {
    const toml::node* node = take(key);
    if (node == nullptr) {
      return std::nullopt;
    }
    const auto value = node->value<toml::date>();
    if (!value) {
      complain(key, *node, "expects a date such as 2026-01-31");
      return std::nullopt;
    }
    return fmt::format("{:04d}-{:02d}-{:02d}", value->year, value->month, value->day);
  }
  /// A number, or an array of them.
  std::vector<double> numbers(const std::string& key, double least, double most = kMost) {
    const toml::node* node = take(key);
    std::vector<double> values;
    if (node == nullptr) {
      return values;
    }
    if (!node->is_array()) {
      values.push_back(number_of(key, *node, least, most).value_or(least));
      return values;
    }
    for (const toml::node& one : *node->as_array()) {
      values.push_back(number_of(key, one, least, most).value_or(least));
    }
    if (values.empty()) {
      complain(key, *node, "has no values");
    }
    return values;
  }
  /// [[first, second], ...]
  std::vector<std::pair<double, double>> pairs(const std::string& key, double second_most = kMost) {
    const toml::node* node = take(key);
    std::vector<std::pair<double, double>> values;
    if (node == nullptr) {
      return values;
    }
    const toml::array* list = node->as_array();
    for (std::size_t i = 0; list != nullptr && i < list->size(); ++i) {
      const toml::array* two = list->get(i)->as_array();
      if (two == nullptr || two->size() != 2) {
        list = nullptr;
        break;
      }
      values.emplace_back(number_of(key, *two->get(0), 0, kMost).value_or(0),
                          number_of(key, *two->get(1), 0, second_most).value_or(0));
    }
    if (list == nullptr || values.empty()) {
      complain(key, *node, "expects [[number, number], ...]");
    }
    return values;
  }
  void complain(const std::string& key, const std::string& what) {
    if (const toml::node* node = table_.get(key)) {
      complain(key, *node, what);
    }
  }
  /// The first fault: of a value that was read, or a key that was not read at all.
  [[nodiscard]] Result<void> finish(const std::string& what) {
    for (auto&& [key, node] : table_) {
      const std::string name(key.str());
      if (!problem_ && !known_.contains(name)) {
        complain(
            name, node,
            "is not a key of " + what +
                engine::suggestion(name, std::vector<std::string>(known_.begin(), known_.end())));
      }
    }
    return problem_ ? Result<void>(*problem_) : Result<void>();
  }
  void allow(const std::string& key) { known_.insert(key); }

 private:
  const toml::node* take(const std::string& key) {
    known_.insert(key);
    return table_.get(key);
  }
  std::optional<double> number_of(const std::string& key, const toml::node& node, double least,
                                  double most) {
    const auto value = node.is_number() ? node.value<double>() : std::nullopt;
    if (!value || !(*value >= least && *value <= most)) {
      complain(key, node, fmt::format("expects a number from {} to {}", least, most));
      return std::nullopt;
    }
    return *value;
  }
  void complain(const std::string& key, const toml::node& node, const std::string& what) {
    if (!problem_) {
      problem_ = Error{Errc::kInvalidInput, fmt::format("{} line {}: {} {}", file_name_,
                                                        node.source().begin.line, key, what)};
    }
  }

  const toml::table& table_;
  std::string file_name_;
  std::set<std::string> known_;
  std::optional<Error> problem_;
};

/// Reads lines `ms,add|remove,node`, the format of Bamboo's traces; those with '#' are comments.
Result<std::vector<planner::TraceEvent>> read_trace(const std::string& path) {
  TRY_ASSIGN(const std::string text, read_text_file(path, kTraceBytesMax));
  std::vector<planner::TraceEvent> trace;
  std::size_t line = 0;
  for (const std::string_view row : split(text, '\n')) {
    ++line;
    if (row.empty() || row.starts_with('#')) {
      continue;
    }
    const std::vector<std::string_view> fields = split(row, ',');
    const auto at = fields.size() == 3 ? number_in<double>(fields[0], 0.0, 1e15) : std::nullopt;
    if (!at || (fields[1] != "add" && fields[1] != "remove") ||
        (!trace.empty() && *at / 1000 < trace.back().at_s)) {
      return Error{
          Errc::kInvalidInput,
          fmt::format("{} line {}: expects ms,add|remove,node in the order of time", path, line)};
    }
    trace.push_back({*at / 1000, fields[1] == "add", std::string(fields[2])});
  }
  return trace;
}

Result<planner::ZoneModel> read_zone(const toml::table& table, const std::string& file_name,
                                     const std::string& folder) {
  Reader reader(table, file_name);
  planner::ZoneModel zone;
  zone.name = reader.text("name");
  zone.shocks.per_hour = reader.number("shocks_per_hour", 0, 1000).value_or(0);
  zone.shocks.share = reader.number("share", 0, 1).value_or(0);
  const std::string trace = reader.text("trace");
  const double block_s = reader.number("block_hours", 0.1, 1000).value_or(1) * kSecondsPerHour;
  TRY(reader.finish("[[zone]]"));
  if (!trace.empty()) {
    TRY_ASSIGN(const std::vector<planner::TraceEvent> events,
               read_trace((std::filesystem::path(folder) / trace).string()));
    if (!events.empty() && events.back().at_s - events.front().at_s > kBlocksMost * block_s) {
      return Error{Errc::kInvalidInput,
                   fmt::format("{}: the trace {} has more than {} blocks of {} h: its times are "
                               "milliseconds",
                               file_name, trace, kBlocksMost, block_s / kSecondsPerHour)};
    }
    zone.shocks.blocks = planner::shock_blocks(events, block_s);
    zone.shocks.block_s = block_s;
    if (zone.shocks.blocks.empty()) {
      return Error{Errc::kInvalidInput,
                   fmt::format("{}: the trace {} is shorter than one block", file_name, trace)};
    }
  }
  return zone;
}

/// The lifetime, from mean_lifetime_hours or lost_by_hour: [[hours, share lost by then], ...].
std::optional<LifetimeTable> read_lifetime(Reader& reader) {
  const auto mean_hours = reader.number("mean_lifetime_hours", 1e-3, 1e6);
  const auto lost = reader.pairs("lost_by_hour", 1);
  const double cap_s =
      reader.number("lifetime_cap_hours", 1e-3, 1e6).value_or(planner::kNever / kSecondsPerHour) *
      kSecondsPerHour;
  std::vector<double> ages_s;
  std::vector<double> survival;
  for (const auto& [hours, share] : lost) {
    if (hours <= 0 || (!ages_s.empty() &&
                       (hours * kSecondsPerHour <= ages_s.back() || 1 - share > survival.back()))) {
      reader.complain("lost_by_hour", "expects hours and shares in ascending order");
      return std::nullopt;
    }
    ages_s.push_back(hours * kSecondsPerHour);
    survival.push_back(1 - share);
  }
  if (!ages_s.empty()) {
    return LifetimeTable::of_survival(ages_s, survival, cap_s);
  }
  if (mean_hours) {
    const double mean_s = *mean_hours * kSecondsPerHour;
    return LifetimeTable({{mean_s, 1}}, cap_s);
  }
  return std::nullopt;
}

QuantileTable read_times(Reader& reader, const std::string& key, bool& is_there) {
  std::vector<double> values = reader.numbers(key, 0, 1e6);
  is_there = !values.empty();
  return is_there ? QuantileTable::of_samples(std::move(values)) : QuantileTable();
}

Result<MarketOffer> read_offer(const toml::table& table, const std::string& file_name) {
  Reader reader(table, file_name);
  MarketOffer offer;
  planner::OfferModel& model = offer.model;
  model.offer.machine_type = reader.text("type");
  model.offer.zone = reader.text("zone");
  const std::string market = reader.text("market");
  const auto known = cloud_hooks::market_of(market.empty() ? "spot" : market);
  if (!known) {
    reader.complain("market", "is neither spot nor on_demand");
  }
  model.offer.market = known.value_or(cloud_hooks::Market::kSpot);
  const auto price = reader.number("price", 0);
  offer.has_price = price.has_value();
  model.price_per_hour = price.value_or(0);
  offer.relative = reader.number("speed", 1e-6);
  offer.speed.images_per_s = reader.number("images_per_second", 1e-6).value_or(0);
  offer.speed.threads = static_cast<std::uint32_t>(reader.number("threads", 1, 4096).value_or(1));
  bool has_start_up = false;
  bool has_other = false;
  model.start_up = read_times(reader, "start_up_s", has_start_up);
  model.join = read_times(reader, "join_s", has_other);
  model.refused = reader.number("refused", 0, 0.999).value_or(0);
  model.stock_out = read_times(reader, "stock_out_s", has_other);
  const std::optional<LifetimeTable> lifetime = read_lifetime(reader);
  model.lifetime = lifetime.value_or(LifetimeTable());
  model.hazard_log_sd = reader.number("hazard_sd", 0, 3).value_or(0);
  const std::vector<double> hours = reader.numbers("hazard_by_hour", 0, 1000);
  if (hours.size() == 24) {
    model.by_hour.emplace();
    std::ranges::copy(hours, model.by_hour->begin());
  } else if (!hours.empty()) {
    reader.complain("hazard_by_hour", "expects 24 numbers");
  }
  TRY(reader.finish("[[offer]]"));
  offer.missing = !has_start_up                 ? "start_up_s"
                  : !lifetime && is_spot(model) ? "mean_lifetime_hours or lost_by_hour"
                                                : "";
  return offer;
}

Result<void> read_job(const toml::table& table, MarketFile& file) {
  Reader reader(table, file.name);
  planner::JobModel& job = file.job;
  file.model = reader.text("model");
  job.speed_log_sd = reader.number("speed_sd", 0, 1).value_or(0);
  job.start_up_log_sd = reader.number("start_up_sd", 0, 1).value_or(0);
  job.recovery_s = reader.number("recovery_s", 0, 1e5).value_or(kRecoveryS);
  job.join_stop_s = reader.number("join_stop_s", 0, 1e5).value_or(kJoinStopS);
  job.checkpoint_s = reader.number("checkpoint_s", 0, 1e5).value_or(0);
  job.restore_s = reader.number("restore_s", 0, 1e5).value_or(0);
  job.other_cost_per_hour = reader.number("other_cost_per_hour", 0).value_or(0);
  for (const auto& [workers, speed] : reader.pairs("scaling")) {
    if (workers < 1 || workers > 1e5 || speed <= 0) {
      reader.complain("scaling", "expects [[workers, images per second], ...]");
      break;
    }
    file.scaling.push_back({static_cast<std::uint32_t>(workers), speed});
  }
  return reader.finish("[job]");
}

/// Connects offers with zones by name; a zone without a table of its own has no shocks. A table
/// that fits no offer would change nothing, and its shocks would be missing from the plan.
Result<void> connect_zones(MarketFile& file, const std::string& file_name) {
  for (const planner::ZoneModel& zone : file.zones) {
    const bool has_offer = std::ranges::any_of(file.offers, [&zone](const MarketOffer& offer) {
      return offer.model.offer.zone == zone.name;
    });
    if (!has_offer) {
      return Error{Errc::kInvalidInput,
                   fmt::format("{}: no [[offer]] is in the zone '{}' of a [[zone]]: give an offer "
                               "zone = \"{}\", or remove the [[zone]]",
                               file_name, zone.name, zone.name)};
    }
  }
  for (MarketOffer& offer : file.offers) {
    const auto found =
        std::ranges::find(file.zones, offer.model.offer.zone, &planner::ZoneModel::name);
    offer.model.zone = static_cast<std::size_t>(found - file.zones.begin());
    if (found == file.zones.end()) {
      file.zones.push_back({offer.model.offer.zone, {}});
    }
  }
  return {};
}

template <typename Use>
Result<void> for_each_table(const toml::table& whole, const std::string& key,
                            const std::string& file_name, Use use) {
  const toml::node* node = whole.get(key);
  if (node == nullptr) {
    return {};
  }
  if (!node->is_array_of_tables()) {
    return Error{Errc::kInvalidInput, fmt::format("{} line {}: write [[{}]]", file_name,
                                                  node->source().begin.line, key)};
  }
  for (const toml::node& one : *node->as_array()) {
    TRY(use(*one.as_table()));
  }
  return {};
}

}  // namespace

Result<MarketFile> parse_market(const std::string& text, const std::string& file_name,
                                const std::string& folder) {
  TRY(engine::check_key_parts(text, file_name));
  toml::table table;
  try {
    table = toml::parse(text, file_name);
  } catch (const toml::parse_error& failure) {
    return Error{Errc::kInvalidInput,
                 fmt::format("{} line {}: {}", file_name, failure.source().begin.line,
                             std::string(failure.description()))};
  }
  MarketFile file;
  file.name = file_name;
  Reader reader(table, file_name);
  file.priced = reader.date("priced");
  file.calibrated = reader.date("calibrated");
  for (const char* key : {"offer", "zone", "job"}) {
    reader.allow(key);
  }
  TRY(reader.finish("a market file"));
  TRY(for_each_table(table, "zone", file_name, [&](const toml::table& one) -> Result<void> {
    TRY_ASSIGN(planner::ZoneModel zone, read_zone(one, file_name, folder));
    if (std::ranges::find(file.zones, zone.name, &planner::ZoneModel::name) != file.zones.end()) {
      return Error{Errc::kInvalidInput,
                   fmt::format("{}: zone '{}' is given twice", file_name, zone.name)};
    }
    file.zones.push_back(std::move(zone));
    return {};
  }));
  TRY(for_each_table(table, "offer", file_name, [&](const toml::table& one) -> Result<void> {
    TRY_ASSIGN(MarketOffer offer, read_offer(one, file_name));
    if (std::ranges::any_of(file.offers, [&](const MarketOffer& other) {
          return other.model.offer == offer.model.offer;
        })) {
      return Error{Errc::kInvalidInput, fmt::format("{}: {} is given twice", file_name,
                                                    cloud_hooks::to_string(offer.model.offer))};
    }
    file.offers.push_back(std::move(offer));
    return {};
  }));
  const toml::node* const job = table.get("job");
  if (job != nullptr && !job->is_table()) {
    return Error{Errc::kInvalidInput,
                 fmt::format("{} line {}: write [job]", file_name, job->source().begin.line)};
  }
  const toml::table none;
  TRY(read_job(job != nullptr ? *job->as_table() : none, file));
  TRY(connect_zones(file, file_name));
  return file;
}

Result<MarketFile> read_market_file(const std::string& path) {
  TRY_ASSIGN(const std::string text, read_text_file(path, kMarketBytesMax));
  return parse_market(text, path, std::filesystem::path(path).parent_path().string());
}

}  // namespace mayfly::cli
