#include "engine/run/run_history.hpp"

#include <algorithm>
#include <boost/json.hpp>
#include <filesystem>
#include <functional>

#include "base/file.hpp"
#include "base/text.hpp"

namespace mayfly::engine {
namespace {

namespace json = boost::json;

// A line per step: some hundred bytes for each of many millions.
constexpr std::size_t kHistoryBytesMax = std::size_t{4} << 30;

std::uint64_t whole(const json::object& object, const char* name) {
  return object.at(name).to_number<std::uint64_t>();
}
double real(const json::object& object, const char* name) {
  return object.at(name).to_number<double>();
}
std::string text(const json::object& object, const char* name) {
  return std::string(object.at(name).as_string());
}

/// Calls `use` for each complete line from `offset` on. What Boost.JSON throws about a line that is
/// not what we wrote ends here.
Result<void> for_each_line(const std::string& path, std::size_t offset,
                           const std::function<void(const json::object&)>& use) {
  const Result<std::string> content = read_text_file(path, kHistoryBytesMax);
  if (!content.ok()) {
    return content.error();
  }
  const std::string_view all = content.value();
  std::size_t begin = std::min(offset, all.size());
  auto line = static_cast<std::size_t>(
      std::count(all.begin(), all.begin() + static_cast<std::ptrdiff_t>(begin), '\n'));
  for (std::size_t end = 0; (end = all.find('\n', begin)) != std::string_view::npos;
       begin = end + 1) {
    ++line;
    try {
      use(json::parse(json::string_view(all.data() + begin, end - begin)).as_object());
    } catch (const std::exception& failure) {
      return Error{Errc::kCorrupt, path + " line " + std::to_string(line) +
                                       " is not a record of a run: " + reason_of(failure)};
    }
  }
  return {};
}

RecoveryRecord recovery_of(const json::object& o) {
  RecoveryRecord r;
  r.cause = text(o, "cause");
  for (const json::value& member : o.at("members").as_array()) {
    r.members.push_back(member.to_number<std::uint64_t>());
  }
  r.step = whole(o, "step");
  r.view = whole(o, "view");
  r.redone_microbatches = static_cast<std::uint32_t>(whole(o, "redone_microbatches"));
  r.told_ms = real(o, "told_ms");
  r.stopped_ms = real(o, "stopped_ms");
  r.formed_ms = real(o, "formed_ms");
  r.synced_ms = real(o, "synced_ms");
  r.step_ms = real(o, "step_ms");
  r.detail = o.contains("detail") ? text(o, "detail") : "";  // runs before it was recorded
  return r;
}

std::vector<std::pair<std::uint64_t, std::string>> members_of(const json::object& view) {
  const json::array& ids = view.at("members").as_array();
  const json::array& hosts = view.at("hosts").as_array();
  std::vector<std::pair<std::uint64_t, std::string>> members;
  for (std::size_t i = 0; i < std::min(ids.size(), hosts.size()); ++i) {
    members.emplace_back(ids[i].to_number<std::uint64_t>(), hosts[i].as_string());
  }
  return members;
}

/// The events of one part of a run, in order.
struct EventReader {
  RunHistory history;
  std::size_t metrics_begin = 0;
  bool has_restarted = false;
  std::uint64_t state_step = 0;
  std::string state_digest;

