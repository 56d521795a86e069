#include "engine/run/unfinished_run.hpp"

#include <algorithm>
#include <array>
#include <charconv>
#include <filesystem>
#include <string_view>

#include "base/file.hpp"
#include "base/try_assign.hpp"
#include "elastic/core/view_log.hpp"
#include "engine/run/record_json.hpp"

namespace mayfly::engine {
namespace {

constexpr std::size_t kConfigBytesMax = std::size_t{1} << 20;
constexpr std::size_t kEndpointBytesMax = 512;
constexpr std::size_t kSummaryBytesMax = std::size_t{64} << 20;
constexpr std::size_t kLogBytesMax = std::size_t{256} << 20;

/// Settings of this process and not of the job, and paths, which may be written in many ways.
bool may_differ(const std::string& name) {
  constexpr std::array<std::string_view, 11> kOfTheProcess = {
      "bind_host",         "port",          "quiet",     "launched",
      "token_file",        "run_dir",       "cache_dir", "cloud_bundle",
      "cloud_bundle_port", "checkpoint_to", "data_from"};
  return std::find(kOfTheProcess.begin(), kOfTheProcess.end(), name) != kOfTheProcess.end();
}

}  // namespace

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

bool says_done(const std::string& run_dir) {
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

Result<JobConfig> config_to_go_on_with(const JobConfig& asked, const JobConfig& recorded) {
  JobConfig config = asked;
  if (!recorded.init_from.empty() && !asked.init_from.empty()) {
    config.init_from = recorded.init_from;
  }
  if (!recorded.resume.empty()) {
    config.resume = recorded.resume;
  }
  if (config.resume != recorded.resume) {
    return Error{Errc::kInvalidInput,
                 asked.run_dir +
                     " holds a job that is not over; without --resume it goes on. To "
                     "start it again from a checkpoint, remove " +
                     view_log_path(asked.run_dir)};
  }
  for (const Setting& setting : settings()) {
    const std::string ours = setting.get(config);
    const std::string theirs = setting.get(recorded);
    if (ours != theirs && !may_differ(setting.name)) {
      return Error{Errc::kInvalidInput, asked.run_dir + " holds a job that is not over and has " +
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
  std::uint16_t port = 0;
  if (text.ok()) {
    const std::string& endpoint = text.value();
    const std::size_t colon = endpoint.rfind(':');
    if (colon != std::string::npos) {
      std::from_chars(endpoint.data() + colon + 1, endpoint.data() + endpoint.size(), port);
    }
  }
  return port;
}

}  // namespace mayfly::engine
