#include "tests/sim/simulate.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <charconv>
#include <optional>
#include <thread>

#include "base/time.hpp"
#include "cli/arguments.hpp"
#include "engine/run/record_json.hpp"
#include "tests/sim/scale.hpp"
#include "tests/sim/sweep.hpp"

namespace mayfly::sim {
namespace {

using cli::Context;
using cli::kExitDone;
using cli::kExitFailed;
using cli::kExitUsage;
using cli::ParsedArguments;

constexpr unsigned kThreadsMax = 256;
constexpr std::size_t kLinesShown = 40;

Result<std::uint64_t> count_of(const ParsedArguments& arguments, const std::string& name,
                               std::uint64_t otherwise) {
  const std::string text = arguments.option(name);
  if (text.empty()) {
    return otherwise;
  }
  std::uint64_t number = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
  if (error != std::errc() || end != text.data() + text.size()) {
    return Error{Errc::kInvalidInput, "--" + name + " expects a whole number, got '" + text + "'"};
  }
  return number;
}

std::string list_of(const std::vector<std::string>& names) {
  return fmt::format("{}", fmt::join(names, ", "));
}

Result<const World*> world_of(const ParsedArguments& arguments) {
  const std::string wanted = arguments.option("world", membership_world().name());
  std::vector<std::string> names;
  for (const World* world : all_worlds()) {
    names.push_back(world->name());
    if (wanted == names.back()) {
      return world;
    }
  }
  return Error{Errc::kInvalidInput,
               "--world: unknown '" + wanted + "'; there are " + list_of(names)};
}

Result<std::string> sabotage_of(const ParsedArguments& arguments, const World& world) {
  const std::string wanted = arguments.option("sabotage", "none");
  std::vector<std::string> names = world.sabotages();
  names.insert(names.begin(), "none");
  if (std::find(names.begin(), names.end(), wanted) == names.end()) {
    return Error{Errc::kInvalidInput, "--sabotage: unknown '" + wanted + "'; the world " +
                                          world.name() + " has " + list_of(names)};
  }
  return wanted;
}

Result<SweepOptions> sweep_options(const ParsedArguments& arguments) {
  SweepOptions options;
  const Result<std::uint64_t> seeds = count_of(arguments, "seeds", options.seeds);
  const Result<std::uint64_t> first = count_of(arguments, "first-seed", options.first_seed);
  const Result<std::uint64_t> jobs =
      count_of(arguments, "jobs", std::max(1U, std::thread::hardware_concurrency()));
  const Result<const World*> world = world_of(arguments);
  if (!world.ok()) {
    return world.error();
  }
  const Result<std::string> sabotage = sabotage_of(arguments, *world.value());
  for (const Result<std::uint64_t>& number : {seeds, first, jobs}) {
    if (!number.ok()) {
      return number.error();
    }
  }
  if (!sabotage.ok()) {
    return sabotage.error();
  }
  if (jobs.value() < 1 || jobs.value() > kThreadsMax || seeds.value() < 1) {
    return Error{Errc::kInvalidInput,
                 "simulate: at least one seed and 1 to " + std::to_string(kThreadsMax) + " jobs"};
  }
  options.world = world.value();
  options.seeds = seeds.value();
  options.first_seed = first.value();
  options.threads = static_cast<unsigned>(jobs.value());
  options.sabotage = sabotage.value();
  return options;
}

std::string hex(std::uint64_t number) {
  char text[16];
  const auto [end, error] = std::to_chars(text, text + sizeof text, number, 16);
  const std::string digits(text, end);
  return std::string(sizeof text - digits.size(), '0') + digits;
}

std::string json_of(const Outcome& failure) {
  return engine::json_text({{"kind", "failing_seed"},
                            {"seed", failure.seed},
                            {"scenario", failure.scenario},
                            {"violations", engine::value_of(failure.violations)},
                            {"replay", failure.replay}});
}

std::string json_of(const SweepOptions& options, const SweepResult& result, double seconds) {
  engine::json::object object;
  object["kind"] = "simulation";
  object["world"] = options.world->name();
  object["first_seed"] = options.first_seed;
  object["seeds"] = options.seeds;
  for (const auto& [name, count] : result.counts) {
    std::string key = name;
    std::replace(key.begin(), key.end(), ' ', '_');
    object[key] = count;
  }
  object["failing"] = result.failing;
  object["fingerprint"] = hex(result.fingerprint);
  object["seconds"] = seconds;
  return engine::json_text(object);
}

/// Shows one line on a terminal, rewritten at most ten times a second; shows nothing elsewhere.
class SweepProgress {
 public:
  SweepProgress(const Context& context, std::uint64_t seeds) : context_(context), seeds_(seeds) {}

  void show(std::uint64_t done, std::uint64_t failing) {
    const Instant now = monotonic_now();
    if (!context_.err_is_terminal || (shown_ && now - *shown_ < milliseconds(100))) {
      return;
    }
    shown_ = now;
    context_.err << "\r" << done << " of " << seeds_ << " seeds, " << failing << " failing"
                 << std::flush;
  }
  void erase() {
    if (shown_) {
      context_.err << "\r\x1b[K" << std::flush;
    }
  }

