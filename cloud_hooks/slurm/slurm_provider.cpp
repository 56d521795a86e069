#include "cloud_hooks/slurm/slurm_provider.hpp"

#include <algorithm>
#include <array>
#include <cctype>
#include <cmath>
#include <limits>
#include <mutex>
#include <set>
#include <sstream>
#include <string_view>

#include "base/parse.hpp"
#include "base/process/program.hpp"
#include "base/try_assign.hpp"

namespace mayfly::cloud_hooks::slurm {
namespace {

constexpr std::size_t kFields = 8;
constexpr std::size_t kFieldsBeforeFeatures = 4;
constexpr std::size_t kFieldsBehindFeatures = 2;  // and the comment
constexpr const char* kNoFeature = "(null)";
constexpr char kBarInFeatures = '\x1f';

/// The position of the comment, which begins with the id of a request; none if there is no such id.
std::optional<std::size_t> comment_in(const std::string& line) {
  constexpr std::string_view kShape = "xxxxxxxx-xxxx-xxxx-xxxx-xxxxxxxxxxxx";
  const auto begins_at = [&line, kShape](std::size_t at) {
    return line.size() - at >= kShape.size() &&
           std::equal(kShape.begin(), kShape.end(), line.begin() + static_cast<std::ptrdiff_t>(at),
                      [](char shape, char c) {
                        return shape == '-' ? c == '-'
                                            : std::isxdigit(static_cast<unsigned char>(c)) != 0;
                      });
  };
  for (std::size_t bar = line.find('|'); bar != std::string::npos; bar = line.find('|', bar + 1)) {
    if (begins_at(bar + 1)) {
      return bar + 1;
    }
  }
  return std::nullopt;
}

/// Features may contain the separator ("intel|amd" means either), and so may the end of a comment.
/// Replaces the separators that belong to the features.
std::string without_bars_in_features(std::string line) {
  const std::optional<std::size_t> comment = comment_in(line);
  std::size_t begin = 0;
  for (std::size_t i = 0; i < kFieldsBeforeFeatures && begin != std::string::npos; ++i) {
    begin = line.find('|', begin + (i > 0 ? 1 : 0));
  }
  if (!comment || begin == std::string::npos) {
    return line;
  }
  std::size_t end = *comment - 1;
  for (std::size_t i = 0; i < kFieldsBehindFeatures && end > begin; ++i) {
    end = line.rfind('|', end - 1);
  }
  if (end <= begin) {
    return line;
  }
  std::replace(line.begin() + static_cast<std::ptrdiff_t>(begin) + 1,
               line.begin() + static_cast<std::ptrdiff_t>(end), '|', kBarInFeatures);
  return line;
}

std::vector<std::string> fields_of(const std::string& text) {
  const std::string line = without_bars_in_features(text);
  std::vector<std::string> fields;
  std::size_t begin = 0;
  while (fields.size() + 1 < kFields) {
    const std::size_t end = line.find('|', begin);
    if (end == std::string::npos) {
      return {};
    }
    fields.push_back(line.substr(begin, end - begin));
    begin = end + 1;
  }
  fields.push_back(line.substr(begin));
  return fields;
}

std::optional<std::int64_t> whole(std::string_view text) {
  return number_in<std::int64_t>(text, 0, std::numeric_limits<std::int64_t>::max());
}

/// The states of squeue(1). A suspended job keeps its node, so it still costs; a requeued one
/// starts again.
ServerState state_of(const std::string& word) {
  for (const char* waiting :
       {"PENDING", "CONFIGURING", "REQUEUED", "REQUEUE_HOLD", "SPECIAL_EXIT", "RESV_DEL_HOLD"}) {
    if (word == waiting) {
      return ServerState::kStarting;
    }
  }
  for (const char* running : {"RUNNING", "SUSPENDED", "STOPPED", "RESIZING"}) {
    if (word == running) {
      return ServerState::kRunning;
    }
  }
  for (const char* ending : {"COMPLETING", "SIGNALING", "STAGE_OUT"}) {
    if (word == ending) {
      return ServerState::kStopping;
    }
  }
  return ServerState::kGone;  // COMPLETED, CANCELLED, FAILED, PREEMPTED, NODE_FAIL, TIMEOUT, ...
}

/// The text that a job's script has added to its comment, behind the request's id and the market.
std::string last_output_in(const std::string& comment) {
  const std::size_t market = comment.find(' ');
  const std::size_t words = market == std::string::npos ? market : comment.find(' ', market + 1);
  return words == std::string::npos ? "" : comment.substr(words + 1);
}

bool is_job_number(const std::string& text) {
  return !text.empty() && text.find_first_not_of("0123456789") == std::string::npos;
}

}  // namespace

std::string name_of(const std::string& job) {
  return "mayfly-" + job;
}

std::optional<Duration> parse_time(const std::string& text) {
  std::int64_t days = 0;
  std::string rest = text;
  if (const std::size_t dash = text.find('-'); dash != std::string::npos) {
    const std::optional<std::int64_t> number = whole(std::string_view(text).substr(0, dash));
    if (!number) {
      return std::nullopt;
    }
    days = *number;
    rest = text.substr(dash + 1);
  }
  std::int64_t total = 0;
  std::size_t parts = 0;
  for (std::size_t begin = 0; begin <= rest.size(); ++parts) {
    const std::size_t end = std::min(rest.find(':', begin), rest.size());
    const std::optional<std::int64_t> number =
        whole(std::string_view(rest).substr(begin, end - begin));
    if (!number || parts == 3 || *number > 1'000'000) {
      return std::nullopt;
    }
    total = 60 * total + *number;
    begin = end + 1;
  }
  if (parts < 2 || days > 100'000) {
    return std::nullopt;
  }
  return seconds(86400 * days + total);
}

std::vector<ServerStatus> parse_queue(const std::string& text) {
  std::vector<ServerStatus> servers;
  std::istringstream lines(text);
  for (std::string line; std::getline(lines, line);) {
    const std::vector<std::string> fields = fields_of(line);
    if (fields.empty() || !is_job_number(fields[0])) {
      continue;
    }
    ServerStatus server;
    server.id = fields[0];
    server.state = state_of(fields[1]);
    server.uptime = parse_time(fields[2]);
    server.offer.zone = fields[3];
    server.offer.machine_type = fields[4] == kNoFeature ? "" : fields[4];
    std::replace(server.offer.machine_type.begin(), server.offer.machine_type.end(), kBarInFeatures,
                 '|');
    const std::string& comment = fields[7];
    const std::string last_output = last_output_in(comment);
    server.request_id = comment.substr(0, comment.find(' '));
    server.detail = fields[1];
    // FAILED also to launch. Not if it was preempted, or on a lost node.
    server.failed = fields[1] == "FAILED" || fields[1] == "OUT_OF_MEMORY";
    if (!fields[5].empty() && fields[5] != "None") {
      server.detail += " (" + fields[5] + ")";
    }
    if (!fields[6].empty()) {
      server.detail += " on " + fields[6];
    }
    if (!last_output.empty()) {
      server.detail += ", last output: " + last_output;
    }
    if (comment.substr(0, comment.size() - last_output.size()).find("on_demand") !=
        std::string::npos) {
      server.offer.market = Market::kOnDemand;
    }
    servers.push_back(std::move(server));
  }
  std::sort(servers.begin(), servers.end(), [](const ServerStatus& a, const ServerStatus& b) {
    return a.id.size() != b.id.size() ? a.id.size() < b.id.size() : a.id < b.id;
  });
  return servers;
}

std::optional<std::string> parse_submitted(const std::string& text) {
  const std::string number = text.substr(0, text.find_first_of(";\n"));
  return is_job_number(number) ? std::optional(number) : std::nullopt;
}

/// Slurm's programs exit with 1 for every error, so only their message tells the kind. The first
/// part that matches decides. Parts lack a first letter where Slurm's versions differ in its case.
ProviderErrorKind kind_of(const std::string& complaint) {
  struct Meaning {
    const char* part;
    ProviderErrorKind kind;
  };
  static constexpr std::array kMeanings = {
      Meaning{"timed out", ProviderErrorKind::kRate},
      Meaning{"Unable to contact slurm controller", ProviderErrorKind::kRate},
      Meaning{"temporarily un", ProviderErrorKind::kRate},
      Meaning{"Connection refused", ProviderErrorKind::kRate},
      Meaning{"Zero Bytes were transmitted", ProviderErrorKind::kRate},
      Meaning{"currently not available", ProviderErrorKind::kCapacity},
      Meaning{"node configuration is not available", ProviderErrorKind::kCapacity},
      Meaning{"Required partition not available", ProviderErrorKind::kCapacity},
      Meaning{"odes are busy", ProviderErrorKind::kCapacity},
      Meaning{"MaxSubmitJob", ProviderErrorKind::kQuota},
      Meaning{"accounting/QOS policy", ProviderErrorKind::kQuota},
      Meaning{"Reached maximum", ProviderErrorKind::kQuota},
      Meaning{"ccess denied", ProviderErrorKind::kAuth},
      Meaning{"ermission denied", ProviderErrorKind::kAuth},
      Meaning{"not permitted to use", ProviderErrorKind::kAuth},
      Meaning{"Invalid account", ProviderErrorKind::kAuth},
      Meaning{"uthentication", ProviderErrorKind::kAuth},
      Meaning{"credential", ProviderErrorKind::kAuth},
  };
  for (const Meaning& meaning : kMeanings) {
    if (complaint.find(meaning.part) != std::string::npos) {
      return meaning.kind;
    }
  }
  return ProviderErrorKind::kConfig;
}

bool requests_part_of_node(const std::vector<std::string>& words) {
  static constexpr std::array kBeginnings = {
      "--exclusive", "--oversubscribe", "--share",  "--cpus", "--cores", "--mem", "--gres",
      "--gpus",      "--tres",          "--ntasks", "-s",     "-c",      "-G",    "-n"};
  return std::any_of(words.begin(), words.end(), [&](const std::string& word) {
    return std::any_of(kBeginnings.begin(), kBeginnings.end(),
                       [&](const char* beginning) { return word.starts_with(beginning); });
  });
}

/// sbatch requires the interpreter in the first line. Slurm's job number, which is the server's id,
/// is known only when the job runs, so the script takes it from Slurm's environment.
std::string script_of(const std::string& startup_text) {
  const std::string text = startup_text.empty() ? "#!/bin/sh\n" : startup_text;
  const std::size_t first_line = std::min(text.find('\n'), text.size());
  const std::string rest = first_line < text.size() ? text.substr(first_line + 1) : "";
  return text.substr(0, first_line) + "\nexport MAYFLY_SERVER=\"$SLURM_JOB_ID\"\n" + rest;
}

}  // namespace mayfly::cloud_hooks::slurm

