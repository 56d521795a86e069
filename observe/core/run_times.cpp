// Computes when the steps of a run were committed, and how its wall time divides.

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

const RunFold::RowNote& RunFold::note_of(const RowPlace& place) const {
  return place.is_kept ? kept_notes_[place.row] : undone_notes_[place.row];
}

double RunFold::time_of(const RowPlace& place) const {
  return place.is_kept ? kept_.time(place.row) : undone_.time(place.row);
}

void RunFold::place_row(const RowPlace& place, double t) {
  if (!place.is_kept) {
    undone_.set_time(place.row, t);
  } else if (kept_.time(place.row) != t) {
    kept_.set_time(place.row, t);
    first_changed_ = std::min(first_changed_, place.row);
  }
}

std::vector<RunFold::RowPlace> RunFold::rows_in_order(std::size_t first_kept) const {
  std::vector<RowPlace> rows;
  for (std::size_t i = first_kept; i < kept_.rows(); ++i) {
    rows.push_back({kept_notes_[i].offset, i, true});
  }
  for (std::size_t i = 0; first_kept == 0 && i < undone_.rows(); ++i) {
    rows.push_back({undone_notes_[i].offset, i, false});
  }
  std::sort(rows.begin(), rows.end(),
            [](const RowPlace& a, const RowPlace& b) { return a.offset < b.offset; });
  return rows;
}

/// Places the rows [first, end) one after the other from `from` on. They end at `to` at the latest:
/// for that their durations are shortened, or, if none is known, they are spread evenly. A row
/// without a duration takes that of the first row that has one.
void RunFold::place(const std::vector<RowPlace>& rows, std::size_t first, std::size_t end,
                    double from, std::optional<double> to) {
  double known = 0;
  std::size_t count = 0;
  std::optional<double> first_known;  // not the mean, which would move with later steps
  for (std::size_t i = first; i < end; ++i) {
    const std::optional<double> seconds = note_of(rows[i]).seconds;
    known += seconds.value_or(0);
    count += seconds ? 1 : 0;
    first_known = first_known ? first_known : seconds;
  }
  const double all = static_cast<double>(end - first);
  const double even = to ? std::max(0.0, *to - from) / all : 0;
  const double usual = first_known.value_or(even);
  const double sum = known + usual * (all - static_cast<double>(count));
  const double room = to ? std::max(0.0, *to - from) : sum;
  const double scale = sum > room ? room / sum : 1;
  double t = from;
  for (std::size_t i = first; i < end; ++i) {
    t += scale * note_of(rows[i]).seconds.value_or(usual);
    place_row(rows[i], t);
  }
}

void RunFold::place_part(JobPart& part, const std::vector<RowPlace>& rows, std::size_t first,
                         std::size_t end, std::optional<double> limit) {
  double t = part.begin;
  std::size_t next = first;
  std::size_t anchor = 0;
  while (next < end) {
    const RowNote& note = note_of(rows[next]);
    if (note.own_t) {
      t = std::max(t, *note.own_t + part.shift);
      place_row(rows[next], t);
      ++next;
      continue;
    }
    estimated_ = true;
    const auto has_own = [&](const RowPlace& row) { return note_of(row).own_t.has_value(); };
    const std::size_t run_end = static_cast<std::size_t>(
        std::find_if(rows.begin() + static_cast<std::ptrdiff_t>(next),
                     rows.begin() + static_cast<std::ptrdiff_t>(end), has_own) -
        rows.begin());
    while (next < run_end && anchor < part.anchors.size()) {
      const TimeAnchor& at = part.anchors[anchor++];
      std::size_t last = next;
      while (last < run_end && (rows[last].is_kept ? kept_.step(rows[last].row)
                                                   : undone_.step(rows[last].row)) <= at.step) {
        ++last;
      }
      if (last > next || next == first) {
        place(rows, next, last, t, std::max(t, at.t));
        t = std::max(t, at.t);
        next = last;
      }
    }
    if (next < run_end) {
      place(rows, next, run_end, t, limit);
      t = time_of(rows[run_end - 1]);
      next = run_end;
    }
  }
  if (end > first) {
    part.first_row = time_of(rows[first]);
    part.last_row = time_of(rows[end - 1]);
  }
}

void RunFold::settle() {
  const std::size_t facts = events_.size() + undone_.rows() + (summary_.empty() ? 0 : 1);
  if (facts == facts_settled_ && rows_settled_ == kept_.rows() && rows_settled_ > 0) {
    return;
  }
  // A row with a time of its own does not depend on other rows, and no later event moves it.
  if (facts == facts_settled_ && rows_settled_ > 0 && !estimated_ && !parts_.empty()) {
    const std::vector<RowPlace> rows = rows_in_order(rows_settled_);
    JobPart part = parts_.back();
    part.begin = kept_.time(rows_settled_ - 1);
    part.anchors.clear();
    place_part(part, rows, 0, rows.size(), std::nullopt);
    parts_.back().last_row = part.last_row;
    rows_settled_ = kept_.rows();
    if (!estimated_) {
      return;
    }
  }
  facts_settled_ = facts;
  rows_settled_ = kept_.rows();
  estimated_ = false;
  const std::vector<RowPlace> rows = rows_in_order(0);
  std::size_t first = 0;
  for (std::size_t p = 0; p < parts_.size(); ++p) {
    const bool is_last = p + 1 == parts_.size();
    std::size_t end = rows.size();
    if (!is_last) {
      const auto later = std::find_if(
          rows.begin() + static_cast<std::ptrdiff_t>(first), rows.end(),
          [&](const RowPlace& row) { return row.offset >= parts_[p + 1].metrics_bytes; });
      end = static_cast<std::size_t>(later - rows.begin());
    }
    const std::optional<double> limit = !is_last            ? std::optional(parts_[p + 1].begin)
                                        : !summary_.empty() ? std::optional(last_event_)
                                                            : std::nullopt;
    place_part(parts_[p], rows, first, end, limit);
    first = end;
  }
}

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
