#include "cli/run_facts.hpp"

#include <fmt/chrono.h>
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <limits>
#include <map>
#include <set>
#include <thread>
#include <utility>

#include "base/file.hpp"
#include "base/net/addresses.hpp"
#include "base/parse.hpp"
#include "base/time.hpp"
#include "base/try_assign.hpp"
#include "engine/config/cloud_offers.hpp"
#include "engine/config/config.hpp"
#include "engine/run/member_record.hpp"
#include "engine/run/record_json.hpp"
#include "engine/run/run_directory.hpp"
#include "nn/model.hpp"
#include "observe/run_follower.hpp"

namespace mayfly::cli {
namespace {

namespace fs = std::filesystem;

using observe::MemberLane;
using observe::MemberPhase;
using observe::RunFold;
using observe::ServerLane;
using planner::RunFacts;

constexpr std::size_t kConfigBytesMax = 1 << 20;
constexpr double kBytesPerMb = 1e6;
constexpr double kSlackS = 1e-3;

/// Multiplications and additions of a step, forward and backward, in 1e9.
double gflops_of_step(const nn::Model& model, double batch) {
  constexpr double kPasses = 3;  // forward, and the gradients of the input and of the weights
  double sum = 2.0 * model.features * model.classes;
  for (const nn::ConvSpec* conv : nn::convolutions_of(model)) {
    sum += 2.0 * conv->kernel * conv->kernel * conv->in_channels * conv->out_channels *
           std::pow(conv->output_size(), 2);
  }
  return kPasses * sum * batch / 1e9;
}

/// The name of a machine type in a calibration, with '-' for the characters that separate the parts
/// of a cluster's text.
std::string as_machine(std::string name) {
  std::replace_if(
      name.begin(), name.end(), [](char c) { return c == ' ' || c == '+' || c == ','; }, '-');
  return name;
}

/// "TYPE in ZONE (MARKET)", as the records write an offer.
struct OfferText {
  explicit OfferText(const std::string& text) {
    const std::size_t bracket = std::min(text.find(" ("), text.size());
    const std::size_t in = std::min(text.find(" in "), bracket);
    machine = as_machine(text.substr(0, in));
    zone = in < bracket ? text.substr(in + 4, bracket - in - 4) : "";
    market = text.find("(spot)") == std::string::npos ? "on_demand" : "spot";
    is_known = in > 0 && text != "a server";
  }
  std::string machine, zone, market;
  bool is_known = false;
};

/// Whether the server was taken: its worker was lost, or has left because of a notice.
bool is_taken(const std::string& end, const std::string& detail) {
  return end == "lost" || (end == "left" && detail.starts_with("notice: "));
}

class FactsReader {
 public:
  FactsReader(const std::string& path, const RunKnowledge& knowledge, const RunFold& run)
      : path_(path), knowledge_(knowledge), run_(run) {}

  Result<RunFacts> read() {
    TRY(read_settings());
    read_begin();
    read_steps();
    if (facts_.steps.empty()) {
      return Error{Errc::kInvalidInput,
                   path_ + " has no undisturbed step, so nothing can be fitted"};
    }
    read_member_lines();
    TRY(read_servers());
    read_members();
    read_places();
    for (const observe::RecoveryFact& recovery : run_.recoveries()) {
      if (recovery.cause == "lost") {
        facts_.recoveries_s.push_back(recovery.synced - recovery.detected);
      }
    }
    read_checkpoints();
    return std::move(facts_);
  }

 private:
  void remark(const std::string& text) { facts_.remarks.push_back(text); }

  Result<void> read_settings() {
    const Result<engine::JobConfig> config = engine::config_of_run(path_);
    if (!config.ok()) {
      return Error{Errc::kInvalidInput,
                   path_ + " is no run of this version: " + config.error().detail};
    }
    config_ = config.value();
    const Result<nn::Model> usual =
        nn::make_usual_model(config_.model, static_cast<int>(config_.image_size));
    if (!usual.ok()) {
      return Error{Errc::kInvalidInput, path_ + ": " + usual.error().detail};
    }
    const nn::Model& model = usual.value();
    facts_.name = path_;
    facts_.model = config_.model;
    facts_.family = model.stem_pool ? "ImageNet ResNet" : "CIFAR ResNet";
    facts_.gflops = gflops_of_step(model, config_.global_batch);
    facts_.params = static_cast<double>(model.parameter_count);
    facts_.tensors = static_cast<double>(model.parameters.size());
    facts_.global_batch = config_.global_batch;
    facts_.microbatches = config_.global_batch / config_.microbatch;
    facts_.settings =
        fmt::format("{} pixels, batch {} of {}, {} on {}", model.image_size, config_.global_batch,
                    config_.microbatch, config_.dtype, config_.device);
    if (config_.threads > 0) {
      facts_.threads = config_.threads;
    } else {
      remark("the compute threads of its workers are not recorded: no rounds of microbatches");
    }
    return {};
  }

