#include "engine/run/run_directory.hpp"

#include <algorithm>
#include <ctime>
#include <filesystem>

#include "base/file.hpp"
#include "base/log.hpp"
#include "base/time.hpp"
#include "engine/run/json_text.hpp"
#include "engine/run/line_file.hpp"
#include "engine/run/run_records.hpp"
#include "engine/run/tensorboard.hpp"
#include "engine/run/unfinished_run.hpp"

namespace mayfly::engine {
namespace {

namespace fs = std::filesystem;

/// runs/<model>-<date>-<time>, with -2, -3, ... if somebody else started in the same second.
std::string free_default_path(const std::string& model) {
  const std::time_t now = std::time(nullptr);
  std::tm local{};
  ::localtime_r(&now, &local);
  char stamp[32];
  std::strftime(stamp, sizeof stamp, "%Y%m%d-%H%M%S", &local);
  const std::string base = "runs/" + model + "-" + stamp;
  std::string path = base;
  std::error_code ignored;
  for (int n = 2; fs::exists(path, ignored); ++n) {
    path = base + "-" + std::to_string(n);
  }
  return path;
}

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

class RunDirectoryOnDisk final : public RunDirectory {
 public:
  RunDirectoryOnDisk(std::string path, std::unique_ptr<LineFile> events,
                     std::unique_ptr<LineFile> metrics,
                     std::unique_ptr<tensorboard::EventFile> curves)
      : path_(std::move(path)),
        events_(std::move(events)),
        metrics_(std::move(metrics)),
        curves_(std::move(curves)) {}

  const std::string& path() const override { return path_; }

  void event(const std::string& kind,
             const std::vector<std::pair<std::string, std::string>>& fields) override {
    JsonObject object;
    object.add("time", json_number(wall_clock_seconds())).add("kind", json_string(kind));
    for (const auto& [name, json] : fields) {
      object.add(name, json);
    }
    report(events_->append(object.text()));
  }

  void metric(const StepMetric& m) override {
    report(metrics_->append(to_json(m)));
    const tensorboard::Scalar scalars[] = {
        {"train/loss", static_cast<float>(m.loss)},
        {"train/accuracy", static_cast<float>(m.accuracy)},
        {"train/learning_rate", static_cast<float>(m.learning_rate)},
        {"train/images_per_second", static_cast<float>(m.images_per_second)},
        {"train/members", static_cast<float>(m.members)}};
    add_curves(m.step, scalars);
  }

  void evaluation(std::uint64_t step, double top1, double loss) override {
    event("evaluation", {{"step", json_number(step)},
                         {"test_top1", json_number(top1)},
                         {"test_loss", json_number(loss)}});
    const tensorboard::Scalar scalars[] = {{"test/top1", static_cast<float>(top1)},
                                           {"test/loss", static_cast<float>(loss)}};
    add_curves(step, scalars);
  }

  void recovery(const RecoveryRecord& record) override {
    event("recovery", {{"recovery", to_json(record)}});
  }

  Result<void> summary(const Summary& s) override {
    return write_file_atomic(summary_path(path_), to_json(s) + "\n");
  }

 private:
  void add_curves(std::uint64_t step, std::span<const tensorboard::Scalar> scalars) {
    if (curves_ != nullptr) {
      report(curves_->add(wall_clock_seconds(), step, scalars));
    }
  }

  /// Records are worth less than the training they describe: a full disk is said once.
  void report(const Result<void>& written) {
    if (!written.ok() && !complained_) {
      complained_ = true;
      log::error("run records are incomplete from here on: " + written.error().detail);
    }
  }

  std::string path_;
  std::unique_ptr<LineFile> events_;
  std::unique_ptr<LineFile> metrics_;
  std::unique_ptr<tensorboard::EventFile> curves_;  // null if switched off
  bool complained_ = false;
};

Result<void> make_tree(const std::string& path) {
  for (const char* folder : {"", "/logs", "/checkpoints", "/tb"}) {
    TRY(make_directories(path + folder));
  }
  return {};
}

Result<void> refuse_foreign_run(const JobConfig& config, const std::string& path) {
  std::error_code ignored;
  if (!fs::exists(path + "/events.jsonl", ignored)) {
    return {};
  }
  if (!config.resume.empty() && is_inside(config.resume, path)) {
    return {};
  }
  return Error{Errc::kInvalidInput,
               path +
                   " already holds a run; choose another --run-dir, or continue it with "
                   "--resume " +
                   path};
}

Result<std::unique_ptr<tensorboard::EventFile>> open_curves(const JobConfig& config,
                                                            const std::string& path) {
  if (!config.tensorboard) {
    return std::unique_ptr<tensorboard::EventFile>();
  }
  return tensorboard::create_event_file(path + "/tb", wall_clock_seconds());
}

Result<std::unique_ptr<RunDirectory>> open_records(const JobConfig& config) {
  const std::string& path = config.run_dir;
  auto events = LineFile::open(path + "/events.jsonl", LineFile::Content::kLines);
  if (!events.ok()) {
    return std::move(events).error();
  }
  auto metrics = LineFile::open(path + "/metrics.jsonl", LineFile::Content::kLines);
  if (!metrics.ok()) {
    return std::move(metrics).error();
  }
  auto curves = open_curves(config, path);
  if (!curves.ok()) {
    return std::move(curves).error();
  }
  return std::unique_ptr<RunDirectory>(std::make_unique<RunDirectoryOnDisk>(
      path, std::move(events).value(), std::move(metrics).value(), std::move(curves).value()));
}

}  // namespace

Result<std::unique_ptr<RunDirectory>> RunDirectory::create(const JobConfig& config) {
  const std::string path =
      config.run_dir.empty() ? free_default_path(config.model) : config.run_dir;
  TRY(refuse_foreign_run(config, path));
  TRY(make_tree(path));
  JobConfig resolved = config;
  resolved.run_dir = path;
  if (Result<void> saved = write_file_atomic(path + "/config.toml", to_toml(resolved));
      !saved.ok()) {
    return saved.error();
  }
  Result<std::unique_ptr<RunDirectory>> opened = open_records(resolved);
  if (opened.ok()) {
    std::error_code failure;
    const std::uintmax_t metrics_bytes = fs::file_size(path + "/metrics.jsonl", failure);
    // What came before belongs to a part that ended; see engine/run/run_history.
    opened.value()->event("started",
                          {{"metrics_bytes", json_number(std::uint64_t{metrics_bytes})}});
  }
  return opened;
}

Result<std::unique_ptr<RunDirectory>> RunDirectory::reopen(const JobConfig& config) {
  TRY(make_tree(config.run_dir));
  return open_records(config);
}

}  // namespace mayfly::engine
