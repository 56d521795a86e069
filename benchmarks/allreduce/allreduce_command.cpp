#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <filesystem>

#include "benchmarks/bench_arguments.hpp"

namespace mayfly::bench {
namespace {

std::string joined(const std::vector<std::string>& words) {
  std::string text;
  for (const std::string& word : words) {
    text += (text.empty() ? "" : ", ") + word;
  }
  return text;
}

Result<void> read_rank_counts(const cli::ParsedArguments& arguments,
                              std::vector<std::uint32_t>& ranks) {
  const std::string text = arguments.option("ranks");
  if (text.empty()) {
    return {};
  }
  ranks.clear();
  for (const std::string& part : split_list(text)) {
    std::uint32_t number = 0;
    const char* last = part.data() + part.size();
    const auto [end, error] = std::from_chars(part.data(), last, number);
    if (error != std::errc() || end != last || number < 2 || number > kRanksMax) {
      return bad_flag("ranks", part, fmt::format("a number from 2 to {}", kRanksMax));
    }
    ranks.push_back(number);
  }
  return {};
}

/// A list of known names, or "none". `named` becomes true if the option is given.
Result<void> read_names(const cli::ParsedArguments& arguments, const std::string& flag,
                        const std::vector<std::string>& known, std::vector<std::string>& names,
                        bool& named) {
  const std::string text = arguments.option(flag);
  if (text.empty()) {
    return {};
  }
  named = true;
  names = text == "none" ? std::vector<std::string>{} : split_list(text);
  for (std::size_t i = 0; i < names.size(); ++i) {
    if (std::find(known.begin(), known.end(), names[i]) == known.end()) {
      return bad_flag(flag, names[i], "one of " + joined(known) + " or none");
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
    return bad_flag("out", file, "a file in a folder that exists");
  }
  return {};
}

cli::CommandSpec allreduce_spec() {
  cli::CommandSpec spec;
  spec.name = "bench allreduce";
  spec.help = "time of one all-reduce, beside Gloo, Open MPI and a plain ring of sockets";
  spec.options = {
      {"ranks", "LIST", "numbers of processes (default 2,4)"},
      {"sizes", "LIST", "bytes of the vector (default 4K,64K,2M,25M,100M)"},
      {"backends", "LIST", "Mayfly's: " + joined(bench_backends()) + " or none (default: all)"},
      {"peers", "LIST", joined(bench_peers()) + " or none (default: all)"},
      {"type", "NAME", "element type: fp32 (default) or int32"},
      {"rounds", "N", "how often each is measured (default 5)"},
      {"json", "", "JSON lines instead of a table"},
      {"out", "FILE", "write the JSON lines to this file too"}};
  return spec;
}

Result<AllReduceBenchOptions> allreduce_options(const cli::ParsedArguments& arguments) {
  AllReduceBenchOptions options;
  options.type = arguments.option("type", options.type);
  options.json = arguments.has("json");
  options.out = arguments.option("out");
  if (options.type != "fp32" && options.type != "int32") {
    return bad_flag("type", options.type, "fp32 or int32");
  }
  TRY(read_sizes(arguments, options.sizes));
  TRY(read_rank_counts(arguments, options.ranks));
  TRY(read_names(arguments, "backends", bench_backends(), options.backends,
                 options.backends_named));
  TRY(read_names(arguments, "peers", bench_peers(), options.peers, options.peers_named));
  TRY(cli::read_number(arguments, "rounds", options.rounds));
  TRY(check_folder_of(options.out));
  if (options.backends.empty() && options.peers.empty()) {
    return Error{Errc::kInvalidInput, "--backends none --peers none: nobody is left to measure"};
  }
  return options;
}

}  // namespace

BenchCommand allreduce_command() {
  return make_command(allreduce_spec(), allreduce_options, &Benches::allreduce);
}

}  // namespace mayfly::bench