  void read_begin() {
    const auto begin =
        std::chrono::sys_seconds(std::chrono::seconds(static_cast<std::int64_t>(run_.origin())));
    const auto day = std::chrono::floor<std::chrono::days>(begin);
    const std::chrono::year_month_day date(day);
    facts_.date =
        fmt::format("{:04}-{:02}-{:02}", static_cast<int>(date.year()),
                    static_cast<unsigned>(date.month()), static_cast<unsigned>(date.day()));
    facts_.hour_of_day = static_cast<double>((begin - day).count()) / kSecondsPerHour;
  }

  /// Times in which steps were disturbed, and took longer.
  [[nodiscard]] std::vector<std::pair<double, double>> disturbances() const {
    std::vector<std::pair<double, double>> times;
    for (const observe::RecoveryFact& recovery : run_.recoveries()) {
      times.emplace_back(recovery.detected, recovery.step);
    }
    for (const observe::JobSpan& pause : run_.pauses_of_steps()) {
      times.emplace_back(pause.from, pause.to.value_or(run_.end()));
    }
    for (const observe::JobSpan& span : run_.spans()) {
      times.emplace_back(span.from, span.to.value_or(run_.end()));
    }
    return times;
  }

  void read_steps() {
    if (!config_.sync.empty() || !config_.phases.empty()) {
      remark(
          "it trained with parameter servers, whose steps are not recorded separately: no speeds");
    }
    const auto disturbed = disturbances();
    const observe::Curves& rows = run_.kept();
    for (std::size_t row = 0; row < rows.rows(); ++row) {
      const double rate = rows.value(observe::Value::kImagesPerSecond, row);
      const double members = rows.value(observe::Value::kMembers, row);
      if (!(rate > 0 && members > 0)) {
        continue;
      }
      const double seconds = config_.global_batch / rate;
      const double end = rows.time(row);
      const bool is_clean = std::ranges::none_of(disturbed, [&](const auto& time) {
        return time.first < end - kSlackS && time.second > end - seconds + kSlackS;
      });
      if (is_clean) {
        facts_.steps.push_back({seconds, static_cast<int>(members)});
      }
    }
    first_step_ = rows.rows() > 0 ? rows.time(0) : 0;
  }

  /// Reads facts that only members.jsonl has.
  void read_member_lines() {
    std::set<std::uint32_t> cores;
    std::set<std::pair<std::uint64_t, double>> gone;  // members whose last line may be repeated
                                                      // later
    const Result<void> read = engine::for_each_line(
        path_ + "/members.jsonl", 0, [this, &cores, &gone](const boost::json::object& line) {
          const auto member = engine::record_of<engine::MemberRecord>(line);
          if (member.cores > 0) {
            cores.insert(member.cores);
          }
          if (is_taken(member.phase, member.detail) &&
              gone.insert({member.member, member.joined}).second) {
            taken_.emplace(member.server, member.t);
          }
        });
    if (read.ok() && cores.size() == 1) {
      facts_.worker_cores = *cores.begin();
    } else if (cores.size() > 1) {
      remark("its workers may use different numbers of cores: its speeds are of all of them");
    }
  }

  /// Whether the worker of the server was taken before the server's next lane. A host of a list has
  /// a lane for each time that it is granted.
  [[nodiscard]] bool was_taken(const ServerLane& lane) const {
    double next = std::numeric_limits<double>::infinity();
    for (const ServerLane& other : run_.servers().lanes()) {
      if (other.server == lane.server && other.granted && *other.granted > *lane.granted) {
        next = std::min(next, *other.granted);
      }
    }
    const auto [first, last] = taken_.equal_range(lane.server);
    return std::any_of(first, last, [&](const auto& one) {
      return one.second >= *lane.granted - kSlackS && one.second < next;
    });
  }

