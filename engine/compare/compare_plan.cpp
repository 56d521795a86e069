#include "engine/compare/compare_plan.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <sstream>

#include "base/try_assign.hpp"
#include "engine/config/derived_settings.hpp"
#include "engine/config/ps_settings.hpp"

namespace mayfly::engine {
namespace {

Error wrong(const std::string& text) {
  return {Errc::kInvalidInput, text};
}

std::vector<std::string> words_of(const std::string& text) {
  std::istringstream stream(text);
  std::vector<std::string> words;
  for (std::string word; stream >> word;) {
    words.push_back(word);
  }
  return words;
}

/// A text that can be a file name, and differs for different names.
std::string file_name_of(const std::string& name) {
  std::string file;
  for (const char c : name) {
    file += c == ':' ? '-' : c == ',' ? '_' : c == '%' ? 'p' : c;
  }
  return file;
}

bool is_given(const std::vector<SettingValue>& settings, const std::string& name) {
  return std::any_of(settings.begin(), settings.end(),
                     [&name](const SettingValue& setting) { return setting.first == name; });
}

/// The defaults, where given settings replace those of the same name.
std::vector<SettingValue> common_settings(const CompareOptions& options) {
  std::vector<SettingValue> settings;
  for (const SettingValue& setting : compare_defaults(options.quick)) {
    if (!is_given(options.settings, setting.first)) {
      settings.push_back(setting);
    }
  }
  settings.insert(settings.end(), options.settings.begin(), options.settings.end());
  return settings;
}

/// The configuration with these settings; kInvalidInput if it is not valid.
Result<JobConfig> config_of(const std::vector<SettingValue>& settings) {
  JobConfig config;
  for (const auto& [name, text] : settings) {
    TRY(apply_setting(config, name, text, "flag"));
  }
  TRY(validate(config));
  return config;
}

/// A worker dies after a third of the job, and another one joins a tenth of the job later.
std::string usual_chaos(const JobConfig& config) {
  const std::uint64_t third = std::max<std::uint64_t>(1, config.steps / 3);
  return fmt::format("kill@step={}:worker={},join@step={}", third, config.workers - 1,
                     third + std::max<std::uint64_t>(1, config.steps / 10));
}

/// A worker is slow in every other eighth of the job, from its first sixteenth on: a straggler on a
/// shared machine is slow only for some time.
std::string usual_inject(const JobConfig& config) {
  constexpr std::uint64_t kParts = 16;
  std::string rules;
  for (std::uint64_t part = 1; part < kParts; part += 4) {
    const std::uint64_t from = config.steps * part / kParts + 1;
    const std::uint64_t to = std::max(from, config.steps * (part + 2) / kParts);
    rules += fmt::format("{}slow=3x,worker=1,from=step{},to=step{}", rules.empty() ? "" : "; ",
                         from, to);
  }
  return rules;
}

/// Removes a setting that only some conditions have, and returns its text.
std::string take_setting(std::vector<SettingValue>& settings, const std::string& name) {
  std::string text;
  std::erase_if(settings, [&](const SettingValue& setting) {
    text = setting.first == name ? setting.second : text;
    return setting.first == name;
  });
  return text;
}

/// kInvalidInput if the cell's configuration is not valid.
Result<void> complete_cell(CompareCell& cell) {
  const Result<JobConfig> config = config_of(cell.settings);
  if (!config.ok()) {
    return wrong(
        fmt::format("variant {}, {}: {}", cell.variant, cell.condition, config.error().detail));
  }
  const JobConfig& job = config.value();
  cell.size.microbatch = job.microbatch;
  cell.size.slice = uses_parameter_servers(job) ? job.global_batch / slices_per_step(job) : 0;
  TRY_ASSIGN(const Wire wire, parse_wire(job.wire, job.reduction));
  cell.size.gradient_bytes = wire == Wire::kInt32 || wire == Wire::kFp32 ? 4 : 2;
  return {};
}

struct Parts {
  std::vector<CompareVariant> variants;
  std::vector<CompareCondition> conditions;
};

Result<Parts> parse_parts(const CompareOptions& options) {
  Parts parts;
  for (const std::string& word : words_of(options.variants)) {
    TRY_ASSIGN(CompareVariant variant, parse_compare_variant(word));
    parts.variants.push_back(std::move(variant));
  }
  for (const std::string& word : words_of(options.conditions)) {
    TRY_ASSIGN(CompareCondition condition, parse_compare_condition(word));
    parts.conditions.push_back(std::move(condition));
  }
  if (parts.variants.empty() || parts.conditions.empty() || options.seeds == 0) {
    return wrong("a comparison needs a variant, a condition and a seed at least");
  }
  return parts;
}

}  // namespace

/// The workers share the cores of one machine with each other and with their servers, so a living
/// worker may be silent for a while: the limit is two seconds. TensorBoard's files would only make
/// the many run directories larger.
std::vector<SettingValue> compare_defaults(bool quick) {
  std::vector<SettingValue> settings = {{"model", "resnet20"},
                                        {"workers", "4"},
                                        {"threads", "1"},
                                        {"silence_max_ms", "2000"},
                                        {"tensorboard", "false"}};
  const std::vector<SettingValue> size =
      quick ? std::vector<SettingValue>{{"data", "procedural:1024"},
                                        {"steps", "64"},
                                        {"global_batch", "64"},
                                        {"microbatch", "4"},
                                        {"lr", "0.05"},
                                        {"eval_every_epochs", "1"}}
            : std::vector<SettingValue>{{"data", "procedural:8192"},
                                        {"steps", "320"},
                                        {"global_batch", "128"},
                                        {"microbatch", "8"},
                                        {"eval_every_epochs", "0.5"}};
  settings.insert(settings.end(), size.begin(), size.end());
  return settings;
}

Result<CompareVariant> parse_compare_variant(const std::string& text) {
  CompareVariant variant{text, {}};
  const std::size_t plus = text.find('+');
  const std::string phases = text.substr(0, plus);
  if (text == "allreduce") {
    return variant;
  }
  variant.settings = {{"phases", phases}};
  if (plus != std::string::npos) {
    variant.settings.emplace_back("straggler", text.substr(plus + 1));
  }
  std::vector<SettingValue> settings = {{"workers", "4"}, {"microbatch", "1"}};
  settings.insert(settings.end(), variant.settings.begin(), variant.settings.end());
  const Result<JobConfig> config = config_of(settings);
  const bool is_known = config.ok() && phases != "";
  return is_known ? Result<CompareVariant>(std::move(variant))
                  : Result<CompareVariant>(wrong(fmt::format(
                        "variant '{}' is neither allreduce nor phases such as bsp, ssp:2 or "
                        "bsp:25%,asp+elastic{}",
                        text, config.ok() ? "" : ": " + config.error().detail)));
}

Result<CompareCondition> parse_compare_condition(const std::string& text) {
  for (const CompareCondition& known :
       {CompareCondition{"clean", false, false}, CompareCondition{"straggler", true, false},
        CompareCondition{"kill", false, true}, CompareCondition{"straggler+kill", true, true}}) {
    if (known.name == text) {
      return known;
    }
  }
  return wrong(fmt::format("condition '{}' is not clean, straggler, kill or straggler+kill", text));
}

std::string ComparePlan::fingerprint() const {
  return to_toml(base);
}

Result<ComparePlan> make_compare_plan(const CompareOptions& options) {
  TRY_ASSIGN(Parts parts, parse_parts(options));
  std::vector<SettingValue> common = common_settings(options);
  TRY_ASSIGN(JobConfig base, config_of(common));
  if (base.steps == 0) {
    return wrong("a comparison needs the number of --steps");
  }
  const bool needs_others = std::ranges::any_of(parts.conditions, [&](const auto& condition) {
    return (condition.straggler && base.inject.empty()) || (condition.kill && base.chaos.empty());
  });
  if (needs_others && base.workers < 2) {
    return wrong(
        "the conditions straggler and kill need at least two --workers, so that one can continue");
  }
  if (base.chaos.empty()) {
    base.chaos = usual_chaos(base);
  }
  if (base.inject.empty()) {
    base.inject = usual_inject(base);
  }
  (void)take_setting(common, "inject");
  (void)take_setting(common, "chaos");
  ComparePlan plan;
  plan.base = base;
  for (const CompareVariant& variant : parts.variants) {
    plan.variants.push_back(variant.name);
  }
  for (const CompareCondition& condition : parts.conditions) {
    plan.conditions.push_back(condition.name);
  }
  // The outer loop is over seeds, so that an interrupted comparison has all variants and conditions
  // for some seeds.
  for (std::uint64_t seed = options.first_seed; seed < options.first_seed + options.seeds; ++seed) {
    for (const CompareCondition& condition : parts.conditions) {
      for (const CompareVariant& variant : parts.variants) {
        CompareCell cell{fmt::format("{}-{}-s{}", file_name_of(variant.name), condition.name, seed),
                         variant.name, condition.name, seed, common};
        cell.settings.insert(cell.settings.end(), variant.settings.begin(), variant.settings.end());
        if (variant.settings.empty()) {
          for (const char* name : {"ps", "lr_rule"}) {  // all-reduce ignores or refuses them
            (void)take_setting(cell.settings, name);
          }
        }
        // Given even if empty, so that no variable of the environment replaces it.
        cell.settings.emplace_back("inject", condition.straggler ? plan.base.inject : "");
        cell.settings.emplace_back("chaos", condition.kill ? plan.base.chaos : "");
        cell.settings.emplace_back("seed", std::to_string(seed));
        TRY(complete_cell(cell));
        plan.cells.push_back(std::move(cell));
      }
    }
  }
  return plan;
}

void append_job(std::vector<std::string>& words, bool quick,
                const std::vector<SettingValue>& settings) {
  if (quick) {
    words.emplace_back("--quick");
  }
  for (const auto& [name, value] : settings) {
    words.push_back("--" + flag_name(*find_setting(name)));
    words.push_back(value);
  }
}

std::vector<std::string> compare_words(const CompareOptions& options) {
  std::vector<std::string> words = {"mayfly",       "compare",
                                    "--output",     options.folder,
                                    "--variants",   options.variants,
                                    "--conditions", options.conditions,
                                    "--seeds",      std::to_string(options.seeds),
                                    "--first-seed", std::to_string(options.first_seed)};
  if (options.prices.spot > 0) {
    words.insert(words.end(), {"--spot-price", fmt::to_string(options.prices.spot)});
  }
  if (options.prices.on_demand > 0) {
    words.insert(words.end(), {"--on-demand-price", fmt::to_string(options.prices.on_demand)});
  }
  append_job(words, options.quick, options.settings);
  return words;
}

}  // namespace mayfly::engine
