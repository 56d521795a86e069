#include "engine/compare/run_result.hpp"

#include <fmt/format.h>

#include <boost/json.hpp>
#include <charconv>
#include <functional>
#include <string_view>

#include "base/file.hpp"
#include "base/text.hpp"
#include "engine/run/checkpoint_store.hpp"
#include "engine/run/json_text.hpp"
#include "engine/run/run_directory.hpp"
#include "nn/model.hpp"

namespace mayfly::engine {
namespace {

namespace json = boost::json;

constexpr std::size_t kRunFileBytesMax = std::size_t{1} << 30;
constexpr std::size_t kLossPoints = 60;

double real(const json::object& object, const char* name) {
  return object.at(name).to_number<double>();
}
std::uint64_t whole(const json::object& object, const char* name) {
  return object.at(name).to_number<std::uint64_t>();
}
std::string text(const json::object& object, const char* name) {
  return std::string(object.at(name).as_string());
}

/// What Boost.JSON throws about a text that is not what we wrote ends here.
Result<void> use_json(const std::string& what, std::string_view line,
                      const std::function<void(const json::object&)>& use) {
  try {
    use(json::parse(json::string_view(line.data(), line.size())).as_object());
    return {};
  } catch (const std::exception& failure) {
    return Error{Errc::kCorrupt, what + ": " + reason_of(failure)};
  }
}

Result<void> for_each_line(const std::string& path,
                           const std::function<void(const json::object&)>& use) {
  const Result<std::string> content = read_text_file(path, kRunFileBytesMax);
  if (!content.ok()) {
    return content.error();
  }
  const std::string_view all = content.value();
  std::size_t begin = 0;
  for (std::size_t end = 0; (end = all.find('\n', begin)) != std::string_view::npos;
       begin = end + 1) {
    TRY(use_json(path, all.substr(begin, end - begin), use));
  }
  return {};
}

std::uint64_t number_in(const ShardAccount& account, const std::string& name) {
  const auto place = account.numbers.find(name);
  return place == account.numbers.end() ? 0 : place->second;
}

void add_account(RunResult& result, const ShardAccount& account) {
  for (const auto& [age, count] : account.staleness) {
    result.staleness[age] += count;
  }
  result.bytes +=
      static_cast<double>(number_in(account, "bytes in") + number_in(account, "bytes out"));
  result.bytes_counted = true;
  result.reissued += number_in(account, "leased again");
  result.late += number_in(account, "late");
  // Every shard counts the same slices.
  result.at_once = std::max(result.at_once, number_in(account, "at once"));
}

/// The events of a run; times are seconds since its first view.
class EventReader {
 public:
  explicit EventReader(RunResult& result) : result_(result) {}

  void read(const json::object& event) {
    const std::string kind = text(event, "kind");
    const double time = real(event, "time");
    if (kind == "view" && began_ == 0) {
      began_ = time;
    } else if (kind == "evaluation") {
      result_.accuracy.emplace_back(time - began_, real(event, "test_top1"));
    } else if (kind == "straggler") {
      result_.stragglers.push_back(text(event, "detail"));
    } else if (kind == "recovery") {
      const json::object& recovery = event.at("recovery").as_object();
      const std::string cause = text(recovery, "cause");
      if (cause == "lost" || cause == "group_failed") {
        result_.recoveries_ms.push_back(real(recovery, "step_ms"));
      }
    } else if (kind == "shard_done") {
      const Result<ShardAccount> account = parse_shard_account(text(event, "detail"));
      if (account.ok()) {
        add_account(result_, account.value());
      }
    }
  }

 private:
  RunResult& result_;
  double began_ = 0;
};

/// The steps of a run: the loss over time, in a few means, and how many there were with how many
/// members.
struct StepReader {
  std::vector<std::pair<double, double>> losses;  // seconds, loss
  std::map<std::uint64_t, std::uint64_t> steps_by_members;
  double seconds = 0;

  void read(const json::object& metric) {
    const double rate = real(metric, "images_per_second");
    seconds += rate > 0 ? real(metric, "samples") / rate : 0;
    if (metric.at("loss").is_number()) {  // null: it was not finite
      losses.emplace_back(seconds, real(metric, "loss"));
    }
    ++steps_by_members[whole(metric, "members")];
  }

