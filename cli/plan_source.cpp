// A plan's market and job from a market file.

#include <fmt/format.h>

#include <algorithm>
#include <chrono>

#include "base/time.hpp"
#include "base/try_assign.hpp"
#include "cli/plan_market.hpp"
#include "cli/plan_source.hpp"
#include "engine/config/cloud_offers.hpp"

namespace mayfly::cli {
namespace {

constexpr double kPriceAgeDays = 30;  // after which prices are worth a warning
constexpr std::uint32_t kBeyond = 3;  // speeds are used for this many times the measured workers

/// The number of images of the whole job.
Result<double> images_of(const ParsedArguments& arguments, const engine::JobConfig& config) {
  if (config.steps > 0) {
    return static_cast<double>(config.steps) * config.global_batch;
  }
  double images = 0;
  TRY(read_number(arguments, "images", images));
  constexpr std::string_view kProcedural = "procedural:";
  if (images == 0 && config.data.starts_with(kProcedural)) {
    images =
        number_in<double>(std::string_view(config.data).substr(kProcedural.size())).value_or(0);
  }
  if (images <= 0) {
    return Error{Errc::kInvalidInput,
                 "plan needs the length of the job: --steps N, or --images N of the training set "
                 "with --epochs"};
  }
  return images * config.epochs;
}

/// Fills in speeds that the file leaves out, from relative speeds or from another zone.
void complete_speeds(std::vector<MarketOffer>& offers, double of_speed_one) {
  double per_relative = of_speed_one;
  for (const MarketOffer& offer : offers) {
    if (per_relative == 0 && offer.speed.images_per_s > 0 && offer.relative) {
      per_relative = offer.speed.images_per_s / *offer.relative;
    }
  }
  for (MarketOffer& offer : offers) {
    for (const MarketOffer& other : offers) {
      if (offer.speed.images_per_s == 0 && other.speed.images_per_s > 0 &&
          other.model.offer.machine_type == offer.model.offer.machine_type) {
        offer.speed = other.speed;
      }
    }
    const bool is_known = offer.relative.has_value() || of_speed_one > 0;
    if (offer.speed.images_per_s == 0 && is_known) {
      offer.speed.images_per_s = per_relative * offer.relative.value_or(1);
    }
  }
}

/// The offers of the job with their facts from the file; all offers of the file if the job has
/// none.
Result<std::vector<MarketOffer>> offers_of(const engine::JobConfig& config, const MarketFile& file,
                                           std::vector<LeftOut>& left_out) {
  TRY_ASSIGN(const std::vector<cloud_hooks::OfferTerms> terms,
             engine::parse_offers(config.cloud_offers));
  if (terms.empty()) {
    return file.offers;
  }
  std::vector<MarketOffer> offers;
  for (const cloud_hooks::OfferTerms& one : terms) {
    const auto known = std::ranges::find_if(
        file.offers, [&](const MarketOffer& offer) { return offer.model.offer == one.offer; });
    if (known == file.offers.end()) {
      left_out.push_back({cloud_hooks::to_string(one.offer),
                          fmt::format("{} has no calibration for it", file.name)});
      continue;
    }
    offers.push_back(*known);
    if (one.price_per_hour > 0 || !known->has_price) {  // 0: the job has no price
      offers.back().model.price_per_hour = one.price_per_hour;
      offers.back().has_price = true;
    }
    offers.back().model.workers_most = one.workers_most;
    offers.back().relative = one.speed;
  }
  return offers;
}

/// AllReduceJob::exchange_s for a step of `job`, fitted to the measurements of the file. These are
/// measurements of workers on the file's first offer, which need not be an offer of the job; its
/// speed may be inferred from those of the job's offers, which are complete. 0 if the speed is not
/// known.
double exchange_of(const MarketFile& file, const std::vector<MarketOffer>& of_job,
                   double of_speed_one, planner::AllReduceJob job) {
  std::vector<MarketOffer> offers = file.offers;
  offers.insert(offers.end(), of_job.begin(), of_job.end());
  complete_speeds(offers, of_speed_one);
  if (offers.front().speed.images_per_s <= 0) {
    return 0;
  }
  job.machines = {offers.front().speed};
  return planner::fitted_exchange(job, file.scaling);
}

Result<PlanSource> planned_market(const ParsedArguments& arguments, const engine::JobConfig& config,
                                  const MarketFile& file, double images) {
  PlanSource planned;
  TRY_ASSIGN(std::vector<MarketOffer> offers, offers_of(config, file, planned.left_out));
  double of_speed_one = 0;
  TRY(read_number(arguments, "images-per-second", of_speed_one));
  complete_speeds(offers, of_speed_one);
  planner::AllReduceJob speeds;
  speeds.microbatch = config.microbatch;
  speeds.microbatches = config.global_batch / config.microbatch;
  std::vector<std::string> machines;
  for (MarketOffer& offer : offers) {
    const std::string missing = !offer.missing.empty()          ? offer.missing
                                : offer.speed.images_per_s <= 0 ? "images_per_second"
                                : !offer.has_price              ? "price"
                                                                : "";
    if (!missing.empty()) {
      planned.left_out.push_back({cloud_hooks::to_string(offer.model.offer),
                                  fmt::format("{} does not specify its {}", file.name, missing)});
      continue;
    }
    const auto machine = std::ranges::find(machines, offer.model.offer.machine_type);
    offer.model.machine = static_cast<std::size_t>(machine - machines.begin());
    if (machine == machines.end()) {
      machines.push_back(offer.model.offer.machine_type);
      speeds.machines.push_back(offer.speed);
    }
    planned.speeds.push_back(speeds.machines[offer.model.machine].images_per_s);
    planned.market.offers.push_back(offer.model);
  }
  if (planned.market.offers.empty()) {
    const std::string first = planned.left_out.empty()
                                  ? file.name + " has no [[offer]]"
                                  : planned.left_out[0].offer + ": " + planned.left_out[0].reason;
    return Error{Errc::kInvalidInput, "plan can use no offer: " + first};
  }
  planned.market.zones = file.zones;
  planned.market.machines = machines.size();
  speeds.exchange_s = exchange_of(file, offers, of_speed_one, speeds);
  for (const planner::MeasuredSpeed& one : file.scaling) {
    planned.measured_most = std::max(planned.measured_most, kBeyond * one.workers);
  }
  planned.job = file.job;
  planned.job.work = images;
  planned.work_per_step = config.global_batch;
  planned.job.speed = planner::all_reduce_speed(std::move(speeds));
  planned.job.server_lifetime_s = config.cloud_lifetime_hours * kSecondsPerHour;
  planned.job.first_wait_s = config.min_workers_timeout;
  return planned;
}

/// Days from the date until today; none if the date is unknown.
std::optional<double> age_days(const std::optional<std::string>& date) {
  if (!date) {
    return std::nullopt;
  }
  const auto part = [&](std::size_t at, std::size_t count) {
    return number_in<int>(std::string_view(*date).substr(at, count)).value_or(1);
  };
  const std::chrono::sys_days day = std::chrono::year(part(0, 4)) / part(5, 2) / part(8, 2);
  return wall_clock_seconds() / (24 * kSecondsPerHour) -
         static_cast<double>(day.time_since_epoch().count());
}

Result<std::vector<std::string>> warnings_of(const ParsedArguments& arguments,
                                             const MarketFile& file) {
  double most = kPriceAgeDays;
  TRY(read_number(arguments, "price-age", most));
  std::vector<std::string> warnings;
  const std::optional<double> age = age_days(file.priced);
  if (!age) {
    warnings.push_back(file.name +
                       " does not specify the date of its prices (priced = YYYY-MM-DD)");
  } else if (*age > most) {
    warnings.push_back(fmt::format("the prices of {} are {:.0f} days old", file.name, *age));
  }
  return warnings;
}

}  // namespace

Result<PlanSource> source_of_market(const ParsedArguments& arguments,
                                    const engine::JobConfig& config) {
  const std::string path = arguments.option("market");
  TRY_ASSIGN(MarketFile file, read_market_file(path));
  complete_speeds(file.offers, 0);
  if (!file.model.empty() && file.model != config.model) {
    return Error{Errc::kInvalidInput,
                 fmt::format("the speeds of {} are those of {}, and the job trains {}: measure it "
                             "(mayfly bench step --model {})",
                             path, file.model, config.model, config.model)};
  }
  TRY_ASSIGN(const double images, images_of(arguments, config));
  TRY_ASSIGN(PlanSource source, planned_market(arguments, config, file, images));
  TRY_ASSIGN(source.warnings, warnings_of(arguments, file));
  source.job_text = fmt::format("{:.0f} images of {}", images, config.model);
  source.priced = file.priced.value_or("an unknown date");
  source.calibrated = file.calibrated.value_or("an unknown date");
  return source;
}

}  // namespace mayfly::cli