namespace mayfly::cloud_hooks {
namespace {

using Words = std::vector<std::string>;

/// Variables by which a user's shell may restrict the jobs that squeue shows and scancel ends, or
/// send jobs to where squeue does not look for them. Jobs that are not shown would be taken for
/// gone, and be requested again.
constexpr std::array kRestrictions = {
    "SQUEUE_ACCOUNT",  "SQUEUE_FORMAT2", "SQUEUE_LICENSES", "SQUEUE_PARTITION",  "SQUEUE_QOS",
    "SCANCEL_ACCOUNT", "SCANCEL_BATCH",  "SCANCEL_NAME",    "SCANCEL_PARTITION", "SCANCEL_QOS",
    "SCANCEL_STATE",   "SCANCEL_USER",   "SCANCEL_WCKEY",   "SBATCH_ARRAY_INX",  "SBATCH_CLUSTERS"};

class SlurmProvider final : public Provider {
 public:
  explicit SlurmProvider(SlurmProviderOptions options) : options_(std::move(options)) {}

  /// Slurm has no idempotency key: the request's id is in the comment of its jobs, and a repeated
  /// request looks for them first.
  RequestOutcome request(const ServerRequest& request) override {
    RequestOutcome outcome;
    if (!is_new(request.request_id)) {  // an answer was lost: find the jobs that were submitted
      Answer<std::vector<ServerStatus>> listed = list();
      if (!listed.ok()) {
        return ProviderError{ProviderErrorKind::kRate, listed.error().detail};
      }
      for (ServerStatus& server : listed.value()) {
        if (server.request_id == request.request_id) {
          outcome.servers.push_back(std::move(server));
        }
      }
    }
    while (outcome.servers.size() < request.count && !outcome.error) {
      Answer<ServerStatus> one = submit(request);
      if (one.ok()) {
        outcome.servers.push_back(std::move(one).value());
      } else {
        outcome.error = std::move(one).error();
      }
    }
    return outcome;
  }

