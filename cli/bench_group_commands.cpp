// The benchmarks of communication that `mayfly bench` offers.

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <filesystem>

#include "cli/bench_arguments.hpp"

namespace mayfly::cli {
namespace {

constexpr std::size_t kBytesMax = std::size_t{1} << 32U;
constexpr std::uint32_t kRanksMax = 64;

std::vector<std::string> split(const std::string& text) {
  std::vector<std::string> parts;
  std::size_t begin = 0;
  while (begin <= text.size()) {
    const std::size_t end = std::min(text.find(',', begin), text.size());
    parts.push_back(text.substr(begin, end - begin));
    begin = end + 1;
  }
  return parts;
}

std::string joined(const std::vector<std::string>& words) {
  std::string text;
  for (const std::string& word : words) {
    text += (text.empty() ? "" : ", ") + word;
  }
  return text;
}

Error bad(const std::string& flag, const std::string& text, const std::string& expected) {
  return {Errc::kInvalidInput, fmt::format("--{} {}: not {}", flag, text, expected)};
}

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
    return bad("sizes", text, "a size in bytes, K or M that is a multiple of 4, up to 4096M");
  }
  return number * factor;
}

}  // namespace

Result<void> read_sizes(const ParsedArguments& arguments, std::vector<std::size_t>& sizes) {
  const std::string text = arguments.option("sizes");
  if (text.empty()) {
    return {};
  }
  sizes.clear();
  for (const std::string& part : split(text)) {
    const Result<std::size_t> size = parse_size(part);
    if (!size.ok()) {
      return size.error();
    }
    sizes.push_back(size.value());
  }
  return {};
}

