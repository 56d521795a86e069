#include "benchmarks/allreduce/allreduce_bench.hpp"

#include <fmt/format.h>
#include <algorithm>
#include <cstdio>
#include <filesystem>
#include <map>
#include <memory>

#include "base/file.hpp"
#include "base/parse.hpp"
#include "base/statistics.hpp"
#include "base/try_assign.hpp"
#include "benchmarks/allreduce/allreduce_report.hpp"
#include "benchmarks/bench_arguments.hpp"
#include "benchmarks/machine_facts.hpp"
#include "benchmarks/ranks/control_hub.hpp"
#include "benchmarks/ranks/rank_session.hpp"
#include "benchmarks/ranks/rank_team.hpp"
#include "engine/membership/exit_codes.hpp"

namespace mayfly::bench {
namespace {

constexpr double kCellSeconds = 0.08;  // duration of a measurement
constexpr std::uint32_t kIterationsMin = 3;
constexpr std::uint32_t kIterationsMax = 4000;

void note(const std::string& text) {
  fmt::print(stderr, "mayfly: {}\n", text);
}

/// Chooses the number of repetitions from the time that the last one took.
std::uint32_t iterations_for(double seconds) {
  const double wanted = seconds > 0 ? kCellSeconds / seconds : kIterationsMin;
  return static_cast<std::uint32_t>(
      std::clamp<double>(wanted, double{kIterationsMin}, double{kIterationsMax}));
}

/// All contestants with one number of ranks.
class Field {
 public:
  Field(const AllReduceBenchOptions& options, ControlHub& hub, std::uint32_t ranks)
      : options_(options), hub_(hub), ranks_(ranks) {}

  /// False: interrupted.
  bool start() {
    for (const std::string& library : options_.backends) {
      start_one(library, false);
    }
    for (const std::string& library : options_.peers) {
      start_one(library, true);
    }
    return !interrupted_;
  }

  /// Round 0 warms up and finds the number of repetitions; it does not count.
  bool run_round(std::uint32_t round, std::vector<AllReduceRound>& results) {
    for (std::size_t s = 0; s < options_.sizes.size() && !interrupted_; ++s) {
      const std::size_t count = teams_.size();
      for (std::size_t i = 0; i < count && !interrupted_; ++i) {
        // Each contestant is first, second, ... equally often.
        const std::size_t place = (i + round + s) % count;
        measure(place, options_.sizes[s], round, results);
      }
    }
    return !interrupted_;
  }

  [[nodiscard]] bool failed() const { return failed_; }

 private:
  void start_one(const std::string& library, bool is_peer) {
    if (interrupted_) {
      return;
    }
    const bool named = is_peer ? options_.peers_named : options_.backends_named;
    Result<Contestant> contestant = find_contestant(library, is_peer, ranks_, own_program());
    if (!contestant.ok()) {
      return leave_out(contestant.error(), named);
    }
    auto team = std::make_unique<RankTeam>(hub_, std::move(contestant).value(), ranks_);
    if (Result<void> started = team->start(); !started.ok()) {
      return leave_out(started.error(), named || started.error().code != Errc::kUnsupported);
    }
    teams_.push_back(std::move(team));
  }

  void leave_out(const Error& error, bool is_failure) {
    if (error.code == Errc::kAborted) {
      interrupted_ = true;
      return;
    }
    note(fmt::format("{} ranks, left out: {}", ranks_, error.detail));
    failed_ = failed_ || is_failure;
  }

  void measure(std::size_t place, std::size_t bytes, std::uint32_t round,
               std::vector<AllReduceRound>& results) {
    std::unique_ptr<RankTeam>& team = teams_[place];
    if (!team) {
      return;  // the contestant broke before
    }
    double& usual = usual_seconds_[{place, bytes}];
    CellOrder order;
    order.bytes = bytes;
    order.type = options_.type;
    order.iterations = round == 0 ? kIterationsMin : iterations_for(usual * batch_of(bytes));
    order.salt = ++salt_;
    const Result<std::vector<double>> times = team->measure(order);
    if (!times.ok()) {
      leave_out(times.error(), true);
      team.reset();
      return;
    }
    usual = median(times.value());
    if (round > 0) {
      results.push_back({ranks_, bytes, team->contestant().name, team->contestant().is_peer, round,
                         order.iterations, usual, percentile(times.value(), 0)});
    }
  }

