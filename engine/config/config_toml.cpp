#include "engine/config/config_toml.hpp"

#include <fmt/format.h>
#include <toml++/toml.h>
#include <algorithm>
#include <cctype>
#include <map>
#include <sstream>

#include "base/check.hpp"
#include "base/try_assign.hpp"
#include "engine/config/cloud_offers.hpp"
#include "engine/config/config.hpp"
#include "engine/config/job_file.hpp"

namespace mayfly::engine {
namespace {

/// The position behind the string that begins at `begin`. A string that is never closed ends with
/// its line, or with the text if it may have several lines; the parser reports it as an error.
std::size_t end_of_string(std::string_view text, std::size_t begin) {
  const char mark = text[begin];
  const std::string three(3, mark);
  const bool has_lines = text.substr(begin, 3) == three;
  const std::string_view closing = std::string_view(three).substr(0, has_lines ? 3 : 1);
  for (std::size_t at = begin + closing.size(); at < text.size(); ++at) {
    if (mark == '"' && text[at] == '\\') {
      ++at;
    } else if (text[at] == '\n' && !has_lines) {
      return at;
    } else if (text.substr(at).starts_with(closing)) {
      at += closing.size();
      // Up to two more belong to the string itself.
      for (int more = 0; has_lines && more < 2 && text.substr(at).starts_with(mark); ++more) {
        ++at;
      }
      return at;
    }
  }
  return text.size();
}

std::string type_name(const toml::node& node) {
  switch (node.type()) {
    case toml::node_type::table: return "a table";
    case toml::node_type::array: return "an array";
    case toml::node_type::string: return "a string";
    case toml::node_type::integer: return "a whole number";
    case toml::node_type::floating_point: return "a number with a fraction";
    case toml::node_type::boolean: return "true or false";
    default: return "a date or time";
  }
}

const char* wanted_type(SettingKind kind) {
  switch (kind) {
    case SettingKind::kText: return "a string";
    case SettingKind::kWhole: return "a whole number";
    case SettingKind::kReal: return "a number";
    case SettingKind::kSwitch: return "true or false";
  }
  return "";
}

std::string shortest(double number) {
  std::ostringstream text;
  text.precision(17);
  text << number;
  return text.str();
}

/// The value as the text that the setting parses, if its type fits.
std::optional<std::string> text_of(const toml::node& node, SettingKind kind) {
  if (kind == SettingKind::kText && node.is_string()) {
    return node.as_string()->get();
  }
  if (kind == SettingKind::kSwitch && node.is_boolean()) {
    return node.as_boolean()->get() ? "true" : "false";
  }
  if ((kind == SettingKind::kWhole || kind == SettingKind::kReal) && node.is_integer()) {
    return std::to_string(node.as_integer()->get());
  }
  if (kind == SettingKind::kReal && node.is_floating_point()) {
    return shortest(node.as_floating_point()->get());
  }
  return std::nullopt;
}

std::string place(const std::string& file_name, const toml::source_region& region) {
  return file_name + " line " + std::to_string(region.begin.line);
}

bool is_number(const std::string& text) {
  return text.find_first_not_of("0123456789") == std::string::npos;
}

Result<void> apply_entry(JobConfig& config, const std::string& name, const toml::key& key,
                         const toml::node& node, const std::string& file_name);

/// The text of one [[cloud.offer]] table, in the form of the setting cloud_offers.
Result<std::string> offer_text(const toml::table& table, const std::string& file_name) {
  std::map<std::string, std::string> parts = {{"type", ""},   {"zone", ""},   {"market", "spot"},
                                              {"price", "0"}, {"speed", "1"}, {"max_workers", ""}};
  for (auto&& [key, node] : table) {
    const std::string name(key.str());
    const bool is_number = name == "price" || name == "speed" || name == "max_workers";
    const auto text = text_of(node, is_number ? SettingKind::kReal : SettingKind::kText);
    if (!parts.contains(name)) {
      const std::string nearest =
          suggestion(name, {"type", "zone", "market", "price", "speed", "max_workers"});
      return Error{Errc::kInvalidInput, place(file_name, key.source()) + ": unknown key '" + name +
                                            "' of an offer" + nearest};
    }
    if (!text) {
      return Error{Errc::kInvalidInput, place(file_name, key.source()) + ": " + name + " expects " +
                                            (is_number ? "a number" : "a string") + ", got " +
                                            type_name(node)};
    }
    parts[name] = *text;
  }
  const std::string zone = parts["zone"].empty() ? "" : "@" + parts["zone"];
  const std::string most = parts["max_workers"].empty() ? "" : "#" + parts["max_workers"];
  return parts["type"] + zone + ":" + parts["market"] + "=" + parts["price"] + "*" +
         parts["speed"] + most;
}

Result<void> apply_offers(JobConfig& config, const toml::key& key, const toml::node& node,
                          const std::string& file_name) {
  const std::string source = place(file_name, key.source());
  if (!node.is_array_of_tables()) {
    return Error{Errc::kInvalidInput, source + ": offers are written as [[cloud.offer]]"};
  }
  std::string all;
  for (const toml::node& one : *node.as_array()) {
    TRY_ASSIGN(const std::string text, offer_text(*one.as_table(), file_name));
    all += (all.empty() ? "" : ",") + text;
  }
  return apply_setting(config, "cloud_offers", all, source);
}

/// The text of one [[phase]] table, in the form of the setting phases.
Result<std::string> phase_text(const toml::table& table, const std::string& file_name) {
  std::string sync;
  std::string length;
  std::string settings;
  for (auto&& [key, node] : table) {
    const std::string name(key.str());
    const std::string source = place(file_name, key.source());
    std::optional<std::string> text = text_of(node, SettingKind::kText);
    text = text ? text : text_of(node, SettingKind::kReal);
    const bool fits = text && text->find_first_of(",{}") == std::string::npos;
    if (!fits) {
      return Error{Errc::kInvalidInput, source + ": " + name +
                                            " of a phase expects a string or a number, got " +
                                            type_name(node)};
    }
    if (name == "sync") {
      sync = *text;
    } else if (name == "length") {
      length = ":" + *text;
    } else {
      settings += (settings.empty() ? "" : ",") + name + "=" + *text;
    }
  }
  return sync + length + (settings.empty() ? "" : "{" + settings + "}");
}

/// [[phase]], one for each, in order.
Result<void> apply_phases(JobConfig& config, const toml::key& key, const toml::array& tables,
                          const std::string& file_name) {
  std::string all;
  for (const toml::node& one : tables) {
    TRY_ASSIGN(const std::string text, phase_text(*one.as_table(), file_name));
    all += (all.empty() ? "" : ",") + text;
  }
  return apply_setting(config, "phases", all, place(file_name, key.source()));
}

/// [cloud]: its key K is the setting cloud_K.
Result<void> apply_cloud(JobConfig& config, const toml::table& table,
                         const std::string& file_name) {
  for (auto&& [key, node] : table) {
    const std::string name(key.str());
    Result<void> done = name == "offer"
                            ? apply_offers(config, key, node, file_name)
                            : apply_entry(config, "cloud_" + name, key, node, file_name);
    if (!done.ok()) {
      return done;
    }
  }
  return {};
}

Result<void> apply_entry(JobConfig& config, const std::string& name, const toml::key& key,
                         const toml::node& node, const std::string& file_name) {
  const std::string source = place(file_name, key.source());
  const Setting* setting = find_setting(name);
  if (setting == nullptr) {
    if (node.is_table()) {
      return Error{Errc::kInvalidInput, source + ": table '" + std::string(key.str()) +
                                            "'; settings are written without tables, but [cloud] "
                                            "and [[phase]]"};
    }
    return apply_setting(config, name, "", source);  // the error names the nearest setting
  }
  std::optional<std::string> text = text_of(node, setting->kind);
  if (!text && node.is_string() && setting->kind == SettingKind::kWhole) {
    JobConfig tried = config;  // some numbers have a word for one value
    const std::string word = node.as_string()->get();
    text = setting->set(tried, word).ok() && !is_number(word) ? std::optional(word) : std::nullopt;
  }
  if (!text) {
    return Error{Errc::kInvalidInput, source + ": " + setting->name + " expects " +
                                          wanted_type(setting->kind) + ", got " + type_name(node)};
  }
  return apply_setting(config, name, *text, source);
}

/// A string of one line; only the command of a program may have control characters.
std::string quoted(const std::string& text) {
  std::string out = "\"";
  for (const char c : text) {
    if (std::iscntrl(static_cast<unsigned char>(c)) != 0) {
      out += fmt::format("\\u{:04X}", static_cast<unsigned char>(c));
      continue;
    }
    if (c == '"' || c == '\\') {
      out += '\\';
    }
    out += c;
  }
  return out + "\"";
}

std::string line_of(const Setting& setting, const JobConfig& config, std::size_t prefix = 0) {
  const std::string text = setting.get(config);
  const bool is_word = setting.kind == SettingKind::kWhole && !is_number(text);
  const bool is_text = setting.kind == SettingKind::kText || is_word;
  return setting.name.substr(prefix) + " = " + (is_text ? quoted(text) : text) + "\n";
}

std::string offer_table(const cloud_hooks::OfferTerms& terms) {
  return fmt::format(
      "\n[[cloud.offer]]\ntype = {}\nzone = {}\nmarket = {}\nprice = {}\nspeed = {}\n{}",
      quoted(terms.offer.machine_type), quoted(terms.offer.zone),
      quoted(cloud_hooks::to_string(terms.offer.market)), terms.price_per_hour, terms.speed,
      terms.workers_most == 0 ? "" : fmt::format("max_workers = {}\n", terms.workers_most));
}

}  // namespace

Result<void> check_key_parts(std::string_view toml, const std::string& file_name) {
  std::size_t line = 1;
  std::size_t parts = 1;  // since the last character that no key contains
  for (std::size_t at = 0; at < toml.size();) {
    const char c = toml[at];
    std::size_t next = at + 1;
    if (c == '"' || c == '\'') {
      next = end_of_string(toml, at);
    } else if (c == '#') {
      next = std::min(toml.find('\n', at), toml.size());
    } else if (c == '.') {
      ++parts;
    } else if (std::string_view("\n=,[]{}").find(c) != std::string_view::npos) {
      parts = 1;
    }
    if (parts > kKeyPartsMax) {
      return Error{Errc::kInvalidInput, file_name + " line " + std::to_string(line) +
                                            ": a key of more than " + std::to_string(kKeyPartsMax) +
                                            " parts; no setting has such a name"};
    }
    const std::string_view passed = toml.substr(at, next - at);
    line += static_cast<std::size_t>(std::count(passed.begin(), passed.end(), '\n'));
    at = next;
  }
  return {};
}

Result<void> apply_toml(JobConfig& config, const std::string& text, const std::string& file_name) {
  TRY(check_key_parts(text, file_name));
  toml::table table;
  try {
    table = toml::parse(text, file_name);
  } catch (const toml::parse_error& failure) {
    return Error{Errc::kInvalidInput,
                 place(file_name, failure.source()) + ": " + std::string(failure.description())};
  }
  JobConfig changed = config;  // applies the whole file or nothing
  for (auto&& [key, node] : table) {
    const bool is_cloud = key.str() == "cloud" && node.is_table();
    const bool is_phases = key.str() == "phase" && node.is_array_of_tables();
    Result<void> done = is_cloud ? apply_cloud(changed, *node.as_table(), file_name)
                        : is_phases
                            ? apply_phases(changed, key, *node.as_array(), file_name)
                            : apply_entry(changed, std::string(key.str()), key, node, file_name);
    if (!done.ok()) {
      return done;
    }
  }
  config = changed;
  return {};
}

std::string to_toml(const JobConfig& config) {
  std::string out;
  for (const Setting& setting : settings()) {
    out += line_of(setting, config);
  }
  return out;
}

std::string to_job_file(const JobConfig& config) {
  constexpr std::string_view kCloud = "cloud_";
  const JobConfig usual;
  std::string out;
  std::string cloud;
  for (const Setting& setting : settings()) {
    const bool is_cloud = setting.name.starts_with(kCloud);
    if (setting.get(config) != setting.get(usual) && setting.name != "cloud_offers") {
      (is_cloud ? cloud : out) += line_of(setting, config, is_cloud ? kCloud.size() : 0);
    }
  }
  const auto offers = parse_offers(config.cloud_offers);
  ENSURE(offers.ok(), "only a valid configuration is written");
  for (const cloud_hooks::OfferTerms& terms : offers.value()) {
    cloud += offer_table(terms);
  }
  return out + (cloud.empty() ? "" : "\n[cloud]\n" + cloud);
}

std::string job_settings_toml(const JobConfig& config, const std::vector<std::string>& also) {
  std::string out;
  for (const Setting& setting : settings()) {
    const bool is_shared = std::find(also.begin(), also.end(), setting.name) != also.end();
    out += !setting.is_own || is_shared ? line_of(setting, config) : "";
  }
  return out;
}

}  // namespace mayfly::engine