namespace {

Result<void> read_rank_counts(const ParsedArguments& arguments, std::vector<std::uint32_t>& ranks) {
  const std::string text = arguments.option("ranks");
  if (text.empty()) {
    return {};
  }
  ranks.clear();
  for (const std::string& part : split(text)) {
    std::uint32_t number = 0;
    const char* last = part.data() + part.size();
    const auto [end, error] = std::from_chars(part.data(), last, number);
    if (error != std::errc() || end != last || number < 2 || number > kRanksMax) {
      return bad("ranks", part, fmt::format("a number from 2 to {}", kRanksMax));
    }
    ranks.push_back(number);
  }
  return {};
}

/// A list of known names, or "none". `named` becomes true if the option is given.
Result<void> read_names(const ParsedArguments& arguments, const std::string& flag,
                        const std::vector<std::string>& known, std::vector<std::string>& names,
                        bool& named) {
  const std::string text = arguments.option(flag);
  if (text.empty()) {
    return {};
  }
  named = true;
  names = text == "none" ? std::vector<std::string>{} : split(text);
  for (std::size_t i = 0; i < names.size(); ++i) {
    if (std::find(known.begin(), known.end(), names[i]) == known.end()) {
      return bad(flag, names[i], "one of " + joined(known) + " or none");
    }
    if (std::find(names.begin(), names.begin() + static_cast<std::ptrdiff_t>(i), names[i]) !=
        names.begin() + static_cast<std::ptrdiff_t>(i)) {
      return Error{Errc::kInvalidInput, fmt::format("--{} {}: named twice", flag, names[i])};
    }
  }
  return {};
}

/// Before minutes of measuring, not after them.
Result<void> check_folder_of(const std::string& file) {
  const std::filesystem::path folder = std::filesystem::path(file).parent_path();
  std::error_code ignored;
  if (!folder.empty() && !std::filesystem::is_directory(folder, ignored)) {
    return bad("out", file, "a file in a folder that exists");
  }
  return {};
}

CommandSpec allreduce_spec() {
  CommandSpec spec;
  spec.name = "bench allreduce";
  spec.help = "time of one all-reduce, beside Gloo, Open MPI and a plain ring of sockets";
  spec.options = {{"ranks", "LIST", "numbers of processes (default 2,4)"},
                  {"sizes", "LIST", "bytes of the vector (default 4K,64K,2M,25M,100M)"},
                  {"backends", "LIST",
                   "Mayfly's: " + joined(engine::bench_backends()) + " or none (default: all)"},
                  {"peers", "LIST", joined(engine::bench_peers()) + " or none (default: all)"},
                  {"type", "NAME", "element type: fp32 (default) or int32"},
                  {"rounds", "N", "how often each is measured (default 5)"},
                  {"json", "", "JSON lines instead of a table"},
                  {"out", "FILE", "write the JSON lines to this file too"}};
  return spec;
}

Result<engine::AllReduceBenchOptions> allreduce_options(const ParsedArguments& arguments) {
  engine::AllReduceBenchOptions options;
  options.type = arguments.option("type", options.type);
  options.json = arguments.has("json");
  options.out = arguments.option("out");
  if (options.type != "fp32" && options.type != "int32") {
    return bad("type", options.type, "fp32 or int32");
  }
  for (const Result<void>& read :
       {read_sizes(arguments, options.sizes), read_rank_counts(arguments, options.ranks),
        read_names(arguments, "backends", engine::bench_backends(), options.backends,
                   options.backends_named),
        read_names(arguments, "peers", engine::bench_peers(), options.peers, options.peers_named),
        read_number(arguments, "rounds", options.rounds)}) {
    if (!read.ok()) {
      return read.error();
    }
  }
  if (const Result<void> writable = check_folder_of(options.out); !writable.ok()) {
    return writable.error();
  }
  if (options.backends.empty() && options.peers.empty()) {
    return Error{Errc::kInvalidInput, "--backends none --peers none: nobody is left to measure"};
  }
  return options;
}

CommandSpec reform_spec() {
  CommandSpec spec;
  spec.name = "bench reform";
  spec.help = "milliseconds from being told of a loss to the next view's first right sum";
  spec.options = {{"ranks", "N", "members before each kill (default 8)"},
                  {"backend", "NAME", "tcp, unix (default) or gloo"},
                  {"kills", "N", "how many (default 50)"},
                  {"json", "", "one JSON object per trial and one with the percentiles"}};
  return spec;
}

Result<engine::ReformBenchOptions> reform_options(const ParsedArguments& arguments) {
  engine::ReformBenchOptions options;
  options.backend = arguments.option("backend", options.backend);
  options.json = arguments.has("json");
  for (const Result<void>& read : {read_number(arguments, "ranks", options.ranks),
                                   read_number(arguments, "kills", options.kills)}) {
    if (!read.ok()) {
      return read.error();
    }
  }
  if (options.ranks < 2 || options.ranks > kRanksMax) {
    return bad("ranks", std::to_string(options.ranks),
               fmt::format("a number from 2 to {}", kRanksMax));
  }
  if (options.backend != "tcp" && options.backend != "unix" && options.backend != "gloo") {
    return bad("backend", options.backend, "tcp, unix or gloo");
  }
  return options;
}

}  // namespace

int run_bench_allreduce(const std::vector<std::string>& words, Context& context) {
  return run_with_options(allreduce_spec(), words, context, [&context](const ParsedArguments& a) {
    const Result<engine::AllReduceBenchOptions> options = allreduce_options(a);
    return options.ok() ? context.services.bench_allreduce(options.value())
                        : context.complain(options.error());
  });
}

int run_bench_reform(const std::vector<std::string>& words, Context& context) {
  return run_with_options(reform_spec(), words, context, [&context](const ParsedArguments& a) {
    const Result<engine::ReformBenchOptions> options = reform_options(a);
    return options.ok() ? context.services.bench_reform(options.value())
                        : context.complain(options.error());
  });
}

std::string bench_allreduce_help() {
  return allreduce_spec().help;
}

std::string bench_reform_help() {
  return reform_spec().help;
}

}  // namespace mayfly::cli
