#include "engine/config/cloud_offers.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <optional>
#include <string_view>

#include "base/gpu_facts.hpp"
#include "base/parse.hpp"
#include "base/try_assign.hpp"
#include "cloud_hooks/core/machine_gpu.hpp"
#include "engine/config/derived_settings.hpp"

namespace mayfly::engine {
namespace {

constexpr std::size_t kOffersMax = 1000;
constexpr std::uint32_t kWorkersMost = 1'000'000;

/// Cuts the last `mark` and the text behind it off `text` and returns that text; nothing if there
/// is no mark.
std::optional<std::string> cut_behind(std::string& text, char mark) {
  const std::size_t at = text.rfind(mark);
  if (at == std::string::npos) {
    return std::nullopt;
  }
  const std::string tail = text.substr(at + 1);
  text.erase(at);
  return tail;
}

Result<double> number(const std::string& text, bool may_be_zero, const std::string& what) {
  const auto parsed = number_in(text, 0.0, 1e9);
  if (!parsed || (*parsed == 0 && !may_be_zero)) {
    return Error{Errc::kInvalidInput,
                 what + " '" + text + "' is not a number " + (may_be_zero ? "from 0" : "above 0")};
  }
  return *parsed;
}

Result<cloud_hooks::OfferTerms> parse_offer(const std::string& whole) {
  cloud_hooks::OfferTerms terms;
  std::string text = whole;
  if (const std::optional<std::string> most = cut_behind(text, '#')) {
    const auto parsed = number_in<std::uint32_t>(*most, 1U, kWorkersMost);
    if (!parsed) {
      return Error{Errc::kInvalidInput, "limit '" + *most + "' is not a number from 1 to 1000000"};
    }
    terms.workers_most = *parsed;
  }
  if (const std::optional<std::string> speed = cut_behind(text, '*')) {
    TRY_ASSIGN(const double parsed, number(*speed, false, "speed"));
    terms.speed = parsed;
  }
  if (const std::optional<std::string> price = cut_behind(text, '=')) {
    TRY_ASSIGN(const double parsed, number(*price, true, "price"));
    terms.price_per_hour = parsed;
  }
  if (const std::optional<std::string> market = cut_behind(text, ':')) {
    const std::optional<cloud_hooks::Market> known = cloud_hooks::market_of(*market);
    if (!known) {
      return Error{Errc::kInvalidInput, "market '" + *market + "' is neither spot nor on_demand"};
    }
    terms.offer.market = *known;
  }
  if (const std::optional<std::string> zone = cut_behind(text, '@')) {
    terms.offer.zone = *zone;
  }
  terms.offer.machine_type = text;
  return terms;
}

/// Whether a name such as "a", "a@zone", "@zone" or "a:spot" fits the offer.
bool names(const std::string& whole, const cloud_hooks::Offer& offer) {
  std::string text = whole;
  const std::optional<std::string> market = cut_behind(text, ':');
  const std::optional<std::string> zone = cut_behind(text, '@');
  return (text.empty() || text == offer.machine_type) && (!zone || *zone == offer.zone) &&
         (!market || *market == cloud_hooks::to_string(offer.market));
}

Error bad_composition(const std::string& text) {
  return {Errc::kInvalidInput, "cloud_composition: " + text};
}

/// Adds the workers of one part, "N x TYPE@ZONE:MARKET", to its offer.
Result<void> add_part(const std::string& part, std::vector<cloud_hooks::OfferTerms>& offers) {
  const std::size_t at = part.find('x');
  const auto count = number_in<std::uint32_t>(trimmed(part.substr(0, at)), 1U, kWorkersMost);
  const std::string name(at == std::string::npos ? "" : trimmed(part.substr(at + 1)));
  if (!count || name.empty()) {
    return bad_composition(fmt::format(
        "'{}': expects N x TYPE@ZONE:MARKET + N x ..., as in 2 x a@zone + 1 x b", trimmed(part)));
  }
  cloud_hooks::OfferTerms* found = nullptr;
  for (cloud_hooks::OfferTerms& terms : offers) {
    if (!names(name, terms.offer)) {
      continue;
    }
    if (found != nullptr) {
      return bad_composition(
          fmt::format("'{}' may be {} or {} of cloud_offers; add :MARKET or @ZONE", name,
                      offer_name(found->offer), offer_name(terms.offer)));
    }
    found = &terms;
  }
  if (found == nullptr) {
    return bad_composition("'" + name + "' is not one of cloud_offers");
  }
  if (found->wanted > 0) {
    return bad_composition("'" + offer_name(found->offer) + "' is given twice");
  }
  if (found->workers_most > 0 && *count > found->workers_most) {
    return bad_composition(fmt::format("{} x {} is above that offer's max_workers {}", *count, name,
                                       found->workers_most));
  }
  found->wanted = *count;
  return {};
}

/// The parts between the '+' of a composition. A machine type may contain a '+' itself, for example
/// before an accelerator; the text behind that one does not begin with a number of workers.
std::vector<std::string> parts_of(const std::string& composition,
                                  const std::vector<cloud_hooks::OfferTerms>& offers) {
  const bool may_be_in_a_type = std::ranges::any_of(offers, [](const auto& terms) {
    return terms.offer.machine_type.find('+') != std::string::npos;
  });
  std::vector<std::string> parts;
  for (const std::string_view part : split(composition, '+')) {
    const bool has_number =
        number_in<std::uint32_t>(trimmed(part.substr(0, part.find('x')))).has_value();
    if (may_be_in_a_type && !has_number && !parts.empty()) {
      parts.back().append("+").append(part);
    } else {
      parts.emplace_back(part);
    }
  }
  return parts;
}

/// The error of a composition that does not fit the other settings; empty if it does.
std::string fault_of_composition(const JobConfig& config, std::uint32_t workers) {
  if (workers != config.workers) {
    return fmt::format("has {} workers, but workers is {}; give both the same number", workers,
                       config.workers);
  }
  if (config.cloud_on_demand_floor > 0) {
    return "determines how many are on demand; leave out on_demand_floor";
  }
  if (config.cloud_replan != "off") {
    return "determines the servers, and replan would choose others; give only one of them";
  }
  return {};
}

}  // namespace

std::string offer_name(const cloud_hooks::Offer& offer) {
  return fmt::format("{}{}{}:{}", offer.machine_type, offer.zone.empty() ? "" : "@", offer.zone,
                     cloud_hooks::to_string(offer.market));
}

Result<std::vector<cloud_hooks::OfferTerms>> worker_offers(const JobConfig& config) {
  TRY_ASSIGN(std::vector<cloud_hooks::OfferTerms> offers, parse_offers(config.cloud_offers));
  if (trimmed(config.cloud_composition).empty()) {
    return offers;
  }
  std::uint32_t workers = 0;
  for (const std::string& part : parts_of(config.cloud_composition, offers)) {
    TRY(add_part(part, offers));
  }
  for (const cloud_hooks::OfferTerms& terms : offers) {
    workers += terms.wanted;
  }
  if (const std::string fault = fault_of_composition(config, workers); !fault.empty()) {
    return bad_composition(fault);
  }
  return offers;
}

Result<std::vector<cloud_hooks::OfferTerms>> parse_offers(const std::string& text,
                                                          const std::string& setting) {
  std::vector<cloud_hooks::OfferTerms> offers;
  if (trimmed(text).empty()) {
    return offers;
  }
  for (const std::string_view part : split(text, ',')) {
    const std::string whole(part);
    Result<cloud_hooks::OfferTerms> one = parse_offer(whole);
    if (!one.ok() || whole.empty()) {
      return Error{Errc::kInvalidInput, setting + ": offer '" + whole + "': " +
                                            (one.ok() ? "expects TYPE@ZONE:MARKET=PRICE*SPEED#MOST"
                                                      : one.error().detail)};
    }
    for (const cloud_hooks::OfferTerms& other : offers) {
      if (other.offer == one.value().offer) {
        return Error{Errc::kInvalidInput, setting + ": '" + whole + "' is given twice"};
      }
    }
    offers.push_back(std::move(one).value());
  }
  if (offers.size() > kOffersMax) {
    return Error{Errc::kInvalidInput, setting + ": more than 1000 offers"};
  }
  return offers;
}

Result<void> check_gpus(const std::vector<cloud_hooks::OfferTerms>& offers, bool must_be_equal) {
  const cloud_hooks::OfferTerms* first = nullptr;  // whose GPU is known
  std::string name_of_first;
  for (const cloud_hooks::OfferTerms& terms : offers) {
    const std::string& type = terms.offer.machine_type;
    const std::optional<cloud_hooks::MachineGpu> gpu = cloud_hooks::gpu_of_machine(type);
    if (!gpu) {
      continue;
    }
    if (gpu->capability < kGpuCapabilityMin) {
      return Error{
          Errc::kInvalidInput,
          gpu->name.empty()
              ? fmt::format(
                    "cloud_offers: {} has no NVIDIA GPU, and workers compute on device cuda", type)
              : fmt::format("cloud_offers: the GPU of {}, {}, has compute capability {}.{}; device "
                            "cuda needs {}.{} or newer",
                            type, gpu->name, gpu->capability / 10, gpu->capability % 10,
                            kGpuCapabilityMin / 10, kGpuCapabilityMin % 10)};
    }
    if (must_be_equal && first != nullptr && name_of_first != gpu->name) {
      return Error{Errc::kInvalidInput,
                   fmt::format("cloud_offers: {} has {} and {} has {}, which compute different "
                               "bits; give offers with one kind of GPU, or let sums be rounded "
                               "(--reduction fp32)",
                               first->offer.machine_type, name_of_first, type, gpu->name)};
    }
    first = &terms;
    name_of_first = gpu->name;
  }
  return {};
}

bool servers_use_cuda(const JobConfig& config) {
  constexpr std::string_view kFlag = "--device";
  const std::string_view args = config.cloud_worker_args;
  const std::size_t flag = args.rfind(kFlag);
  if (flag == std::string_view::npos) {
    return uses_cuda(config.device);
  }
  const std::size_t word = args.find_first_not_of(" =", flag + kFlag.size());
  return word != std::string_view::npos && args.substr(word).starts_with("cuda");
}

bool names_cloud_machines(const JobConfig& config) {
  const std::string& provider = config.cloud_provider;
  return provider == "gce" || provider == "ec2" || provider == "exec";
}

std::vector<std::string> cloud_provider_names() {
  return {"local", "ssh", "exec", "slurm", "gce", "ec2"};
}

}  // namespace mayfly::engine