  /// Reads the servers of a provider: their types, lifetimes and prices.
  Result<void> read_servers() {
    TRY_ASSIGN(const std::vector<cloud_hooks::OfferTerms> offers,
               engine::parse_offers(config_.cloud_offers));
    for (const cloud_hooks::OfferTerms& terms : offers) {
      facts_.prices.push_back({machine_of_offer(terms.offer),
                               cloud_hooks::to_string(terms.offer.market), terms.price_per_hour});
    }
    TRY_ASSIGN(const std::vector<cloud_hooks::OfferTerms> of_evaluators,
               engine::parse_offers(config_.evaluator_offers, "evaluator_offers"));
    std::set<std::string> for_evaluators;
    for (const cloud_hooks::OfferTerms& terms : of_evaluators) {
      for_evaluators.insert(cloud_hooks::to_string(terms.offer));
    }
    for (const ServerLane& lane : run_.servers().lanes()) {
      const OfferText offer(lane.offer);
      if (!lane.granted || !offer.is_known || for_evaluators.contains(lane.offer)) {
        continue;
      }
      const double end = lane.ended.value_or(run_.end());
      facts_.workers.push_back({offer.machine, offer.zone, *lane.granted, end - *lane.granted,
                                lane.end == "lost" || was_taken(lane),
                                lane.joined && *lane.joined < first_step_, lane.offer});
      if (lane.joined) {
        facts_.starts.push_back({offer.machine, offer.market, *lane.granted - lane.asked,
                                 *lane.joined - *lane.granted});
        machines_.insert(offer.machine);
      }
    }
    return {};
  }

  [[nodiscard]] std::string machine_of(const MemberLane& lane) const {
    return as_machine(knowledge_.machine.empty() ? lane.host : knowledge_.machine);
  }

  void read_members() {
    const bool has_provider = facts_.has_provider = !machines_.empty();
    const bool is_started_here = config_.hosts.empty() && config_.hostfile.empty() &&
                                 config_.coordinator.empty() && !config_.launched;
    for (const MemberLane& lane : run_.members().lanes()) {
      const double from = lane.spans.front().from;
      const bool is_first = from < first_step_ - kSlackS && first_view_has(lane);
      add_join(lane, is_first);
      hosts_.insert(lane.host);
      if (has_provider) {
        continue;
      }
      const double end = lane.end.empty() ? run_.end() : lane.end_t;
      facts_.workers.push_back(
          {machine_of(lane), "", from, end - from, is_taken(lane.end, lane.detail), is_first});
      machines_.insert(machine_of(lane));
      if (is_first && is_started_here) {
        facts_.starts.push_back({machine_of(lane), "on_demand", 0, from});
      }
    }
    for (const std::string& machine : machines_) {
      if (!has_provider && config_.price_per_hour > 0) {
        facts_.prices.push_back({machine, "on_demand", config_.price_per_hour});
      }
    }
  }

  /// Whether the member computed the first step.
  [[nodiscard]] bool first_view_has(const MemberLane& lane) const {
    return std::ranges::any_of(lane.spans, [&](const observe::MemberSpan& span) {
      return span.phase == MemberPhase::kActive && span.from <= first_step_;
    });
  }

  /// Adds the time of a join. A first worker that is ready waits for the other ones; a later one
  /// waits only for the end of a step.
  void add_join(const MemberLane& lane, bool is_first) {
    const observe::MemberSpan& loading = lane.spans.front();
    if (is_first && loading.to) {
      facts_.joins_s.push_back(*loading.to - loading.from);
    } else if (!is_first) {
      const auto active =
          std::ranges::find(lane.spans, MemberPhase::kActive, &observe::MemberSpan::phase);
      if (active != lane.spans.end() && active != lane.spans.begin()) {
        facts_.joins_s.push_back(active->from - loading.from);
      }
    }
  }

  /// Determines the machine type of all workers, and whether they share cores.
  void read_places() {
    if (!config_.sync.empty() || !config_.phases.empty()) {
      facts_.steps.clear();
    }
    if (machines_.size() == 1) {
      facts_.machine = *machines_.begin();
    } else if (knowledge_.machine.empty() && run_.servers().lanes().empty()) {
      remark(
          "its workers ran on several hosts, whose types are not recorded: if they are of one "
          "type, name it with --machine NAME");
    }
    const auto most = std::ranges::max_element(facts_.steps, {}, &planner::RunStep::members);
    const int members = most == facts_.steps.end() ? 0 : most->members;
    if (hosts_.size() > 1 && members > static_cast<int>(hosts_.size())) {
      remark("several workers shared a host: shared cores are modelled for jobs on one host only");
    }
    if (hosts_.size() != 1 || members < 2) {
      return;
    }
    if (knowledge_.cores > 0) {
      facts_.cores = knowledge_.cores;
    } else if (facts_.worker_cores > 0) {
      facts_.cores = facts_.worker_cores;
    } else if (*hosts_.begin() == host_name()) {
      facts_.cores = std::thread::hardware_concurrency();
    } else {
      remark("its workers shared host " + *hosts_.begin() +
             ", whose cores are not recorded: specify their number with --cores N");
    }
  }