  [[nodiscard]] std::vector<std::pair<double, double>> curve() const {
    std::vector<std::pair<double, double>> points;
    const std::size_t count = std::min(kLossPoints, losses.size());
    for (std::size_t i = 0; i < count; ++i) {
      const std::size_t first = losses.size() * i / count;
      const std::size_t last = losses.size() * (i + 1) / count;
      double sum = 0;
      for (std::size_t k = first; k < last; ++k) {
        sum += losses[k].second;
      }
      points.emplace_back(losses[last - 1].first, sum / static_cast<double>(last - first));
    }
    return points;
  }
};

/// Numbers that a job of all-reduces exchanges in a step: what its last checkpoint's network has. 0
/// without one.
double numbers_per_step(const std::string& run_dir) {
  const Result<LoadedCheckpoint> checkpoint = load_checkpoint(run_dir);
  if (!checkpoint.ok()) {
    return 0;
  }
  const nn::CheckpointInfo& info = checkpoint.value().info;
  const Result<nn::Model> model = nn::make_model(info.model, info.classes);
  return model.ok()
             ? static_cast<double>(model.value().parameter_count + model.value().statistic_count)
             : 0;
}

Result<void> read_summary(const std::string& run_dir, RunResult& result) {
  const std::string path = run_dir + "/summary.json";
  const Result<std::string> summary = read_text_file(path, kRunFileBytesMax);
  if (!summary.ok()) {
    return summary.error();
  }
  return use_json(path, summary.value(), [&](const json::object& s) {
    result.outcome = text(s, "outcome");
    result.detail = text(s, "detail");
    result.steps = whole(s, "steps");
    result.samples = whole(s, "samples");
    result.train_seconds = real(s, "train_seconds");
    result.images_per_second = real(s, "images_per_second");
    result.top1 = s.contains("test_top1") ? real(s, "test_top1") : -1;
  });
}

std::string points_json(const std::vector<std::pair<double, double>>& points) {
  std::vector<std::string> pairs;
  for (const auto& [x, y] : points) {
    pairs.push_back(json_array({fmt::format("{:.6g}", x), fmt::format("{:.6g}", y)}));
  }
  return json_array(pairs);
}

std::vector<std::pair<double, double>> points_of(const json::value& array) {
  std::vector<std::pair<double, double>> points;
  for (const json::value& pair : array.as_array()) {
    points.emplace_back(pair.as_array().at(0).to_number<double>(),
                        pair.as_array().at(1).to_number<double>());
  }
  return points;
}

/// "12 leased again" is 12 by its words.
bool take_number(std::string_view part, ShardAccount& account) {
  std::uint64_t number = 0;
  const auto [end, failure] = std::from_chars(part.data(), part.data() + part.size(), number);
  const auto digits = static_cast<std::size_t>(end - part.data());
  if (failure != std::errc{} || digits + 1 >= part.size() || part[digits] != ' ') {
    return false;
  }
  account.numbers[std::string(part.substr(digits + 1))] = number;
  return true;
}

/// "0:12 3:1"
bool take_staleness(std::string_view part, ShardAccount& account) {
  while (!part.empty() && part != "none") {
    std::uint64_t age = 0;
    std::uint64_t count = 0;
    const char* const last = part.data() + part.size();
    const auto [colon, bad_age] = std::from_chars(part.data(), last, age);
    if (bad_age != std::errc{} || colon == last || *colon != ':') {
      return false;
    }
    const auto [end, bad_count] = std::from_chars(colon + 1, last, count);
    if (bad_count != std::errc{}) {
      return false;
    }
    account.staleness[age] += count;
    part.remove_prefix(std::min(part.size(), static_cast<std::size_t>(end - part.data()) + 1));
  }
  return true;
}

}  // namespace

Result<ShardAccount> parse_shard_account(const std::string& account_text) {
  constexpr std::string_view kStaleness = "staleness ";
  const Error bad{Errc::kCorrupt, "not the account of a shard: " + account_text};
  ShardAccount account;
  const std::size_t colon = account_text.find(": ");
  if (!account_text.starts_with("shard ") || colon == std::string::npos) {
    return bad;
  }
  for (std::string_view rest = std::string_view(account_text).substr(colon + 2); !rest.empty();) {
    const std::size_t end = std::min(rest.find(", "), rest.size());
    const std::string_view part = rest.substr(0, end);
    const bool fine = part.starts_with(kStaleness)
                          ? take_staleness(part.substr(kStaleness.size()), account)
                          : take_number(part, account);
    if (!fine) {
      return bad;
    }
    rest.remove_prefix(std::min(end + 2, rest.size()));
  }
  return account;
}

double all_reduce_bytes(double numbers, std::uint64_t members) {
  return members < 2 ? 0 : 2 * sizeof(float) * numbers * static_cast<double>(members - 1);
}

Result<RunResult> read_run_result(const std::string& run_dir) {
  RunResult result;
  TRY(read_summary(run_dir, result));
  EventReader events(result);
  StepReader steps;
  for (const Result<void>& read :
       {for_each_line(run_dir + "/events.jsonl",
                      [&](const json::object& event) { events.read(event); }),
        for_each_line(run_dir + "/metrics.jsonl",
                      [&](const json::object& metric) { steps.read(metric); })}) {
    if (!read.ok()) {
      return read.error();
    }
  }
  result.loss = steps.curve();
  if (!result.bytes_counted) {
    const double numbers = numbers_per_step(run_dir);
    for (const auto& [members, count] : steps.steps_by_members) {
      result.bytes += static_cast<double>(count) * all_reduce_bytes(numbers, members);
    }
  }
  return result;
}

std::string to_json(const RunResult& r) {
  JsonObject staleness;
  for (const auto& [age, count] : r.staleness) {
    staleness.add(std::to_string(age), json_number(count));
  }
  std::vector<std::string> recoveries;
  for (const double ms : r.recoveries_ms) {
    recoveries.push_back(fmt::format("{:.3f}", ms));
  }
  std::vector<std::string> stragglers;
  for (const std::string& what : r.stragglers) {
    stragglers.push_back(json_string(what));
  }
  return JsonObject()
      .add("id", json_string(r.id))
      .add("variant", json_string(r.variant))
      .add("condition", json_string(r.condition))
      .add("seed", json_number(r.seed))
      .add("outcome", json_string(r.outcome))
      .add("detail", json_string(r.detail))
      .add("steps", json_number(r.steps))
      .add("samples", json_number(r.samples))
      .add("train_seconds", json_number(r.train_seconds))
      .add("images_per_second", json_number(r.images_per_second))
      .add("test_top1", json_number(r.top1))
      .add("accuracy", points_json(r.accuracy))
      .add("loss", points_json(r.loss))
      .add("staleness", staleness.text())
      .add("bytes", json_number(r.bytes))
      .add("bytes_counted", r.bytes_counted ? "true" : "false")
      .add("recoveries_ms", json_array(recoveries))
      .add("leased_again", json_number(r.reissued))
      .add("late", json_number(r.late))
      .add("at_once", json_number(r.at_once))
      .add("stragglers", json_array(stragglers))
      .text();
}

Result<RunResult> parse_run_result(const std::string& line) {
  RunResult r;
  const Result<void> read = use_json("a result", line, [&r](const json::object& o) {
    r.id = text(o, "id");
    r.variant = text(o, "variant");
    r.condition = text(o, "condition");
    r.seed = whole(o, "seed");
    r.outcome = text(o, "outcome");
    r.detail = text(o, "detail");
    r.steps = whole(o, "steps");
    r.samples = whole(o, "samples");
    r.train_seconds = real(o, "train_seconds");
    r.images_per_second = real(o, "images_per_second");
    r.top1 = real(o, "test_top1");
    r.accuracy = points_of(o.at("accuracy"));
    r.loss = points_of(o.at("loss"));
    for (const auto& entry : o.at("staleness").as_object()) {
      r.staleness[std::stoull(std::string(entry.key()))] = entry.value().to_number<std::uint64_t>();
    }
    r.bytes = real(o, "bytes");
    r.bytes_counted = o.at("bytes_counted").as_bool();
    for (const json::value& ms : o.at("recoveries_ms").as_array()) {
      r.recoveries_ms.push_back(ms.to_number<double>());
    }
    r.reissued = whole(o, "leased_again");
    r.late = whole(o, "late");
    r.at_once = whole(o, "at_once");
    for (const json::value& what : o.at("stragglers").as_array()) {
      r.stragglers.emplace_back(what.as_string());
    }
  });
  return read.ok() ? Result<RunResult>(std::move(r)) : Result<RunResult>(read.error());
}

}  // namespace mayfly::engine
