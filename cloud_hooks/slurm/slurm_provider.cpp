#include "cloud_hooks/slurm/slurm_provider.hpp"

#include <algorithm>
#include <cmath>
#include <mutex>
#include <set>

#include "cloud_hooks/program_runner.hpp"
#include "cloud_hooks/slurm/slurm_text.hpp"

namespace mayfly::cloud_hooks {
namespace {

using Words = std::vector<std::string>;

class SlurmProvider final : public Provider {
 public:
  explicit SlurmProvider(SlurmProviderOptions options) : options_(std::move(options)) {}

  RequestOutcome request(const ServerRequest& request) override {
    RequestOutcome outcome;
    if (!is_new(request.request_id)) {  // an answer was lost: find the jobs that were submitted
      Answer<std::vector<ServerStatus>> listed = list();
      if (const auto* error = std::get_if<ProviderError>(&listed)) {
        outcome.error = ProviderError{ProviderErrorKind::kRate, error->detail, {}, {}};
        return outcome;
      }
      for (ServerStatus& server : std::get<std::vector<ServerStatus>>(listed)) {
        if (server.request_id == request.request_id) {
          outcome.servers.push_back(std::move(server));
        }
      }
    }
    while (outcome.servers.size() < request.count && !outcome.error) {
      Answer<ServerStatus> one = submit(request);
      if (auto* error = std::get_if<ProviderError>(&one)) {
        outcome.error = std::move(*error);
      } else {
        outcome.servers.push_back(std::get<ServerStatus>(std::move(one)));
      }
    }
    return outcome;
  }

  std::optional<ProviderError> release(const std::string& id) override {
    const Answer<std::string> output = run({"scancel", id});
    const auto* error = std::get_if<ProviderError>(&output);
    if (error == nullptr || error->detail.find("Invalid job id") != std::string::npos) {
      return std::nullopt;
    }
    return *error;
  }

  Answer<ServerStatus> status(const std::string& id) override {
    Answer<std::vector<ServerStatus>> listed = list();
    if (auto* error = std::get_if<ProviderError>(&listed)) {
      return std::move(*error);
    }
    return status_in(std::get<std::vector<ServerStatus>>(std::move(listed)), id);
  }

  Answer<std::vector<ServerStatus>> list() override {
    Answer<std::string> output =
        run({"squeue", "--noheader", "--states=all", "--name=" + slurm::name_of(options_.job),
             std::string("--format=") + slurm::kQueueFormat});
    if (auto* error = std::get_if<ProviderError>(&output)) {
      return std::move(*error);
    }
    std::vector<ServerStatus> servers = slurm::parse_queue(std::get<std::string>(output));
    for (ServerStatus& server : servers) {
      if (server.failed && !options_.log_dir.empty()) {
        server.detail += ", log " + options_.log_dir + "/slurm-" + server.id + ".log";
      }
      if (server.failed && server.detail.find("JobLaunchFailure") != std::string::npos) {
        server.detail += ": is that folder there? Nodes that do not see it need --cloud-bundle";
      }
    }
    return servers;
  }

  Capabilities capabilities() const override {
    Capabilities can;
    can.count_max = options_.count_max;
    can.survives_us = true;
    can.limits_lifetime = true;
    can.knows_uptime = true;
    can.has_spot = true;
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
      const auto* error = std::get_if<ProviderError>(&version);
      findings.push_back(error == nullptr
                             ? Finding{true, std::string(program) + ": " +
                                                 last_line(std::get<std::string>(version))}
                             : Finding{false, error->detail});
    }
    const Answer<std::string> partitions =
        run({"sinfo", "--noheader", "--format=%P %a, %D nodes %T, time limit %l"});
    if (const auto* error = std::get_if<ProviderError>(&partitions)) {
      findings.push_back({false, "no answer from the controller: " + error->detail});
      return findings;
    }
    const std::string& text = std::get<std::string>(partitions);
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
                   "--no-requeue",  // a preempted job is over: the policy requests another
                   "--job-name=" + slurm::name_of(options_.job),
                   "--comment=" + request.request_id + " " + to_string(request.offer.market),
                   "--signal=B:USR1@" + std::to_string(options_.notice_seconds)};
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
      words.push_back("--exclusive");  // otherwise Slurm fills one node, and all are lost with it
    }
    words.insert(words.end(), options_.sbatch_words.begin(), options_.sbatch_words.end());
    return words;
  }

  Answer<ServerStatus> submit(const ServerRequest& request) const {
    const Answer<std::string> output =
        run(submission(request), slurm::script_of(request.startup_text));
    if (const auto* error = std::get_if<ProviderError>(&output)) {
      return *error;
    }
    const std::string& text = std::get<std::string>(output);
    const std::optional<std::string> id = slurm::parse_submitted(text);
    if (!id) {
      return ProviderError{
          ProviderErrorKind::kRate, "sbatch printed no job number: " + last_line(text), {}, {}};
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
    call.timeout = options_.timeout;
    Result<ProgramResult> ran = run_program(call);
    if (!ran.ok()) {
      const bool lasting = ran.error().code != Errc::kIo;
      return ProviderError{lasting ? ProviderErrorKind::kConfig : ProviderErrorKind::kRate,
                           ran.error().detail,
                           {},
                           {}};
    }
    ProgramResult& result = ran.value();
    if (result.succeeded()) {
      return std::move(result.output);
    }
    const bool exited = result.end == ProgramResult::End::kExited;
    const std::string detail = call.argv[0] + ": " + result.summary();
    return ProviderError{
        exited ? slurm::kind_of(result.errors) : ProviderErrorKind::kRate, detail, {}, {}};
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