  void read(const json::object& event) {
    const std::string kind = text(event, "kind");
    if (kind == "started") {
      *this = {};
      metrics_begin = whole(event, "metrics_bytes");
    } else if (kind == "view" && event.contains("members")) {  // and not the note of it
      (void)history.view_published(whole(event, "view"), json::serialize(event.at("members")));
      history.current_step = event.contains("committed") ? whole(event, "committed") : 0;
      if (event.contains("hosts")) {
        history.took_part(history.current_step, members_of(event));
      }
    } else if (kind == "restarted" && event.contains("undone_samples")) {
      has_restarted = true;
      history.undone_samples += whole(event, "undone_samples");
      history.undone_views = history.view;
      history.undone_after = whole(event, "step");
      history.forget_after(history.undone_after);
    } else if (kind == "state") {
      state_step = whole(event, "step");
      state_digest = text(event, "digest");
    } else if (kind == "recovery") {
      history.recoveries.push_back(recovery_of(event.at("recovery").as_object()));
    } else if (kind == "evaluation") {
      history.evaluation = {whole(event, "step"), real(event, "test_top1"),
                            real(event, "test_loss")};
    } else if (kind == "checkpoint") {
      history.last_checkpoint = text(event, "detail");
      history.checkpoints.insert(whole(event, "step"));
    } else if (kind == "fell_back") {
      history.fell_back_at = whole(event, "at");
      history.fell_back_to = whole(event, "step");
      history.forget_after(history.fell_back_to);
    }
  }
};

void read_metric(RunHistory& history, const json::object& metric) {
  const std::uint64_t step = whole(metric, "step");
  const bool again = step <= history.last_step && !history.missing.contains(step);
  if (again && history.fell_back_at > 0 && step == history.fell_back_to + 1) {
    (void)history.fall_back(history.fell_back_to, whole(metric, "samples"));
  }
  for (std::uint64_t s = history.last_step + 1; history.last_step > 0 && s < step; ++s) {
    history.missing.insert(s);
  }
  history.missing.erase(step);
  if (history.first_step == 0) {
    history.first_step = step;
  }
  const std::uint64_t samples = whole(metric, "samples");
  const double rate = real(metric, "images_per_second");
  history.samples += samples;
  history.skipped_steps += metric.contains("skipped") ? 1 : 0;
  history.retried_steps += metric.contains("attempts") ? 1 : 0;
  if (rate > 0) {  // the first step of a member has none
    history.train_seconds += static_cast<double>(samples) / rate;
    history.data_wait_seconds += real(metric, "data_wait_ms") / 1000;
  }
  if (step >= history.last_step) {
    history.last_step = step;
    const json::value* digest = metric.if_contains("digest");
    if (digest != nullptr) {
      history.last_digest = std::string(digest->as_string());
      history.digest_step = step;
    }
  }
}

}  // namespace

std::uint64_t RunHistory::fall_back(std::uint64_t step, std::uint64_t samples_per_step) {
  if (step >= last_step) {
    return 0;
  }
  const std::uint64_t steps = last_step - step;
  missing.erase(missing.upper_bound(step), missing.end());
  const std::uint64_t undone = std::min(samples, steps * samples_per_step);
  samples -= undone;
  undone_samples += undone;
  last_step = current_step = step;
  forget_after(step);
  return steps;
}

std::uint64_t RunHistory::restart(std::uint64_t step, std::uint64_t samples_per_step) {
  const std::uint64_t undone = current_step - std::min(step, current_step);
  undone_samples += undone * samples_per_step;
  undone_views = view - std::min<std::uint64_t>(view, 1);
  undone_after = step;
  forget_after(step);
  return undone;
}

void RunHistory::reached(std::uint64_t step, const std::string& digest) {
  if (step < current_step) {
    last_digest.clear();
  }
  if (!digest.empty()) {
    last_digest = digest;
    digest_step = step;
  }
  current_step = step;
}

void RunHistory::has_state_of(std::uint64_t step, const std::string& digest) {
  for (std::uint64_t lost = last_step + 1; last_step > 0 && lost <= step; ++lost) {
    missing.insert(lost);
  }
  last_step = last_step > 0 ? std::max(last_step, step) : 0;
  reached(step, digest);
}

void RunHistory::took_part(std::uint64_t committed,
                           const std::vector<std::pair<std::uint64_t, std::string>>& members) {
  std::set<std::uint64_t> now;
  for (const auto& [id, host] : members) {
    now.insert(id);
    if (!present.contains(id)) {
      workers.push_back({id, host, committed, committed});
    }
  }
  for (WorkerStay& stay : workers) {
    if (present.contains(stay.member) && !now.contains(stay.member)) {
      stay.last_step = std::max(stay.last_step, committed);
    }
  }
  present = std::move(now);
}

std::vector<WorkerStay> RunHistory::stays() const {
  std::vector<WorkerStay> all = workers;
  for (WorkerStay& stay : all) {
    if (present.contains(stay.member)) {
      stay.last_step = std::max(stay.last_step, current_step);
    }
  }
  return all;
}

void RunHistory::forget_after(std::uint64_t step) {
  checkpoints.erase(checkpoints.upper_bound(step), checkpoints.end());
  if (evaluation && evaluation->step > step) {
    evaluation.reset();
  }
}

Result<RunHistory> read_run_history(const std::string& run_dir) {
  EventReader events;
  if (Result<void> read = for_each_line(run_dir + "/events.jsonl", 0,
                                        [&](const json::object& event) { events.read(event); });
      !read.ok()) {
    return read.error();
  }
  RunHistory history = std::move(events.history);
  const std::uint64_t of_last_view = history.current_step;
  std::uint64_t since_restart = of_last_view;
  if (Result<void> read = for_each_line(run_dir + "/metrics.jsonl", events.metrics_begin,
                                        [&](const json::object& metric) {
                                          read_metric(history, metric);
                                          if (whole(metric, "view") > history.undone_views) {
                                            since_restart =
                                                std::max(since_restart, whole(metric, "step"));
                                          }
                                        });
      !read.ok()) {
    return read.error();
  }
  // Steps that are computed again are not recorded again: if the job is among them, the next report
  // says how far it is.
  history.current_step = history.last_step;
  if (events.has_restarted && since_restart < history.last_step) {
    history.reached(since_restart, "");
  } else if (std::max(of_last_view, events.state_step) > history.last_step) {
    history.has_state_of(std::max(of_last_view, events.state_step), "");
  }
  if (events.state_step > 0 && events.state_step == history.current_step) {
    history.reached(events.state_step, events.state_digest);
  }
  return history;
}

}  // namespace mayfly::engine