  const AllReduceBenchOptions& options_;
  ControlHub& hub_;
  std::uint32_t ranks_;
  std::vector<std::unique_ptr<RankTeam>> teams_;                         // null: it broke
  std::map<std::pair<std::size_t, std::size_t>, double> usual_seconds_;  // by place and size
  std::uint64_t salt_ = 0;
  bool failed_ = false;
  bool interrupted_ = false;
};

struct Outcome {
  std::vector<AllReduceRound> rounds;
  bool failed = false;
};

Result<Outcome> run(const AllReduceBenchOptions& options) {
  Outcome outcome;
  for (const std::uint32_t ranks : options.ranks) {
    TRY_ASSIGN(std::unique_ptr<ControlHub> hub, ControlHub::open());
    Field field(options, *hub, ranks);
    bool going = field.start();
    for (std::uint32_t round = 0; going && round <= options.rounds; ++round) {
      going = field.run_round(round, outcome.rounds);
    }
    outcome.failed = outcome.failed || field.failed();
    if (!going) {
      return Error{Errc::kAborted, "interrupted"};
    }
  }
  return outcome;
}

std::string json_lines(const AllReduceBenchOptions& options, const std::string& machine,
                       const Outcome& outcome) {
  std::string text = machine + "\n";
  for (const AllReduceRound& round : outcome.rounds) {
    text += to_json(round, options.type) + "\n";
  }
  for (const AllReduceRow& row : rows_of(outcome.rounds)) {
    text += to_json(row, options.type) + "\n";
  }
  return text;
}

/// Rows by ranks and size, Mayfly's first: the first round's order is a rotated one.
std::string table(const Outcome& outcome) {
  std::vector<AllReduceRow> rows = rows_of(outcome.rounds);
  std::stable_sort(rows.begin(), rows.end(), [](const AllReduceRow& a, const AllReduceRow& b) {
    return std::tuple(a.ranks, a.bytes, a.is_peer, a.contestant) <
           std::tuple(b.ranks, b.bytes, b.is_peer, b.contestant);
  });
  return to_table(rows);
}

Result<void> read_rank_counts(const cli::ParsedArguments& arguments,
                              std::vector<std::uint32_t>& ranks) {
  const std::string text = arguments.option("ranks");
  if (text.empty()) {
    return {};
  }
  ranks.clear();
  for (const std::string_view part : split(text, ',')) {
    const auto number = number_in<std::uint32_t>(part, 2, kRanksMax);
    if (!number) {
      return bad_flag("ranks", std::string(part), fmt::format("a number from 2 to {}", kRanksMax));
    }
    ranks.push_back(*number);
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
  names.clear();
  for (const std::string_view part :
       text == "none" ? std::vector<std::string_view>() : split(text, ',')) {
    names.emplace_back(part);
  }
  for (std::size_t i = 0; i < names.size(); ++i) {
    if (std::find(known.begin(), known.end(), names[i]) == known.end()) {
      return bad_flag(flag, names[i], fmt::format("one of {} or none", fmt::join(known, ", ")));
    }
    if (std::find(names.begin(), names.begin() + static_cast<std::ptrdiff_t>(i), names[i]) !=
        names.begin() + static_cast<std::ptrdiff_t>(i)) {
      return Error{Errc::kInvalidInput, fmt::format("--{} {}: named twice", flag, names[i])};
    }
  }
  return {};
}

/// To be called before the measurements, which take minutes.
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
      {"backends", "LIST",
       fmt::format("Mayfly's: {} or none (default: all)", fmt::join(bench_backends(), ", "))},
      {"peers", "LIST", fmt::format("{} or none (default: all)", fmt::join(bench_peers(), ", "))},
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

int bench_allreduce(const AllReduceBenchOptions& options) {
  const std::string machine =
      machine_line(fmt::format(R"(, "bench": "allreduce", "rounds": {})", options.rounds));
  const Result<Outcome> outcome = run(options);
  if (!outcome.ok()) {
    return engine::refuse(outcome.error(), engine::kExitFailed);
  }
  const std::string json = json_lines(options, machine, outcome.value());
  fmt::print("{}", options.json ? json : table(outcome.value()));
  std::fflush(stdout);
  if (!options.out.empty()) {
    if (Result<void> written = write_file_atomic(options.out, json); !written.ok()) {
      return engine::refuse(written.error(), engine::kExitFailed);
    }
  }
  return outcome.value().failed ? engine::kExitFailed : engine::kExitDone;
}

BenchCommand allreduce_command() {
  return make_command(allreduce_spec(), allreduce_options, &Benches::allreduce);
}

}  // namespace mayfly::bench
