#include "observe/core/metrics_text.hpp"

#include <algorithm>
#include <cmath>
#include <functional>
#include <map>
#include <optional>
#include <set>
#include <string_view>

#include "base/text.hpp"
#include "observe/core/run_fold.hpp"

namespace mayfly::observe {
namespace {

using Labels = std::vector<std::pair<std::string, std::string>>;

std::string number_text(double value) {
  if (std::isnan(value)) {
    return "NaN";
  }
  if (std::isinf(value)) {
    return value > 0 ? "+Inf" : "-Inf";
  }
  return shortest_text(value);
}

std::string escaped(std::string_view text) {
  std::string out;
  for (const char c : text) {
    out += c == '\n'               ? std::string("\\n")
           : c == '\\' || c == '"' ? std::string{'\\', c}
                                   : std::string(1, c);
  }
  return out;
}

std::string label_text(const Labels& labels) {
  std::string out;
  for (const auto& [name, value] : labels) {
    out += (out.empty() ? "{" : ",") + name + "=\"" + escaped(value) + "\"";
  }
  return out.empty() ? out : out + "}";
}

enum class Type { kGauge, kCounter, kInfo, kStateSet, kHistogram };

/// A family, with its name before a format adds suffixes.
struct Family {
  const char* name;
  Type type;
  const char* unit;  // suffix of the name; empty = none
  const char* help;
};

class FamilyWriter {
 public:
  FamilyWriter(std::string& out, MetricsFormat format, const Family& family)
      : out_(out), format_(format), family_(family) {}

  void sample(const Labels& labels, double value, const std::string& suffix = "") {
    if (!has_head_) {
      head();
    }
    out_ += family_.name + suffix_of_type() + suffix + label_text(labels) + " " +
            number_text(value) + "\n";
  }

  void durations(Labels labels, const Durations& durations) {
    std::uint64_t sum = 0;
    labels.emplace_back("le", "");
    for (std::size_t i = 0; i < durations.counts.size(); ++i) {
      sum += durations.counts[i];
      const bool is_last = i == kDurationBounds.size();
      labels.back().second = is_last ? "+Inf" : number_text(kDurationBounds[i]);
      sample(labels, static_cast<double>(sum), "_bucket");
    }
    labels.pop_back();
    sample(labels, durations.sum, "_sum");
    sample(labels, static_cast<double>(sum), "_count");
  }

 private:
  [[nodiscard]] std::string suffix_of_type() const {
    return family_.type == Type::kCounter ? "_total" : family_.type == Type::kInfo ? "_info" : "";
  }

  void head() {
    has_head_ = true;
    const bool is_open = format_ == MetricsFormat::kOpenMetrics;
    const std::string name = family_.name + (is_open ? "" : suffix_of_type());
    const char* type = "gauge";
    switch (family_.type) {
      case Type::kGauge: break;
      case Type::kCounter: type = "counter"; break;
      case Type::kInfo: type = is_open ? "info" : "gauge"; break;
      case Type::kStateSet: type = is_open ? "stateset" : "gauge"; break;
      case Type::kHistogram: type = "histogram"; break;
    }
    out_ += "# HELP " + name + " " + family_.help + "\n# TYPE " + name + " " + type + "\n";
    if (is_open && family_.unit[0] != '\0') {
      out_ += "# UNIT " + name + " " + family_.unit + "\n";
    }
  }

  std::string& out_;
  MetricsFormat format_;
  const Family& family_;
  bool has_head_ = false;
};

const std::set<std::string> kCauses = {"lost",    "group_failed", "corrupted", "join",
                                       "promote", "leave",        "rebalance"};
constexpr std::array<const char*, 5> kPhases = {"start", "running", "waiting", "paused", "ended"};

}  // namespace

/// One run's samples of one family.
class MetricsReader {
 public:
  MetricsReader(const RunFold& fold, std::string run) : fold_(fold), run_(std::move(run)) {}

  [[nodiscard]] Labels labels(Labels more = {}) const {
    more.insert(more.begin(), {"run", run_});
    return more;
  }
  [[nodiscard]] std::string setting(const std::string& name) const {
    for (const auto& [key, value] : fold_.settings_) {
      if (key == name) {
        return value;
      }
    }
    return {};
  }
  [[nodiscard]] double setting_number(const std::string& name) const {
    return fold_.setting_number(name);
  }
  [[nodiscard]] const RunFold& fold() const { return fold_; }
  [[nodiscard]] const RunTotals& totals() const { return fold_.totals_; }
  [[nodiscard]] double origin() const { return fold_.origin_.value_or(0); }
  [[nodiscard]] std::string phase() const { return fold_.phase(); }
  [[nodiscard]] std::optional<double> last(Value value) const {
    const Curves& curves = fold_.kept();
    if (curves.rows() == 0 || std::isnan(curves.value(value, curves.rows() - 1))) {
      return std::nullopt;
    }
    return curves.value(value, curves.rows() - 1);
  }
  /// The evaluation of the highest step that is not undone, because evaluators may finish in
  /// another order. Null without one.
  [[nodiscard]] const EvaluationFact* newest_evaluation() const {
    const EvaluationFact* newest = nullptr;
    for (const EvaluationFact& one : fold_.evaluations_) {
      newest = !one.undone && (newest == nullptr || one.step >= newest->step) ? &one : newest;
    }
    return newest;
  }

