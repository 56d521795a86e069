#include "benchmarks/reform/reform_bench.hpp"

#include <fmt/format.h>
#include <algorithm>
#include <memory>
#include <thread>
#include <utility>
#include <vector>

#include "base/file.hpp"
#include "base/process/child_process.hpp"
#include "base/random.hpp"
#include "base/try_assign.hpp"
#include "benchmarks/bench_arguments.hpp"
#include "benchmarks/machine_facts.hpp"
#include "benchmarks/ranks/control_hub.hpp"
#include "benchmarks/ranks/rank_session.hpp"
#include "benchmarks/reform/reform_report.hpp"
#include "engine/membership/exit_codes.hpp"

namespace mayfly::bench {
namespace {

constexpr Duration kJoinTimeout = seconds(60);
constexpr Duration kChangeTimeout = seconds(60);
constexpr double kKillWithinSeconds = 0.05;  // a kill may happen at any moment of an all-reduce
constexpr const char* kName = "reform";

struct TeamMember {
  std::uint64_t id = 0;
  std::size_t connection = 0;
  std::string address;
  ChildProcess process;
};

class Driver {
 public:
  Driver(const ReformBenchOptions& options, ControlHub& hub)
      : options_(options), hub_(hub), random_(CounterRandom(1).split("bench reform")) {}

  Result<std::vector<ReformTrial>> run() {
    for (std::uint32_t i = 0; i < options_.ranks; ++i) {
      TRY(add_member());
    }
    Result<ReformTrial> formed = change_view();
    for (std::uint32_t i = 0; formed.ok() && i < options_.kills; ++i) {
      formed = one_trial();
    }
    return formed.ok() ? Result<std::vector<ReformTrial>>(std::move(trials_))
                       : std::move(formed).error();
  }

 private:
  /// Makes a planned change of all members, then a loss, then lets a replacement join.
  Result<ReformTrial> one_trial() {
    wait_a_while();
    Result<ReformTrial> planned = change_view();
    if (!planned.ok()) {
      return planned;
    }
    trials_.push_back(planned.value());
    wait_a_while();
    TeamMember victim = take_victim();
    Result<ReformTrial> loss = change_view(&victim.process);
    hub_.close(victim.connection);
    if (!loss.ok()) {
      return loss;
    }
    trials_.push_back(loss.value());
    TRY(add_member());
    return change_view();
  }

  void wait_a_while() {
    std::this_thread::sleep_for(
        Duration(static_cast<std::int64_t>(random_.unit() * kKillWithinSeconds * 1e9)));
  }

  TeamMember take_victim() {
    const auto place =
        members_.begin() + static_cast<std::ptrdiff_t>(random_.below(members_.size()));
    TeamMember victim = std::move(*place);
    members_.erase(place);
    return victim;
  }

  Result<void> add_member() {
    TRY_ASSIGN(ChildProcess process,
               ChildProcess::start({own_program(), kRankCommand, kName, options_.backend,
                                    "--control", hub_.path(), "--name", kName},
                                   {}, hub_.folder() + "/members.log"));
    TeamMember member{++last_id_, 0, {}, std::move(process)};
    const Instant deadline = monotonic_now() + kJoinTimeout;
    while (member.address.empty()) {
      TRY_ASSIGN(const ControlHub::Message message, hub_.next(deadline));
      TRY(hear_from_new(message, member));
    }
    members_.push_back(std::move(member));
    return {};
  }

  static Result<void> hear_from_new(const ControlHub::Message& message, TeamMember& member) {
    if (message.line.starts_with("hello ")) {
      member.connection = message.connection;
    } else if (message.connection != member.connection) {
      return {};
    } else if (message.line.starts_with("address ")) {
      member.address = rest_of_line(message.line, 1);
    } else {
      return Error{Errc::kUnsupported, "a member cannot start: " + rest_of_line(message.line, 2)};
    }
    return {};
  }

  /// Kills `victim`, if given, tells all members to form the next view, and waits until each has
  /// its first right sum.
  Result<ReformTrial> change_view(ChildProcess* victim = nullptr) {
    ++view_;
    std::string peers;
    for (const TeamMember& member : members_) {
      peers += fmt::format(" {} {}", member.id, member.address);
    }
    if (victim != nullptr) {
      victim->send_kill();
    }
    const Instant told = monotonic_now();
    for (std::size_t rank = 0; rank < members_.size(); ++rank) {
      const std::string order = fmt::format("view {} {} {}{}", view_, rank, random_key(), peers);
      TRY(hub_.send(members_[rank].connection, order));
    }
    return hear_sums(told, victim != nullptr);
  }