  std::optional<ProviderError> release(const std::string& id) override {
    const Answer<std::string> output = run({"scancel", id});
    if (output.ok() || output.error().detail.find("Invalid job id") != std::string::npos) {
      return std::nullopt;
    }
    return output.error();
  }

  Answer<ServerStatus> status(const std::string& id) override {
    TRY_ASSIGN(std::vector<ServerStatus> listed, list());
    return status_in(std::move(listed), id);
  }

  /// --all: jobs in hidden partitions, too.
  Answer<std::vector<ServerStatus>> list() override {
    TRY_ASSIGN(const std::string output,
               run({"squeue", "--noheader", "--me", "--all", "--states=all",
                    "--name=" + slurm::name_of(options_.job),
                    std::string("--format=") + slurm::kQueueFormat}));
    std::vector<ServerStatus> servers = slurm::parse_queue(output);
    for (ServerStatus& server : servers) {
      if (server.failed && !options_.log_dir.empty()) {
        server.detail += ", log " + options_.log_dir + "/slurm-" + server.id + ".log";
      }
      if (server.failed && server.detail.find("JobLaunchFailure") != std::string::npos) {
        server.detail += ": does that folder exist? Nodes without access to it need --cloud-bundle";
      }
    }
    return servers;
  }

  Capabilities capabilities() const override {
    Capabilities can;
    can.count_max = options_.count_max;
    can.survives_us = true;
    return can;
  }

