#include "engine/run/run_directory.hpp"

#include <algorithm>
#include <array>
#include <filesystem>
#include <string_view>
#include <utility>

#include "base/file.hpp"
#include "base/log.hpp"
#include "base/parse.hpp"
#include "base/time.hpp"
#include "base/try_assign.hpp"
#include "elastic/core/view_log.hpp"
#include "engine/run/checkpoint_store.hpp"
#include "engine/run/plan_file.hpp"
#include "engine/run/record_json.hpp"
#include "engine/run/run_history.hpp"

namespace mayfly::engine {
namespace {

namespace fs = std::filesystem;

bool is_inside(const std::string& path, const std::string& folder) {
  std::error_code failure;
  const fs::path inner = fs::weakly_canonical(path, failure);
  const fs::path outer = fs::weakly_canonical(folder, failure);
  if (failure) {
    return false;
  }
  const auto [end, unused] = std::mismatch(outer.begin(), outer.end(), inner.begin(), inner.end());
  return end == outer.end();
}

Result<void> make_tree(const std::string& path) {
  for (const char* folder : {"", "/logs", "/checkpoints", "/tb"}) {
    TRY(make_directories(path + folder));
  }
  return {};
}

/// A run in the folder, whose files would be mixed up with those of a run that is the folder
/// itself; empty = none.
std::string run_below(const std::string& folder) {
  std::error_code failure;
  for (fs::directory_iterator entry(folder, failure), last; !failure && entry != last;
       entry.increment(failure)) {
    std::error_code absent;
    if (fs::exists(entry->path() / "events.jsonl", absent)) {
      return entry->path().string();
    }
  }
  return "";
}

Result<void> refuse_foreign_run(const JobConfig& config, const std::string& path) {
  std::error_code ignored;
  if (!fs::exists(path + "/events.jsonl", ignored)) {
    const std::string below = run_below(path);
    return below.empty()
               ? Result<void>()
               : Error{Errc::kInvalidInput, path + " is a folder of runs, such as " + below +
                                                "; choose a --run-dir of its own for this one"};
  }
  if (!config.resume.empty() && is_inside(config.resume, path)) {
    return {};
  }
  const bool has_checkpoint = !steps_of_checkpoints(path + "/checkpoints").empty();
  return Error{Errc::kInvalidInput,
               path + " already holds a run; choose another --run-dir" +
                   (has_checkpoint ? ", or continue it with --resume " + path
                                   : ": it has no checkpoint to continue from")};
}

/// The text of the plan to write into the run directory. A run that is resumed keeps its own.
Result<std::string> plan_to_keep(const JobConfig& config, const std::string& path) {
  std::error_code ignored;
  const bool has_one = fs::exists(plan_path(path), ignored);
  return config.plan.empty() || has_one ? Result<std::string>(std::string())
                                        : read_plan_file(config.plan);
}

constexpr std::size_t kConfigBytesMax = std::size_t{1} << 20;
constexpr std::size_t kEndpointBytesMax = 512;
constexpr std::size_t kSummaryBytesMax = std::size_t{64} << 20;
constexpr std::size_t kLogBytesMax = std::size_t{256} << 20;

/// Settings of this process or of each worker, not of the job, and paths, which may be written in
/// many ways.
bool may_differ(const std::string& name) {
  constexpr std::array<std::string_view, 18> kOfTheProcess = {
      "bind_host", "port",        "quiet",         "launched",          "token_file",
      "run_dir",   "cache_dir",   "cloud_bundle",  "cloud_bundle_port", "checkpoint_to",
      "data_from", "dashboard",   "report",        "price_per_hour",    "plan",
      "store",     "store_peers", "prepared_store"};
  return std::find(kOfTheProcess.begin(), kOfTheProcess.end(), name) != kOfTheProcess.end();
}

}  // namespace

Result<std::unique_ptr<RunDirectory>> RunDirectory::create(const JobConfig& config,
                                                           const StartingPoint& start) {
  JobConfig resolved = config;
  const std::string& path = config.run_dir;
  TRY(refuse_foreign_run(config, path));
  TRY_ASSIGN(const std::string plan, plan_to_keep(config, path));
  TRY(make_tree(path));
  if (!plan.empty()) {
    TRY(write_file_atomic(plan_path(path), plan));
  }
  std::error_code failure;
  // As in a job file, the path of the plan is relative to the file that names it.
  resolved.plan = fs::exists(plan_path(path), failure) ? kPlanName : "";
  TRY(write_file_atomic(path + "/config.toml", to_toml(resolved)));
  TRY_ASSIGN(std::unique_ptr<RunDirectory> directory, open(resolved));
  // Earlier lines belong to a part that ended; see engine/run/run_history.
  const StartedEvent started{fs::file_size(path + "/metrics.jsonl", failure), start.step,
                             start.digest};
  directory->event(StartedEvent::kKind, object_of(started));
  return directory;
}

Result<std::unique_ptr<RunDirectory>> RunDirectory::reopen(const JobConfig& config) {
  TRY(make_tree(config.run_dir));
  return open(config);
}

Result<std::unique_ptr<RunDirectory>> RunDirectory::open(const JobConfig& config) {
  auto directory = std::make_unique<RunDirectory>();
  directory->path_ = config.run_dir;
  directory->opened_seconds_ = seconds_on_record(config.run_dir, wall_clock_seconds());
  for (const auto& [file, name] : {std::pair(&directory->events_, "/events.jsonl"),
                                   std::pair(&directory->metrics_, "/metrics.jsonl"),
                                   std::pair(&directory->members_, "/members.jsonl")}) {
    TRY_ASSIGN(*file, LineFile::open(config.run_dir + name, LineFile::Content::kLines));
  }
  if (config.tensorboard) {
    TRY_ASSIGN(directory->curves_,
               tensorboard::EventFile::create(config.run_dir + "/tb", wall_clock_seconds()));
  }
  return directory;
}

double RunDirectory::seconds_at(Instant when) const {
  constexpr int kMicrosecond = 6;
  return rounded(std::max(0.0, opened_seconds_ + to_seconds(when - opened_)), kMicrosecond);
}

void RunDirectory::event(const std::string& kind, const json::object& fields, Instant when) {
  last_event_seconds_ = std::max(last_event_seconds_, seconds_at(when));
  json::object line{{"time", wall_clock_seconds()}, {"t", last_event_seconds_}, {"kind", kind}};
  for (const auto& [name, value] : fields) {
    line[name] = value;
  }
  report(events_->append(json_text(line)));
}

void RunDirectory::metric(const StepRecord& record) {
  StepRecord r = record;
  r.t = r.t ? r.t : seconds_at(monotonic_now());
  report(metrics_->append(json_text(object_of(r))));
  std::vector<tensorboard::Scalar> scalars = {
      {"train/loss", static_cast<float>(r.loss)},
      {"train/accuracy", static_cast<float>(r.accuracy)},
      {"train/learning_rate", static_cast<float>(r.learning_rate)},
      {"train/images_per_second", static_cast<float>(r.images_per_second)},
      {"train/members", static_cast<float>(r.members)}};
  for (const OwnMetric& metric : r.own) {
    scalars.push_back({metric.name, static_cast<float>(metric.value)});
  }
  add_curves(r.step, scalars);
}

void RunDirectory::members(const std::vector<MemberRecord>& lines) {
  for (const MemberRecord& line : lines) {
    report(members_->append(json_text(object_of(line))));
  }
}

void RunDirectory::evaluation(const EvaluationRecord& r, Instant when) {
  event(EvaluationRecord::kKind, object_of(r), when);
  std::vector<tensorboard::Scalar> scalars = {{"test/top1", static_cast<float>(r.top1)},
                                              {"test/loss", static_cast<float>(r.loss)}};
  for (const OwnMetric& sum : r.sums) {
    scalars.push_back({sum.name, static_cast<float>(sum.value)});
  }
  add_curves(r.step, scalars);
}

Result<void> RunDirectory::summary(const Summary& summary) {
  return write_file_atomic(summary_path(path_), json_text(object_of(summary)) + "\n");
}

void RunDirectory::add_curves(std::uint64_t step, std::span<const tensorboard::Scalar> scalars) {
  if (curves_ != nullptr) {
    report(curves_->add(wall_clock_seconds(), step, scalars));
  }
}

/// Records are worth less than the training that they describe: a full disk is logged once.
void RunDirectory::report(const Result<void>& written) {
  if (!written.ok() && !std::exchange(error_logged_, true)) {
    log::error("run records are incomplete from here on: " + written.error().detail);
  }
}

std::string view_log_path(const std::string& run_dir) {
  return run_dir + "/view.log";
}

std::string summary_path(const std::string& run_dir) {
  return run_dir + "/summary.json";
}

bool holds_unfinished_job(const std::string& run_dir) {
  const Result<Bytes> log = read_file(view_log_path(run_dir), kLogBytesMax);
  if (!log.ok()) {
    return log.error().code != Errc::kNotFound;
  }
  const Result<elastic::LogContents> contents = elastic::ViewLog::replay(log.value());
  return !contents.ok() || !contents.value().ended.has_value() || !has_summary(run_dir);
}

bool has_summary(const std::string& run_dir) {
  std::error_code failure;
  return std::filesystem::exists(summary_path(run_dir), failure);
}

bool has_done_summary(const std::string& run_dir) {
  const Result<std::string> text = read_text_file(summary_path(run_dir), kSummaryBytesMax);
  bool is_done = false;
  return text.ok() &&
         with_object("", text.value(),
                     [&is_done](const json::object& summary) {
                       is_done = field_of<elastic::Outcome>(summary, "outcome") ==
                                 elastic::Outcome::kDone;
                     })
             .ok() &&
         is_done;
}

Result<JobConfig> config_of_run(const std::string& run_dir) {
  const std::string path = run_dir + "/config.toml";
  TRY_ASSIGN(const std::string text, read_text_file(path, kConfigBytesMax));
  JobConfig config;
  TRY(apply_toml(config, text, path));
  return config;
}

Result<JobConfig> config_to_continue_with(const JobConfig& asked, const JobConfig& recorded) {
  JobConfig config = asked;
  if (!recorded.init_from.empty() && !asked.init_from.empty()) {
    config.init_from = recorded.init_from;
  }
  if (!recorded.resume.empty()) {
    config.resume = recorded.resume;
  }
  if (config.resume != recorded.resume) {
    return Error{Errc::kInvalidInput, asked.run_dir +
                                          " contains an unfinished job, which continues without "
                                          "--resume. To start it again from a checkpoint, remove " +
                                          view_log_path(asked.run_dir)};
  }
  for (const Setting& setting : settings()) {
    const std::string ours = setting.get(config);
    const std::string theirs = setting.get(recorded);
    if (ours != theirs && !may_differ(setting.name)) {
      return Error{Errc::kInvalidInput, asked.run_dir + " contains an unfinished job and has " +
                                            setting.name + " '" + theirs + "', not '" + ours + "'"};
    }
  }
  return config;
}

std::uint16_t port_of_run(const std::string& run_dir) {
  return port_in(run_dir + "/coordinator");
}

std::uint16_t port_in(const std::string& path) {
  const Result<std::string> text = read_text_file(path, kEndpointBytesMax);
  std::string_view endpoint = text.ok() ? std::string_view(text.value()) : std::string_view();
  endpoint = endpoint.substr(0, endpoint.find_last_not_of(" \r\n") + 1);
  return number_in<std::uint16_t>(endpoint.substr(endpoint.rfind(':') + 1)).value_or(0);
}

}  // namespace mayfly::engine
