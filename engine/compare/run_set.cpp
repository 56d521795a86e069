#include "engine/compare/run_set.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <map>
#include <set>
#include <sstream>
#include <string_view>
#include <utility>
#include <vector>

#include "base/file.hpp"
#include "base/process/child_process.hpp"
#include "base/try_assign.hpp"
#include "engine/config/setting_variables.hpp"
#include "engine/membership/exit_codes.hpp"
#include "engine/run/checkpoint_store.hpp"
#include "engine/run/member_record.hpp"
#include "engine/run/record_json.hpp"
#include "engine/run/run_directory.hpp"
#include "nn/model.hpp"

namespace mayfly::engine {
namespace {

constexpr std::size_t kSummaryBytesMax = std::size_t{1} << 30;
constexpr std::size_t kLossPoints = 60;  // enough for a chart; run directories have every step

void add_shard(RunResult& result, const ShardRecord& shard) {
  for (const auto& [age, count] : shard.staleness) {
    result.staleness[age] += count;
  }
  result.bytes += static_cast<double>(shard.bytes_in + shard.bytes_out);
  result.bytes_counted = true;
  result.leased_again += shard.leased_again;
  result.late += shard.late;
  result.at_once = std::max(result.at_once, shard.at_once);  // every shard counts the same slices
}

/// The events of a run; times are seconds since its first view.
class EventReader {
 public:
  EventReader(RunResult& result, const WorkSize& size) : result_(result), size_(size) {}

  void read(const json::object& event) {
    const auto kind = field_of<std::string>(event, "kind");
    const auto time = field_of<double>(event, "time");
    if (kind == ViewEvent::kKind && began_ == 0) {
      began_ = time;
    } else if (kind == EvaluationRecord::kKind) {
      result_.accuracy.emplace_back(time - began_, record_of<EvaluationRecord>(event).top1);
    } else if (kind == "straggler") {
      result_.stragglers.push_back(record_of<NoteRecord>(event).detail);
    } else if (kind == RecoveryEvent::kKind) {
      const RecoveryRecord recovery = record_of<RecoveryEvent>(event).recovery;
      result_.redone_samples += recovery.redone_microbatches * size_.microbatch;
      if (recovery.cause == elastic::ChangeCause::kLost ||
          recovery.cause == elastic::ChangeCause::kGroupFailed) {
        result_.recoveries_ms.push_back(recovery.step_ms);
      }
    } else if (kind == ShardRecord::kKind) {
      const auto shard = record_of<ShardRecord>(event);
      add_shard(result_, shard);
      slices_again_ = std::max(slices_again_, shard.leased_again);
    } else if (kind == "ps_servers" || kind == "ps_server_lost") {
      for (const json::value& server : event.at("servers").as_array()) {
        if (!field_of<bool>(server.as_object(), "computes")) {
          servers_.insert(field_of<std::uint64_t>(server.as_object(), "member"));
        }
      }
    }
  }
  [[nodiscard]] std::uint64_t samples_leased_again() const { return slices_again_ * size_.slice; }
  /// The members that are parameter servers.
  [[nodiscard]] const std::set<std::uint64_t>& servers() const { return servers_; }

 private:
  RunResult& result_;
  const WorkSize size_;
  std::uint64_t slices_again_ = 0;  // every shard has parts of the same slices
  std::set<std::uint64_t> servers_;
  double began_ = 0;
};

/// The steps of a run: the loss over time as a few means, and the number of steps for each number
/// of members.
struct StepReader {
  std::vector<std::pair<double, double>> losses;  // seconds, loss
  std::map<std::uint64_t, std::uint64_t> steps_by_members;
  double seconds = 0;

  void read(const StepRecord& step) {
    const double rate = step.images_per_second;
    seconds += rate > 0 ? static_cast<double>(step.samples) / rate : 0;
    if (std::isfinite(step.loss)) {
      losses.emplace_back(seconds, step.loss);
    }
    ++steps_by_members[step.members];
  }