  void read_checkpoints() {
    for (const observe::JobSpan& pause : run_.pauses_of_steps()) {
      if (pause.kind == "checkpoint") {
        facts_.checkpoints_s.push_back(*pause.to - pause.from);
      }
    }
    const Result<std::string> newest =
        read_text_file(path_ + "/checkpoints/latest", kConfigBytesMax);
    if (!newest.ok()) {
      return;
    }
    std::error_code failure;
    const fs::path folder = fs::path(path_) / "checkpoints" / trimmed(newest.value());
    double weights = 0;
    double meta = 0;
    for (fs::directory_iterator at(folder, failure), end; !failure && at != end;
         at.increment(failure)) {
      const bool is_weights = at->path().extension() == ".safetensors";
      (is_weights ? weights : meta) += static_cast<double>(at->file_size(failure)) / kBytesPerMb;
    }
    if (!failure && weights > 0) {
      facts_.weights_mb = weights;
      facts_.meta_mb = meta;
    }
  }

  const std::string& path_;
  const RunKnowledge& knowledge_;
  const RunFold& run_;
  engine::JobConfig config_;
  RunFacts facts_;
  double first_step_ = 0;
  std::set<std::string> machines_, hosts_;
  std::multimap<std::string, double> taken_;  // when workers were taken, by the servers' names
};

planner::RunCourse course_of(const RunFold& run) {
  planner::RunCourse course;
  const observe::Curves& rows = run.kept();
  for (std::size_t row = 0; row < rows.rows(); ++row) {
    const float members = rows.value(observe::Value::kMembers, row);
    const int count = members > 0 ? static_cast<int>(members) : 0;
    if (course.stretches.empty() || course.stretches.back().members != count) {
      course.stretches.push_back({count, 0});
    }
    course.stretches.back().steps += 1;
  }
  course.total_s = course.start_s = rows.time(rows.rows() - 1);
  for (const MemberLane& lane : run.members().lanes()) {
    for (const observe::MemberSpan& span : lane.spans) {
      if (span.phase == MemberPhase::kActive) {
        course.start_s = std::min(course.start_s, span.from);
      }
    }
  }
  for (const observe::JobSpan& span : run.spans()) {
    if (span.kind == "not_running") {
      course.was_resumed = true;
      course.not_running_s += span.to.value_or(run.end()) - span.from;
    }
  }
  for (const observe::JobSpan& pause : run.pauses_of_steps()) {
    if (pause.kind == "evaluation" && pause.to < course.total_s) {
      course.evaluations_s += *pause.to - pause.from;
    }
  }
  if (!run.servers().points().empty()) {
    course.cost = run.servers().points().back().spent;
  }
  return course;
}

}  // namespace

std::string machine_of_offer(const cloud_hooks::Offer& offer) {
  return OfferText(cloud_hooks::to_string(offer)).machine;
}

std::vector<OptionSpec> run_knowledge_options() {
  return {{"machine", "NAME", "of fit, check: machine type of workers without a provider (host)"},
          {"cores", "N", "of fit, check: cores of the host that the workers of a run shared"}};
}

Result<RunKnowledge> read_knowledge(const ParsedArguments& arguments) {
  RunKnowledge knowledge;
  knowledge.machine = arguments.option("machine");
  TRY(read_number(arguments, "cores", knowledge.cores));
  return knowledge;
}

Result<RunRecord> read_run_record(const std::string& path, const RunKnowledge& knowledge) {
  TRY_ASSIGN(const std::unique_ptr<observe::RunFollower> follower,
             observe::RunFollower::open(path));
  const RunFold& run = follower->fold();
  if (run.kept().rows() == 0) {
    return Error{Errc::kInvalidInput, path + " has no step on record"};
  }
  TRY_ASSIGN(planner::RunFacts facts, FactsReader(path, knowledge, run).read());
  return RunRecord{std::move(facts), course_of(run)};
}

}  // namespace mayfly::cli
