#include <toml++/toml.h>

#include <sstream>

#include "engine/config.hpp"

namespace mayfly::engine {
namespace {

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

Result<void> apply_entry(JobConfig& config, const toml::key& key, const toml::node& node,
                         const std::string& file_name) {
  const std::string source = place(file_name, key.source());
  const Setting* setting = find_setting(key.str());
  if (setting == nullptr) {
    if (node.is_table()) {
      return Error{Errc::kInvalidInput, source + ": table '" + std::string(key.str()) +
                                            "'; settings are written without tables"};
    }
    return apply_setting(config, key.str(), "", source);  // names the nearest
  }
  const std::optional<std::string> text = text_of(node, setting->kind);
  if (!text) {
    return Error{Errc::kInvalidInput, source + ": " + setting->name + " expects " +
                                          wanted_type(setting->kind) + ", got " + type_name(node)};
  }
  return apply_setting(config, key.str(), *text, source);
}

std::string quoted(const std::string& text) {
  std::string out = "\"";
  for (const char c : text) {
    if (c == '"' || c == '\\') {
      out += '\\';
    }
    out += c;
  }
  return out + "\"";
}

}  // namespace

Result<void> apply_toml(JobConfig& config, const std::string& text, const std::string& file_name) {
  toml::table table;
  try {
    table = toml::parse(text, file_name);
  } catch (const toml::parse_error& failure) {
    return Error{Errc::kInvalidInput,
                 place(file_name, failure.source()) + ": " + std::string(failure.description())};
  }
  JobConfig changed = config;  // all of the file or nothing
  for (auto&& [key, node] : table) {
    if (Result<void> done = apply_entry(changed, key, node, file_name); !done.ok()) {
      return done;
    }
  }
  config = changed;
  return {};
}

std::string to_toml(const JobConfig& config) {
  std::string out;
  for (const Setting& setting : settings()) {
    const std::string text = setting.get(config);
    out += setting.name + " = " + (setting.kind == SettingKind::kText ? quoted(text) : text) + "\n";
  }
  return out;
}

}  // namespace mayfly::engine
