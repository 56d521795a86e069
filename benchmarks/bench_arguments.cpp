#include "benchmarks/bench_arguments.hpp"

#include <fmt/format.h>

#include <charconv>

#include "base/parse.hpp"
#include "base/try_assign.hpp"

namespace mayfly::bench {
namespace {

constexpr std::size_t kBytesMax = std::size_t{1} << 32U;
constexpr std::size_t kWordsBeforeName = std::char_traits<char>::length("bench ");

/// "64K", "25M" or bytes; whole elements.
Result<std::size_t> parse_size(const std::string& text) {
  std::size_t number = 0;
  const char* last = text.data() + text.size();
  const auto [end, error] = std::from_chars(text.data(), last, number);
  const std::string unit(end, last);
  const std::size_t factor = unit.empty()                 ? 1
                             : unit == "K" || unit == "k" ? std::size_t{1} << 10U
                             : unit == "M" || unit == "m" ? std::size_t{1} << 20U
                                                          : 0;
  if (error != std::errc() || factor == 0 || number == 0 || number > kBytesMax / factor ||
      number * factor % 4 != 0) {
    return bad_flag("sizes", text, "a size in bytes, K or M that is a multiple of 4, up to 4096M");
  }
  return number * factor;
}

}  // namespace

BenchCommand make_command(const cli::CommandSpec& spec,
                          std::function<int(const cli::ParsedArguments&, BenchContext&)> start) {
  return {spec.name.substr(kWordsBeforeName), spec.help,
          [spec, start = std::move(start)](const std::vector<std::string>& words,
                                           BenchContext& context) {
            const Result<cli::ParsedArguments> parsed = cli::parse_arguments(spec, words);
            if (!parsed.ok()) {
              return context.complain(parsed.error());
            }
            if (parsed.value().help_asked) {
              context.out << cli::help_text(spec);
              return cli::kExitDone;
            }
            return start(parsed.value(), context);
          }};
}

Result<void> read_settings(const cli::ParsedArguments& arguments, engine::JobConfig& config) {
  for (const auto& [name, text] : arguments.settings) {
    TRY(engine::apply_setting(config, name, text, "flag"));
  }
  return {};
}

Result<void> read_sizes(const cli::ParsedArguments& arguments, std::vector<std::size_t>& sizes) {
  const std::string text = arguments.option("sizes");
  if (text.empty()) {
    return {};
  }
  sizes.clear();
  for (const std::string_view part : split(text, ',')) {
    TRY_ASSIGN(const std::size_t size, parse_size(std::string(part)));
    sizes.push_back(size);
  }
  return {};
}

Error bad_flag(const std::string& flag, const std::string& text, const std::string& expected) {
  return {Errc::kInvalidInput, fmt::format("--{} {}: not {}", flag, text, expected)};
}

}  // namespace mayfly::bench
