#include "engine/config/cloud_offers.hpp"

#include <charconv>
#include <optional>

namespace mayfly::engine {
namespace {

constexpr std::size_t kOffersMax = 1000;

/// Cuts what follows the last `mark` off `text`; none if there is no mark.
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
  double parsed = 0;
  const auto [end, failure] = std::from_chars(text.data(), text.data() + text.size(), parsed);
  const bool whole = failure == std::errc{} && end == text.data() + text.size();
  if (!whole || !(parsed <= 1e9) || !(may_be_zero ? parsed >= 0 : parsed > 0)) {
    return Error{Errc::kInvalidInput,
                 what + " '" + text + "' is not a number " + (may_be_zero ? "from 0" : "above 0")};
  }
  return parsed;
}

std::string trimmed(const std::string& text) {
  const std::size_t first = text.find_first_not_of(' ');
  const std::size_t last = text.find_last_not_of(' ');
  return first == std::string::npos ? "" : text.substr(first, last + 1 - first);
}

Result<cloud_hooks::OfferTerms> parse_offer(const std::string& whole) {
  cloud_hooks::OfferTerms terms;
  std::string text = whole;
  if (const std::optional<std::string> speed = cut_behind(text, '*')) {
    const Result<double> parsed = number(*speed, false, "speed");
    if (!parsed.ok()) {
      return parsed.error();
    }
    terms.speed = parsed.value();
  }
  if (const std::optional<std::string> price = cut_behind(text, '=')) {
    const Result<double> parsed = number(*price, true, "price");
    if (!parsed.ok()) {
      return parsed.error();
    }
    terms.price_per_hour = parsed.value();
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

}  // namespace

Result<std::vector<cloud_hooks::OfferTerms>> parse_offers(const std::string& text) {
  std::vector<cloud_hooks::OfferTerms> offers;
  if (trimmed(text).empty()) {
    return offers;
  }
  for (std::size_t begin = 0; begin <= text.size();) {
    const std::size_t end = std::min(text.find(',', begin), text.size());
    const std::string whole = trimmed(text.substr(begin, end - begin));
    Result<cloud_hooks::OfferTerms> one = parse_offer(whole);
    if (!one.ok() || whole.empty()) {
      return Error{Errc::kInvalidInput,
                   "cloud_offers: offer '" + whole + "': " +
                       (one.ok() ? "expects TYPE@ZONE:MARKET=PRICE*SPEED" : one.error().detail)};
    }
    for (const cloud_hooks::OfferTerms& other : offers) {
      if (other.offer == one.value().offer) {
        return Error{Errc::kInvalidInput, "cloud_offers: '" + whole + "' is there twice"};
      }
    }
    offers.push_back(std::move(one).value());
    begin = end + 1;
  }
  if (offers.size() > kOffersMax) {
    return Error{Errc::kInvalidInput, "cloud_offers: more than 1000 offers"};
  }
  return offers;
}

std::vector<std::string> cloud_provider_names() {
  return {"local", "ssh", "exec", "slurm", "gce", "ec2"};
}

}  // namespace mayfly::engine
