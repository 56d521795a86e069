#include "cli/configuration.hpp"

#include "base/file.hpp"
#include "engine/config/switch_order.hpp"

namespace mayfly::cli {
namespace {

Result<void> apply_file(engine::JobConfig& config, const std::string& path) {
  if (path.empty()) {
    return {};
  }
  const Result<std::string> text = read_text_file(path, kConfigBytesMax);
  if (!text.ok()) {
    return text.error();
  }
  return engine::apply_toml(config, text.value(), path);
}

}  // namespace

Result<engine::JobConfig> collect_settings(const ParsedArguments& arguments, const Context& context,
                                           engine::JobConfig config) {
  TRY(apply_file(config, arguments.option("config")));
  TRY(engine::apply_environment(config, context.environment));
  for (const auto& [name, text] : arguments.settings) {
    const std::string source = "flag --" + engine::flag_name(*engine::find_setting(name));
    TRY(engine::apply_setting(config, name, text, source));
  }
  return config;
}

Result<engine::JobConfig> resolve_config(const ParsedArguments& arguments, const Context& context,
                                         engine::JobConfig start) {
  Result<engine::JobConfig> collected = collect_settings(arguments, context, std::move(start));
  if (!collected.ok()) {
    return collected;
  }
  engine::JobConfig& config = collected.value();
  TRY(engine::spell_out_switch_order(config));
  TRY(engine::validate(config));
  return collected;
}

}  // namespace mayfly::cli