  std::string preview(const ServerRequest& request) const override {
    std::string text;
    for (const std::string& word : submission(request)) {
      text += (text.empty() ? "" : " ") + word;
    }
    return std::to_string(request.count) + " x " + text + " <<'EOF'\n" +
           slurm::script_of(request.startup_text) + "EOF";
  }

  std::vector<Finding> examine() override {
    std::vector<Finding> findings;
    for (const char* program : {"sbatch", "squeue", "scancel"}) {
      const Answer<std::string> version = run({program, "--version"});
      findings.push_back(
          {version.ok(), version.ok() ? std::string(program) + ": " + last_line(version.value())
                                      : version.error().detail});
    }
    const Answer<std::string> partitions =
        run({"sinfo", "--noheader", "--format=%P %a, %D nodes %T, time limit %l"});
    if (!partitions.ok()) {
      findings.push_back({false, "no answer from the controller: " + partitions.error().detail});
      return findings;
    }
    const std::string& text = partitions.value();
    for (std::size_t begin = 0; begin < text.size();) {
      const std::size_t end = std::min(text.find('\n', begin), text.size());
      const std::string line = text.substr(begin, end - begin);
      findings.push_back({line.find(" up,") != std::string::npos, "partition " + line});
      begin = end + 1;
    }
    return findings;
  }

 private:
  bool is_new(const std::string& request_id) {
    const std::lock_guard lock(mutex_);
    return seen_.insert(request_id).second;
  }

  [[nodiscard]] Words submission(const ServerRequest& request) const {
    Words words = {"sbatch",
                   "--parsable",
                   "--nodes=1",
                   "--ntasks=1",
                   "--no-requeue",         // the policy replaces a preempted job by a new one
                   "--signal=B:USR1@60"};  // a notice, so many seconds before the time limit
    if (!request.offer.zone.empty()) {
      words.push_back("--partition=" + request.offer.zone);
    }
    if (!request.offer.machine_type.empty()) {
      words.push_back("--constraint=" + request.offer.machine_type);
    }
    if (request.lifetime_max > Duration(0)) {
      const double minutes = std::ceil(to_seconds(request.lifetime_max) / 60);
      words.push_back("--time=" + std::to_string(static_cast<std::int64_t>(minutes)));
    }
    words.push_back("--output=" + (options_.log_dir.empty() ? std::string("/dev/null")
                                                            : options_.log_dir + "/slurm-%j.log"));
    if (!slurm::requests_part_of_node(options_.sbatch_words)) {
      words.push_back("--exclusive");  // else Slurm fills one node, whose loss ends all jobs
    }
    words.insert(words.end(), options_.sbatch_words.begin(), options_.sbatch_words.end());
    // Behind the user's options, because sbatch takes the last one: list() finds jobs by them.
    words.push_back("--job-name=" + slurm::name_of(options_.job));
    words.push_back("--comment=" + request.request_id + " " + to_string(request.offer.market));
    return words;
  }

  Answer<ServerStatus> submit(const ServerRequest& request) const {
    TRY_ASSIGN(const std::string text,
               run(submission(request), slurm::script_of(request.startup_text)));
    const std::optional<std::string> id = slurm::parse_submitted(text);
    if (!id) {
      return ProviderError{ProviderErrorKind::kRate,
                           "sbatch printed no job number: " + last_line(text)};
    }
    ServerStatus server;
    server.id = *id;
    server.state = ServerState::kStarting;
    server.request_id = request.request_id;
    server.offer = request.offer;
    return server;
  }

  /// The program's output, or the error for its message.
  [[nodiscard]] Answer<std::string> run(Words words, std::string input = {}) const {
    ProgramCall call;
    call.argv = std::move(words);
    call.input = std::move(input);
    call.without.assign(kRestrictions.begin(), kRestrictions.end());
    call.timeout = options_.timeout;
    Result<ProgramResult> ran = run_program(call);
    if (!ran.ok()) {
      const bool lasting = ran.error().code != Errc::kIo;
      return ProviderError{lasting ? ProviderErrorKind::kConfig : ProviderErrorKind::kRate,
                           ran.error().detail};
    }
    ProgramResult& result = ran.value();
    if (result.succeeded()) {
      return std::move(result.output);
    }
    const bool exited = result.end == ProgramResult::End::kExited;
    const std::string detail = call.argv[0] + ": " + result.summary();
    return ProviderError{exited ? slurm::kind_of(result.errors) : ProviderErrorKind::kRate, detail};
  }

  const SlurmProviderOptions options_;
  std::mutex mutex_;
  std::set<std::string> seen_;  // request ids; guarded by mutex_
};

}  // namespace

std::unique_ptr<Provider> make_slurm_provider(SlurmProviderOptions options) {
  return std::make_unique<SlurmProvider>(std::move(options));
}

}  // namespace mayfly::cloud_hooks
