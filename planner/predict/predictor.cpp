#include "planner/predict/predictor.hpp"

#include <fmt/format.h>

#include <boost/json.hpp>
#include <cmath>

#include "base/text.hpp"
#include "planner/predict/models.hpp"

namespace mayfly::planner {
namespace {

namespace json = boost::json;

const Quantity* quantity_of(const std::string& name) {
  for (const Quantity& quantity : all_quantities()) {
    if (name == quantity.name) {
      return &quantity;
    }
  }
  return nullptr;
}

/// The object on one line, its numbers as short as they can be to read back exactly.
std::string text_of(const json::object& object) {
  std::string text = "{";
  for (const auto& field : object) {
    text += (text.size() > 1 ? ", " : "") + json::serialize(json::value(field.key())) + ": ";
    if (field.value().is_double()) {
      const double number = field.value().get_double();
      text += std::isfinite(number) ? shortest_text(number) : "null";
    } else {
      text += json::serialize(field.value());
    }
  }
  return text + "}";
}

Result<json::object> predict(const FittedModels& models, Query& query) {
  const std::string name = query.needed_text("quantity");
  const Quantity* quantity = quantity_of(name);
  if (quantity == nullptr) {
    return query.problem().value_or(
        Error{Errc::kInvalidInput, fmt::format("quantity '{}' is not one of {}", name,
                                               fmt::join(Predictor::quantities(), ", "))});
  }
  const auto percentile = query.number("percentile", 0.1, 99.9);
  const auto at_most = query.number("at_most", -1e15, 1e15);
  const Result<Forecast> forecast = quantity->predict(models, query);
  if (query.problem()) {
    return *query.problem();
  }
  if (!forecast.ok()) {
    return forecast.error();
  }
  const Estimate estimate = forecast.value().summary();
  json::object answer = {
      {"quantity", name},           {"median", estimate.median},     {"low", estimate.low},
      {"high", estimate.high},      {"mean", forecast.value().mean}, {"unit", estimate.unit},
      {"because", estimate.because}};
  if (forecast.value().standard_error > 0) {
    answer["standard_error"] = forecast.value().standard_error;
  }
  if (percentile) {
    answer["at_percentile"] = forecast.value().quantile(*percentile / 100);
  }
  if (at_most) {
    answer["probability"] = forecast.value().probability_at_most(*at_most);
  }
  if (const std::vector<std::string> unused = query.unused(); !unused.empty()) {
    answer["ignored"] = json::value_from(unused);
  }
  return answer;
}

}  // namespace

Predictor::Predictor(const Calibration& calibration)
    : models_(std::make_unique<const FittedModels>(calibration)) {}

Predictor::~Predictor() = default;

std::vector<std::string> Predictor::quantities() {
  std::vector<std::string> names;
  for (const Quantity& quantity : all_quantities()) {
    names.emplace_back(quantity.name);
  }
  return names;
}

std::string Predictor::answer(std::string_view line) const {
  json::error_code failure;
  const json::value parsed = json::parse({line.data(), line.size()}, failure);
  json::object answer;
  if (failure || !parsed.is_object()) {
    answer["error"] = "the query is not a JSON object";
    return text_of(answer);
  }
  Query query(parsed.get_object());
  const json::value* id = parsed.get_object().if_contains("id");
  (void)query.has("id");
  Result<json::object> predicted = predict(*models_, query);
  if (predicted.ok()) {
    answer = std::move(predicted).value();
  } else {
    answer["error"] = predicted.error().detail;
  }
  if (id != nullptr) {
    answer["id"] = *id;
  }
  return text_of(answer);
}

}  // namespace mayfly::planner