 private:
  const Context& context_;
  std::uint64_t seeds_;
  std::optional<Instant> shown_;
};

int replay(std::uint64_t seed, const SweepOptions& options, Context& context) {
  const Outcome run = options.world->play(seed, options.sabotage);
  context.out << story_of(run, run.history.size());
  context.out << (run.violations.empty() ? "nothing was violated" : "violated") << "; fingerprint "
              << hex(run.fingerprint) << "\n";
  return run.violations.empty() ? kExitDone : kExitFailed;
}

double cpu_ms() {
  return to_ms(thread_cpu_now() - Instant{});
}

std::string json_of(const ScaleRow& row) {
  return engine::json_text({{"kind", "change_of_view"},
                            {"change", row.change},
                            {"members", row.members},
                            {"changes", row.changes},
                            {"messages_in", row.messages_in},
                            {"messages_out", row.messages_out},
                            {"bytes_in", row.bytes_in},
                            {"bytes_out", row.bytes_out},
                            {"view_bytes", row.bytes_per_member_max},
                            {"full_view_bytes", row.full_view_bytes},
                            {"machine_ms", row.machine_ms},
                            {"encode_ms", row.encode_ms}});
}

std::string line_of(const ScaleRow& row) {
  return fmt::format(
      "{:>7} {:<20} {:>10.0f} {:>10.0f} {:>12.0f} {:>13.0f} {:>10.0f} {:>10.0f} "
      "{:>10.2f} {:>9.2f}",
      row.members, row.change, row.messages_in, row.messages_out, row.bytes_in, row.bytes_out,
      row.bytes_per_member_max, row.full_view_bytes, row.machine_ms, row.encode_ms);
}

/// Runs `mayfly simulate --members 10,100,1000`: prints means per change.
int measure(const ParsedArguments& arguments, Context& context) {
  const Result<std::uint64_t> changes = count_of(arguments, "changes", 10);
  if (!changes.ok() || changes.value() < 1 || changes.value() > 100'000) {
    return context.complain("--changes expects 1 to 100000", kExitUsage);
  }
  std::vector<std::uint32_t> sizes;
  std::string list = arguments.option("members");
  for (std::size_t end = 0; end != std::string::npos; list.erase(0, end + 1)) {
    end = list.find(',');
    const std::string text = list.substr(0, end);
    std::uint32_t size = 0;
    const auto [stop, error] = std::from_chars(text.data(), text.data() + text.size(), size);
    if (error != std::errc() || stop != text.data() + text.size() || size < 2 ||
        size > elastic::kMembersMax) {
      return context.complain("--members expects numbers from 2 to " +
                                  std::to_string(elastic::kMembersMax) + ", got '" + text + "'",
                              kExitUsage);
    }
    sizes.push_back(size);
    if (end == std::string::npos) {
      break;
    }
  }
  const bool json = arguments.has("json");
  if (!json) {
    context.out << "members change                messages in  and out     bytes in     bytes out  "
                   "view bytes  as a whole machine ms encode ms\n";
  }
  for (const std::uint32_t size : sizes) {
    ScaleOptions options;
    options.members = size;
    options.changes = static_cast<std::uint32_t>(changes.value());
    for (const ScaleRow& row : measure_scale(options, cpu_ms)) {
      context.out << (json ? json_of(row) : line_of(row)) << "\n" << std::flush;
    }
  }
  return kExitDone;
}

const cli::CommandSpec& command() {
  static const cli::CommandSpec spec = {
      .name = "simulate",
      .help = "run the machines of membership or parameter servers in simulated time, with faults",
      .options = {
          {"seeds", "N", "number of seeds (default 1000)"},
          {"first-seed", "S", "first seed (default 1)"},
          {"jobs", "J", "threads (default: one per core); the result does not depend on it"},
          {"world", "NAME",
           "membership (default), failover: coordinators die, standbys take over, or "
           "parameter-servers"},
          {"sabotage", "NAME", "plant a bug that the checkers must find"},
          {"members", "N,N,...", "instead: measure changes of view of jobs with that many members"},
          {"changes", "K", "with --members: changes of each kind (default 10)"},
          {"replay", "SEED", "run one seed and print its whole history"},
          {"json", "", "JSON lines: failing seeds, then the summary"}}};
  return spec;
}

int run(const ParsedArguments& arguments, Context& context) {
  const Result<SweepOptions> options = sweep_options(arguments);
  if (!options.ok()) {
    return context.complain(options.error());
  }
  if (!arguments.option("members").empty()) {
    return measure(arguments, context);
  }
  if (!arguments.option("replay").empty()) {
    const Result<std::uint64_t> seed = count_of(arguments, "replay", 0);
    return seed.ok() ? replay(seed.value(), options.value(), context)
                     : context.complain(seed.error());
  }
  SweepProgress progress(context, options.value().seeds);
  const Instant start = monotonic_now();
  const SweepResult result = sweep(
      options.value(),
      [&progress](std::uint64_t done, std::uint64_t failing) { progress.show(done, failing); });
  progress.erase();
  const double seconds = to_ms(monotonic_now() - start) / 1000;
  const bool json = arguments.has("json");
  for (const Outcome& failure : result.first) {
    context.out << (json ? json_of(failure) + "\n" : story_of(failure, kLinesShown));
  }
  context.out << (json ? json_of(options.value(), result, seconds)
                       : summary_line(options.value(), result))
              << "\n";
  return result.failing == 0 ? kExitDone : kExitFailed;
}

}  // namespace

int run_simulator(const std::vector<std::string>& words, Context& context) {
  const Result<ParsedArguments> parsed = cli::parse_arguments(command(), words);
  if (!parsed.ok()) {
    return context.complain(parsed.error().detail, kExitUsage);
  }
  if (parsed.value().help_asked) {
    context.out << cli::help_text(command());
    return kExitDone;
  }
  if (!parsed.value().positionals.empty()) {
    return context.complain("simulate: unexpected argument '" + parsed.value().positionals[0] + "'",
                            kExitUsage);
  }
  return run(parsed.value(), context);
}

}  // namespace mayfly::sim
