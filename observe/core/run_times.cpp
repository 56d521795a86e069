// Computes how the wall time of a run divides.

#include <algorithm>
#include <array>

#include "observe/core/run_fold.hpp"

namespace mayfly::observe {
namespace {

/// Kinds of time that exclude each other: if several apply to an instant, the first one counts.
constexpr std::array<const char*, 9> kLostKinds = {"not_running", "no_coordinator", "paused",
                                                   "waiting",     "start",          "recovery",
                                                   "evaluation",  "checkpoint",     "undone"};
constexpr std::size_t kRecovery = 5;
constexpr std::size_t kUndone = 8;

struct Edge {
  double t;
  std::size_t kind;
  int change;
};

/// The seconds of each kind within [0, end].
std::array<double, kLostKinds.size()> divide(std::vector<Edge> edges, double end) {
  std::sort(edges.begin(), edges.end(), [](const Edge& a, const Edge& b) { return a.t < b.t; });
  std::array<double, kLostKinds.size()> seconds{};
  std::array<int, kLostKinds.size()> open{};
  double t = 0;
  for (const Edge& edge : edges) {
    const double next = std::clamp(edge.t, t, std::max(t, end));
    const auto first = std::find_if(open.begin(), open.end(), [](int count) { return count > 0; });
    if (first != open.end()) {
      seconds[static_cast<std::size_t>(first - open.begin())] += next - t;
    }
    open[edge.kind] += edge.change;
    t = next;
  }
  return seconds;
}

}  // namespace

std::vector<JobSpan> RunFold::spans() const {
  std::vector<JobSpan> spans = spans_;
  std::size_t part = 0;
  for (JobSpan& span : spans) {
    if (span.kind == "start" && part < parts_.size()) {
      const std::optional<double> first = parts_[part++].first_row;
      if (first) {
        span.to = std::min(span.to.value_or(*first), *first);
      } else if (!span.to && !summary_.empty()) {
        span.to = end();
      }
    } else if (span.kind == "not_running" && part > 0 && parts_[part - 1].last_row) {
      span.from = std::clamp(*parts_[part - 1].last_row, span.from, span.to.value_or(span.from));
    } else if (!span.to && !summary_.empty()) {
      span.to = end();
    }
  }
  return spans;
}

std::vector<JobSpan> RunFold::pauses_of_steps() const {
  std::vector<JobSpan> pauses;
  for (std::size_t row = 0; row < kept_.rows(); ++row) {
    const double end = kept_.time(row);
    const double begin = row > 0 ? kept_.time(row - 1) : 0;
    if (const double copying = kept_notes_[row].checkpoint; copying > 0) {
      pauses.push_back({std::max(begin, end - copying), end, "checkpoint", ""});
    }
  }
  for (const EvaluationFact& evaluation : evaluations_) {
    if (evaluation.seconds > 0) {
      pauses.push_back(
          {std::max(0.0, evaluation.t - evaluation.seconds), evaluation.t, "evaluation", ""});
    }
  }
  for (const RestartFact& restart : restarts_) {
    if (const double end = end_of(restart); end > restart.t) {
      pauses.push_back({restart.t, end, "undone", ""});
    }
  }
  return pauses;
}

/// The time at which the job has reached its earlier state again: its first new step begins, or its
/// part ends.
double RunFold::end_of(const RestartFact& restart) const {
  double end = this->end();
  for (const JobPart& part : parts_) {
    end = part.begin > restart.t ? std::min(end, part.begin) : end;
  }
  for (std::size_t row = 0; row < kept_.rows(); ++row) {
    const bool is_new = kept_.step(row) > restart.step + restart.undone;
    if (is_new && kept_.time(row) > restart.t) {
      return std::min(end, kept_.time(row) - kept_notes_[row].seconds.value_or(0));
    }
  }
  return end;
}

std::vector<TimeShare> RunFold::time_shares() const {
  const double wall = end();
  std::vector<Edge> edges;
  const auto add = [&](double from, double to, std::size_t kind) {
    edges.push_back({from, kind, 1});
    edges.push_back({std::max(from, to), kind, -1});
  };
  std::vector<JobSpan> all = spans();
  for (JobSpan& pause : pauses_of_steps()) {
    all.push_back(std::move(pause));
  }
  for (const JobSpan& span : all) {
    const auto kind = std::find_if(kLostKinds.begin(), kLostKinds.end(),
                                   [&](const char* name) { return span.kind == name; });
    const double to = span.to.value_or(wall);
    bool lost = true;
    for (std::size_t row = 0; span.kind == "no_coordinator" && row < kept_.rows(); ++row) {
      lost = lost && !(kept_.time(row) > span.from && kept_.time(row) < to);  // the job continued
    }
    if (kind != kLostKinds.end() && lost) {
      add(span.from, to, static_cast<std::size_t>(kind - kLostKinds.begin()));
    }
  }
  for (const RecoveryFact& recovery : recoveries_) {
    add(recovery.detected, recovery.step, kRecovery);
  }
  const std::array<double, kLostKinds.size()> seconds = divide(std::move(edges), wall);
  double rest = wall;
  std::vector<TimeShare> shares;
  for (std::size_t kind = 0; kind < kUndone; ++kind) {
    shares.push_back({kLostKinds[kind], seconds[kind]});
    rest -= seconds[kind];
  }
  double undone = seconds[kUndone];
  for (const RowNote& note : undone_notes_) {
    undone += note.seconds.value_or(0);
  }
  double waited = 0;
  for (std::size_t row = 0; row < kept_.rows(); ++row) {
    const float ms = kept_.value(Value::kWaitMs, row);
    waited += kept_notes_[row].seconds && ms > 0 ? ms / 1000.0 : 0;
  }
  for (const auto& [kind, most] : {std::pair("undone", undone), std::pair("data", waited)}) {
    const double share = std::clamp(most, 0.0, std::max(0.0, rest));
    shares.push_back({kind, share});
    rest -= share;
  }
  shares.push_back({"steps", std::max(0.0, rest)});
  return shares;
}

}  // namespace mayfly::observe