 private:
  const RunFold& fold_;
  std::string run_;
};

namespace {

using Reader = std::function<void(const MetricsReader&, FamilyWriter&)>;

struct FamilyOfRun {
  Family family;
  Reader read;
};

Reader last_value(Value value) {
  return [value](const MetricsReader& run, FamilyWriter& out) {
    if (const std::optional<double> last = run.last(value)) {
      out.sample(run.labels(), *last);
    }
  };
}

Reader total(std::uint64_t RunTotals::*member) {
  return [member](const MetricsReader& run, FamilyWriter& out) {
    out.sample(run.labels(), static_cast<double>(run.totals().*member));
  };
}

template <typename Key>
void samples_by(const MetricsReader& run, FamilyWriter& out, const char* label,
                const std::map<std::string, Key>& counts) {
  for (const auto& [name, count] : counts) {
    out.sample(run.labels({{label, name}}), static_cast<double>(count));
  }
}

void write_members(const MetricsReader& run, FamilyWriter& out) {
  std::map<std::string, std::uint64_t> counts;
  for (const MemberPhase phase : {MemberPhase::kLoading, MemberPhase::kReady,
                                  MemberPhase::kObserving, MemberPhase::kActive}) {
    counts[name_of(phase)] = 0;
  }
  const bool has_ended = run.phase() == "ended";
  for (const MemberLane& lane : run.fold().members().lanes()) {
    if (lane.end.empty() && !has_ended) {
      ++counts[name_of(lane.spans.back().phase)];
    }
  }
  samples_by(run, out, "state", counts);
}

void write_speeds(const MetricsReader& run, FamilyWriter& out) {
  const Members& members = run.fold().members();
  std::vector<double> seconds;
  for (const MemberLane& lane : members.lanes()) {
    const std::vector<MemberMeasure> measures =
        lane.end.empty() ? members.measures_of(lane) : std::vector<MemberMeasure>();
    if (!measures.empty() && measures.back().microbatch_ms > 0) {
      seconds.push_back(measures.back().microbatch_ms / 1000);
    }
  }
  if (!seconds.empty()) {
    std::sort(seconds.begin(), seconds.end());
    out.sample(run.labels({{"stat", "fastest"}}), seconds.front());
    out.sample(run.labels({{"stat", "median"}}), seconds[seconds.size() / 2]);
    out.sample(run.labels({{"stat", "slowest"}}), seconds.back());
  }
}

void write_servers(const MetricsReader& run, FamilyWriter& out) {
  std::map<std::string, std::uint64_t> counts = {{"coming", 0}, {"working", 0}, {"leaving", 0}};
  for (const ServerLane& lane : run.fold().servers().lanes()) {
    if (!lane.ended && lane.end != "refused") {
      ++counts[!lane.end.empty() ? "leaving" : lane.joined ? "working" : "coming"];
    }
  }
  if (!run.fold().servers().lanes().empty()) {
    samples_by(run, out, "state", counts);
  }
}

void write_requests(const MetricsReader& run, FamilyWriter& out) {
  std::map<std::string, std::uint64_t> counts = {{"granted", 0}, {"refused", 0}};
  for (const ServerLane& lane : run.fold().servers().lanes()) {
    ++counts[lane.end == "refused" ? "refused" : "granted"];
  }
  if (!run.fold().servers().lanes().empty()) {
    samples_by(run, out, "outcome", counts);
  }
}

void write_recoveries(const MetricsReader& run, FamilyWriter& out) {
  std::map<std::string, Durations> by_cause;
  for (const RecoveryFact& recovery : run.fold().recoveries()) {
    const bool is_known = kCauses.contains(recovery.cause);  // else the records are not ours
    by_cause[is_known ? recovery.cause : "other"].add(kDurationBounds,
                                                      recovery.step - recovery.detected);
  }
  for (const auto& [cause, durations] : by_cause) {
    out.durations(run.labels({{"cause", cause}}), durations);
  }
}

void write_phases_of_recoveries(const MetricsReader& run, FamilyWriter& out) {
  std::map<std::string, double> seconds = {
      {"told", 0}, {"stopped", 0}, {"formed", 0}, {"synced", 0}, {"step", 0}};
  for (const RecoveryFact& r : run.fold().recoveries()) {
    double before = r.detected;
    for (const auto& [phase, until] :
         {std::pair("told", r.told), std::pair("stopped", r.stopped), std::pair("formed", r.formed),
          std::pair("synced", r.synced), std::pair("step", r.step)}) {
      seconds[phase] += std::max(0.0, until - before);
      before = std::max(before, until);
    }
  }
  samples_by(run, out, "phase", seconds);
}

Reader money(double MoneyPoint::*member) {
  return [member](const MetricsReader& run, FamilyWriter& out) {
    if (!run.fold().servers().points().empty()) {
      out.sample(run.labels(), run.fold().servers().points().back().*member);
    }
  };
}

Reader moment(std::optional<double> RunTotals::*member) {
  return [member](const MetricsReader& run, FamilyWriter& out) {
    if (const std::optional<double> t = run.totals().*member) {
      out.sample(run.labels(), run.origin() + *t);
    }
  };
}

std::vector<FamilyOfRun> families_of_steps() {
  return {
      {{"mayfly_job", Type::kInfo, "", "Model and settings of the job."},
       [](const MetricsReader& run, FamilyWriter& out) {
         Labels words;
         for (const char* name : {"model", "data", "device", "dtype", "backend", "reduction"}) {
           words.emplace_back(name, run.setting(name));
         }
         out.sample(run.labels(words), 1);
       }},
      {{"mayfly_job_phase", Type::kStateSet, "", "State of the job."},
       [](const MetricsReader& run, FamilyWriter& out) {
         for (const char* phase : kPhases) {
           out.sample(run.labels({{"mayfly_job_phase", phase}}), run.phase() == phase ? 1 : 0);
         }
       }},
      {{"mayfly_steps", Type::kCounter, "", "Committed steps, also those undone later."},
       total(&RunTotals::steps)},
      {{"mayfly_samples", Type::kCounter, "", "Samples of these steps."},
       total(&RunTotals::samples)},
      {{"mayfly_undone_steps", Type::kCounter, "", "Steps that were undone and are repeated."},
       total(&RunTotals::undone)},
      {{"mayfly_redone_microbatches", Type::kCounter, "",
        "Microbatches that were computed again because their holder was lost."},
       total(&RunTotals::redone_microbatches)},
      {{"mayfly_step_seconds", Type::kHistogram, "seconds", "Time from one commit to the next."},
       [](const MetricsReader& run, FamilyWriter& out) {
         out.durations(run.labels(), run.totals().step_seconds);
       }},
      {{"mayfly_step", Type::kGauge, "", "The last committed step."},
       [](const MetricsReader& run, FamilyWriter& out) {
         const Curves& curves = run.fold().kept();
         out.sample(run.labels(), curves.rows() == 0 ? 0 : curves.step(curves.rows() - 1));
       }},
      {{"mayfly_epoch", Type::kGauge, "", "Completed passes over the data."},
       last_value(Value::kEpoch)},
      {{"mayfly_images_per_second", Type::kGauge, "", "Speed of the last step."},
       last_value(Value::kImagesPerSecond)},
      {{"mayfly_loss", Type::kGauge, "", "Training loss of the last step."},
       last_value(Value::kLoss)},
      {{"mayfly_train_accuracy_ratio", Type::kGauge, "ratio", "Accuracy on the last global batch."},
       last_value(Value::kAccuracy)},
      {{"mayfly_test_accuracy_ratio", Type::kGauge, "ratio", "Accuracy on the test set."},
       [](const MetricsReader& run, FamilyWriter& out) {
         if (const EvaluationFact* newest = run.newest_evaluation()) {
           out.sample(run.labels(), newest->top1);
         }
       }},
      {{"mayfly_learning_rate", Type::kGauge, "", "Learning rate of the last step."},
       last_value(Value::kLearningRate)},
  };
}

std::vector<FamilyOfRun> families_of_members() {
  return {
      {{"mayfly_workers", Type::kGauge, "", "Members by activity."}, write_members},
      {{"mayfly_worker_microbatch_seconds", Type::kGauge, "seconds",
        "Time of a microbatch on the present members."},
       write_speeds},
      {{"mayfly_workers_wanted", Type::kGauge, "",
        "Wanted number of workers: the setting, or the last `mayfly scale`."},
       [](const MetricsReader& run, FamilyWriter& out) {
         out.sample(run.labels(), run.fold().workers_wanted());
       }},
      {{"mayfly_member_ends", Type::kCounter, "", "Former members by the reason of their end."},
       [](const MetricsReader& run, FamilyWriter& out) {
         std::map<std::string, std::uint64_t> counts = {{"lost", 0}, {"left", 0}, {"evicted", 0}};
         for (const MemberLane& lane : run.fold().members().lanes()) {
           if (counts.contains(lane.end)) {
             ++counts[lane.end];
           }
         }
         samples_by(run, out, "reason", counts);
       }},
      {{"mayfly_recovery_seconds", Type::kHistogram, "seconds",
        "Time from the detection of a change of members to the next committed step."},
       write_recoveries},
      {{"mayfly_recovery_phase_seconds", Type::kCounter, "seconds",
        "Time in the phases of all recoveries, each up to the instant that names it."},
       write_phases_of_recoveries},
      {{"mayfly_time_seconds", Type::kGauge, "seconds",
        "How the wall time of the job divides so far; the kinds add up to it."},
       [](const MetricsReader& run, FamilyWriter& out) {
         for (const TimeShare& share : run.fold().time_shares()) {
           out.sample(run.labels({{"kind", share.kind}}), share.seconds);
         }
       }},
      {{"mayfly_checkpoints", Type::kCounter, "", "Checkpoints that were written."},
       total(&RunTotals::checkpoints)},
      {{"mayfly_checkpoint_last_timestamp_seconds", Type::kGauge, "seconds",
        "When the last checkpoint was written."},
       moment(&RunTotals::last_checkpoint)},
      {{"mayfly_step_last_timestamp_seconds", Type::kGauge, "seconds",
        "When the last step was committed."},
       [](const MetricsReader& run, FamilyWriter& out) {
         const Curves& curves = run.fold().kept();
         if (curves.rows() > 0) {
           out.sample(run.labels(), run.origin() + curves.time(curves.rows() - 1));
         }
       }},
      {{"mayfly_coordinator_restarts", Type::kCounter, "", "Restarts of the coordinator."},
       total(&RunTotals::restarts)},
  };
}

std::vector<FamilyOfRun> families_of_servers() {
  return {
      {{"mayfly_servers", Type::kGauge, "", "Servers of a provider by state."}, write_servers},
      {{"mayfly_server_requests", Type::kCounter, "", "Answers to requests for servers."},
       write_requests},
      {{"mayfly_spent_currency", Type::kCounter, "", "Cost so far, in the currency of the prices."},
       money(&MoneyPoint::spent)},
      {{"mayfly_cost_per_hour_currency", Type::kGauge, "", "Cost of the next hour."},
       money(&MoneyPoint::per_hour)},
      {{"mayfly_budget_currency", Type::kGauge, "", "The setting `cloud_budget`."},
       [](const MetricsReader& run, FamilyWriter& out) {
         if (const double budget = run.setting_number("cloud_budget"); budget > 0) {
           out.sample(run.labels(), budget);
         }
       }},
  };
}

const std::vector<FamilyOfRun>& families() {
  static const std::vector<FamilyOfRun> all = [] {
    std::vector<FamilyOfRun> together = families_of_steps();
    for (std::vector<FamilyOfRun> (*more)() : {families_of_members, families_of_servers}) {
      for (FamilyOfRun& family : more()) {
        together.push_back(std::move(family));
      }
    }
    return together;
  }();
  return all;
}

}  // namespace

const char* content_type_of(MetricsFormat format) {
  return format == MetricsFormat::kOpenMetrics
             ? "application/openmetrics-text; version=1.0.0; charset=utf-8"
             : "text/plain; version=0.0.4; charset=utf-8";
}

MetricsFormat metrics_format_for(const std::string& accept) {
  return accept.find("application/openmetrics-text") != std::string::npos
             ? MetricsFormat::kOpenMetrics
             : MetricsFormat::kPrometheus;
}

std::string metrics_text(const std::vector<std::pair<std::string, const RunFold*>>& runs,
                         const std::vector<ProcessMetric>& process, MetricsFormat format) {
  std::string out;
  for (const FamilyOfRun& one : families()) {
    FamilyWriter writer(out, format, one.family);
    for (const auto& [name, fold] : runs) {
      one.read(MetricsReader(*fold, name), writer);
    }
  }
  for (const ProcessMetric& metric : process) {
    const Family family{metric.name, metric.is_counter ? Type::kCounter : Type::kGauge, "",
                        metric.help};
    FamilyWriter(out, format, family).sample({}, metric.value);
  }
  return format == MetricsFormat::kOpenMetrics ? out + "# EOF\n" : out;
}

}  // namespace mayfly::observe