  /// The same key for all members of a view.
  [[nodiscard]] std::uint64_t random_key() const { return view_ * 0x9e3779b97f4a7c15U; }

  Result<ReformTrial> hear_sums(Instant told, bool loss) {
    ReformTrial trial;
    trial.loss = loss;
    for (std::size_t missing = members_.size(); missing > 0;) {
      TRY_ASSIGN(const ControlHub::Message message, hub_.next(told + kChangeTimeout));
      const bool ours = std::any_of(members_.begin(), members_.end(), [&](const TeamMember& m) {
        return m.connection == message.connection;
      });
      if (!ours) {
        continue;  // a message of the killed process
      }
      if (message.gone || !take_sum(message.line, told, trial)) {
        return Error{Errc::kPeerLost,
                     fmt::format("view {} of {} members: {}", view_, members_.size(),
                                 message.gone ? "a member is gone" : message.line)};
      }
      --missing;
    }
    return trial;
  }

  bool take_sum(const std::string& line, Instant told, ReformTrial& trial) const {
    const std::vector<std::string> words = words_of(line);
    if (words.size() != 6 || words[0] != "sum" || words[1] != std::to_string(view_)) {
      return false;
    }
    const auto since = [&words, told](std::size_t i) {
      return to_ms(Instant{std::strtoll(words[i].c_str(), nullptr, 10)} - told);
    };
    trial.heard_ms = std::max(trial.heard_ms, since(2));
    trial.stopped_ms = std::max(trial.stopped_ms, since(3));
    trial.formed_ms = std::max(trial.formed_ms, since(4));
    trial.sum_ms = std::max(trial.sum_ms, since(5));
    trial.known_ms = to_ms(monotonic_now() - told);
    return true;
  }

  const ReformBenchOptions& options_;
  ControlHub& hub_;
  RandomStream random_;
  std::vector<TeamMember> members_;
  std::vector<ReformTrial> trials_;
  std::uint64_t view_ = 0;
  std::uint64_t last_id_ = 0;
};

cli::CommandSpec reform_spec() {
  cli::CommandSpec spec;
  spec.name = "bench reform";
  spec.help = "milliseconds from the news of a loss to the first correct sum of the next view";
  spec.options = {{"ranks", "N", "members before each kill (default 8)"},
                  {"backend", "NAME", "tcp, unix (default) or gloo"},
                  {"kills", "N", "how many (default 50)"},
                  {"json", "", "one JSON object per trial and one with the percentiles"}};
  return spec;
}

Result<ReformBenchOptions> reform_options(const cli::ParsedArguments& arguments) {
  ReformBenchOptions options;
  options.backend = arguments.option("backend", options.backend);
  options.json = arguments.has("json");
  TRY(cli::read_number(arguments, "ranks", options.ranks));
  TRY(cli::read_number(arguments, "kills", options.kills));
  if (options.ranks < 2 || options.ranks > kRanksMax) {
    return bad_flag("ranks", std::to_string(options.ranks),
                    fmt::format("a number from 2 to {}", kRanksMax));
  }
  if (options.backend != "tcp" && options.backend != "unix" && options.backend != "gloo") {
    return bad_flag("backend", options.backend, "tcp, unix or gloo");
  }
  return options;
}

}  // namespace

int bench_reform(const ReformBenchOptions& options) {
  const std::string machine =
      machine_line(fmt::format(R"(, "bench": "reform", "kills": {})", options.kills));
  const Result<std::unique_ptr<ControlHub>> hub = ControlHub::open();
  if (!hub.ok()) {
    return engine::refuse(hub.error(), engine::kExitFailed);
  }
  Driver driver(options, *hub.value());
  const Result<std::vector<ReformTrial>> trials = driver.run();
  if (!trials.ok()) {
    return engine::refuse(trials.error(), engine::kExitFailed);
  }
  if (options.json) {
    fmt::print("{}\n{}", machine, to_json_lines(trials.value(), options.backend, options.ranks));
  } else {
    fmt::print("{}", to_text(trials.value(), options.backend, options.ranks));
  }
  return engine::kExitDone;
}

BenchCommand reform_command() {
  return make_command(reform_spec(), reform_options, &Benches::reform);
}

}  // namespace mayfly::bench