  [[nodiscard]] std::vector<std::pair<double, double>> curve() const {
    std::vector<std::pair<double, double>> points;
    const std::size_t count = std::min(kLossPoints, losses.size());
    for (std::size_t i = 0; i < count; ++i) {
      const std::size_t first = losses.size() * i / count;
      const std::size_t last = losses.size() * (i + 1) / count;
      double sum = 0;
      for (std::size_t k = first; k < last; ++k) {
        sum += losses[k].second;
      }
      points.emplace_back(losses[last - 1].first, sum / static_cast<double>(last - first));
    }
    return points;
  }
};

/// The sum over all workers of the time from the connection to the end.
Result<double> worker_seconds_of(const std::string& run_dir,
                                 const std::set<std::uint64_t>& servers) {
  std::map<std::uint64_t, MemberRecord> last;
  TRY(for_each_line(run_dir + "/members.jsonl", 0, [&](const json::object& line) {
    auto member = record_of<MemberRecord>(line);
    last[member.member] = std::move(member);
  }));
  double seconds = 0;
  for (const auto& [number, member] : last) {
    seconds += servers.contains(number) ? 0 : member.t - member.joined;
  }
  return seconds;
}

/// Bytes that a job of all-reduces exchanges in a step: the gradients of its last checkpoint's
/// network, and its statistics, which always have 32 bits. 0 without a checkpoint.
double bytes_per_step(const std::string& run_dir, const WorkSize& size) {
  const Result<LoadedCheckpoint> checkpoint = load_checkpoint(run_dir);
  if (!checkpoint.ok()) {
    return 0;
  }
  const nn::CheckpointInfo& info = checkpoint.value().info;
  const Result<nn::Model> model = nn::make_model(info.model, info.classes);
  return model.ok() ? static_cast<double>(model.value().parameter_count * size.gradient_bytes +
                                          model.value().statistic_count * sizeof(float))
                    : 0;
}

Result<void> read_summary(const std::string& run_dir, RunResult& result) {
  const std::string path = summary_path(run_dir);
  TRY_ASSIGN(const std::string text, read_text_file(path, kSummaryBytesMax));
  return with_object(path + " is not a summary", text, [&](const json::object& object) {
    const auto summary = record_of<Summary>(object);
    result.outcome = summary.outcome;
    result.detail = summary.detail;
    result.steps = summary.steps;
    result.samples = summary.samples;
    result.redone_samples = summary.undone_samples;
    result.train_seconds = summary.train_seconds;
    result.images_per_second = summary.images_per_second;
    result.top1 = summary.test_top1.value_or(-1);
  });
}

namespace fs = std::filesystem;

constexpr Duration kPollInterval = seconds(1);
constexpr std::size_t kResultsBytesMax = std::size_t{1} << 30;

}  // namespace

double all_reduce_bytes(double bytes, std::uint64_t members) {
  return members < 2 ? 0 : 2 * bytes * static_cast<double>(members - 1);
}

Result<RunResult> read_run_result(const std::string& run_dir, const WorkSize& size) {
  RunResult result;
  TRY(read_summary(run_dir, result));
  EventReader events(result, size);
  StepReader steps;
  TRY(for_each_line(run_dir + "/events.jsonl", 0,
                    [&](const json::object& event) { events.read(event); }));
  TRY(for_each_line(run_dir + "/metrics.jsonl", 0,
                    [&](const json::object& line) { steps.read(record_of<StepRecord>(line)); }));
  result.loss = steps.curve();
  result.redone_samples += events.samples_leased_again();
  TRY_ASSIGN(result.worker_seconds, worker_seconds_of(run_dir, events.servers()));
  if (!result.bytes_counted) {
    const double bytes = bytes_per_step(run_dir, size);
    for (const auto& [members, count] : steps.steps_by_members) {
      result.bytes += static_cast<double>(count) * all_reduce_bytes(bytes, members);
    }
  }
  return result;
}

std::string to_json(const RunResult& result) {
  return json_text(object_of(result));
}

Result<RunResult> parse_run_result(const std::string& line) {
  RunResult result;
  TRY(with_object("not a result", line,
                  [&](const json::object& object) { result = record_of<RunResult>(object); }));
  return result;
}

/// Ensures that results of different settings are not mixed.
Result<void> RunSet::check_settings(const std::string& name, const std::string& settings) const {
  const std::string file = path(name);
  if (!fs::exists(file)) {
    return write_file_atomic(file, std::string_view(settings));
  }
  TRY_ASSIGN(const std::string before, read_text_file(file, kResultsBytesMax));
  std::istringstream old_lines(before);
  std::istringstream new_lines(settings);
  for (std::string was, is; std::getline(old_lines, was) && std::getline(new_lines, is);) {
    if (was != is) {
      return Error{Errc::kInvalidInput, fmt::format("{} holds runs with {}, not {}; choose another "
                                                    "--output",
                                                    folder_, was, is)};
    }
  }
  return before == settings
             ? Result<void>()
             : Result<void>(
                   Error{Errc::kInvalidInput,
                         folder_ + " holds runs by another version; choose another --output"});
}

Result<void> RunSet::read_results() {
  if (!fs::exists(path("results.jsonl"))) {
    return {};
  }
  TRY_ASSIGN(const std::string text, read_text_file(path("results.jsonl"), kResultsBytesMax));
  std::istringstream lines(text);
  for (std::string line; std::getline(lines, line) && !lines.eof();) {  // without a torn last line
    Result<RunResult> result = parse_run_result(line);
    if (!result.ok()) {
      return Error{Errc::kCorrupt, path("results.jsonl") + ": " + result.error().detail};
    }
    const std::string id = result.value().id;
    results_[id] = std::move(result).value();
  }
  return {};
}

Result<void> RunSet::open(const std::string& name, const std::string& settings) {
  TRY(make_directories(path("runs")));
  TRY(check_settings(name, settings));
  TRY(read_results());
  TRY_ASSIGN(std::unique_ptr<LineFile> file,
             LineFile::open(path("results.jsonl"), LineFile::Content::kLines));
  file_ = std::move(file);
  return {};
}

const RunResult* RunSet::find(const std::string& id) const {
  const auto place = results_.find(id);
  return place == results_.end() ? nullptr : &place->second;
}

/// The folder of a run that was interrupted is not used again: its processes may still be ending.
std::string RunSet::free_run_dir(const std::string& id) const {
  std::string run_dir = path("runs/" + id);
  for (int attempt = 2; fs::exists(run_dir) || fs::exists(run_dir + ".log"); ++attempt) {
    run_dir = path(fmt::format("runs/{}-{}", id, attempt));
  }
  return run_dir;
}

Result<RunResult> RunSet::start(const CompareCell& cell) const {
  const std::string run_dir = free_run_dir(cell.id);
  const std::string log = run_dir + ".log";
  // The same executable, even if the file was rebuilt meanwhile: otherwise two versions would be
  // compared.
  std::vector<std::string> words = {"/proc/self/exe", "train", "--quiet", "--run-dir", run_dir};
  append_job(words, false, cell.settings);
  // The job gets no settings from the environment, which may differ when the comparison is
  // continued.
  TRY_ASSIGN(ChildProcess child, ChildProcess::start(words, {}, log, setting_variables()));
  while (!child.wait_until(monotonic_now() + kPollInterval)) {
  }
  Result<RunResult> result = read_run_result(run_dir, cell.size);
  if (!result.ok()) {
    return Error{Errc::kIo, fmt::format("run {} did not end as expected: {} (see {})", cell.id,
                                        last_line_of_log(log), log)};
  }
  if (result.value().outcome == elastic::Outcome::kStopped) {
    return Error{Errc::kAborted, "run " + cell.id + " was stopped"};
  }
  result.value().id = cell.id;
  result.value().variant = cell.variant;
  result.value().condition = cell.condition;
  result.value().seed = cell.seed;
  return result;
}

Result<void> RunSet::run(const CompareCell& cell) {
  TRY_ASSIGN(RunResult result, start(cell));
  TRY(file_->append(to_json(result)));
  results_[cell.id] = std::move(result);
  return {};
}

int run_set_exit_code(const Error& error) {
  return error.code == Errc::kInvalidInput ? kExitUsage
         : error.code == Errc::kAborted    ? kExitStopped
                                           : kExitFailed;
}

}  // namespace mayfly::engine
