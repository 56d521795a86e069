#include "engine/cloud/cloud_startup.hpp"

#include <fmt/format.h>

#include <string_view>
#include <utility>
#include <vector>

#include "base/absolute_path.hpp"
#include "base/file.hpp"
#include "base/text.hpp"
#include "base/try_assign.hpp"
#include "engine/config/bind_host.hpp"
#include "engine/config/setting_variables.hpp"

namespace mayfly::engine {
namespace {

constexpr std::size_t kStartupBytesMax = 200 * 1024;
constexpr std::size_t kTokenBytesMax = 4096;

/// The start-up script of a request. $sha256 is the hash of the start script, which contains the
/// hash of the bundle. So every file is checked before it is run, although HTTP is plain. The token
/// does not cross the network and is in no program's arguments.
constexpr const char* kFetching = R"(#!/bin/sh
# A new server of a Mayfly job: gets its start script from the coordinator, checks it, runs it.
address={address}
token={token}
sha256={sha256}

umask 077
{unset}home=
{at_exit}home=$(mktemp -d "${TMPDIR:-/var/tmp}/mayfly-XXXXXX") && cd "$home" || exit 1
access=$(printf 'mayfly bundle\n%s\n' "$token" | sha256sum | cut -d' ' -f1)
printf 'Authorization: Bearer %s\n' "$access" >access
{keep_output}
# fetch NAME SHA256: what the coordinator serves under that name, into a file of that name. With
# status 503 other servers are served first.
fetch() {
  tries=0
  until code=$(curl --fail --silent --show-error --globoff --noproxy '*' --connect-timeout 10 \
    --speed-limit 1000 --speed-time 30 --header @access --continue-at - --output "$1" \
    --write-out '%{http_code}' "http://$address/$1"); do
    [ "$code" = 503 ] || tries=$((tries + 1))
    if [ "$tries" -ge 90 ]; then
      return 1
    fi
    sleep 2
  done
  echo "$2  $1" | sha256sum --check --quiet
}

fetch start "$sha256" || exit 1
. ./start
)";

/// The coordinator recognises the server by the cloud's name for the machine.
constexpr const char* kNameOnGce = R"(
instance=http://${GCE_METADATA_HOST:-169.254.169.254}/computeMetadata/v1/instance
ask() { curl -fs --noproxy '*' --max-time 5 --retry 5 -H 'Metadata-Flavor: Google' "$instance/$1"; }
name=$(ask name)
zone=$(ask zone)
export MAYFLY_SERVER="${zone##*/}/$name"
)";
constexpr const char* kNameOnEc2 = R"(
aws=${AWS_EC2_METADATA_SERVICE_ENDPOINT:-http://169.254.169.254}
aws=${aws%/}/latest
ask() { curl -fs --noproxy '*' --max-time 5 --retry 5 "$@"; }
session=$(ask -X PUT -H 'X-aws-ec2-metadata-token-ttl-seconds: 60' "$aws/api/token")
name=$(ask -H "X-aws-ec2-metadata-token: $session" "$aws/meta-data/instance-id")
export MAYFLY_SERVER="$name"
)";

/// The start script that the coordinator serves; it runs inside kFetching, with its variables and
/// fetch().
constexpr const char* kStart = R"(# What the servers of this job run once they have checked it.
set -eu
fetch bundle {bundle_sha256}
tar -xzf bundle
rm bundle
printf '%s\n' "$token" >token
{name}
{run}./mayfly/mayfly worker --coordinator {coordinators} --token-file token --run-dir run \
  --bind-host "${WORKER_HOST:-{bind_host}}" {notice}{worker_args}{end}
)";
constexpr const char* kFirstAddress = "$(hostname -I | cut -d' ' -f1)";

/// A node of Slurm outlives a job, so only the log is left there. The last line of the log of a
/// failed job is put into the job's comment, because the coordinator does not see the node's files.
/// Slurm may send its warnings to the script alone.
constexpr const char* kAtExitOfSlurm = R"(
at_exit() {
  code=$?
  trap '' TERM USR1  # scancel's go to all processes of a job, also to these
  cd / && rm -rf "$home"
  if [ "$code" != 0 ]; then
    words=$(grep . "/tmp/slurm-$SLURM_JOB_ID.log" | tail -n 1 | tr -cd '[:print:]' | cut -c -300)
    comment=$(squeue --noheader --all --jobs="$SLURM_JOB_ID" --format=%k)
    scontrol update JobId="$SLURM_JOB_ID" Comment="$comment $words"
  fi
}
trap at_exit EXIT
trap 'exit 143' TERM USR1
)";
/// A machine without a worker only costs money, so it ends with its worker: EC2 terminates a
/// machine that was started with our user data, and the coordinator deletes one that Compute Engine
/// has stopped. The error of a failed worker is sent to the coordinator first, because no process
/// reads the console of a machine.
constexpr const char* kAtExitOfMachine = R"(
at_exit() {
  code=$?
  set +e  # nothing keeps the machine from its end
  if [ "$code" != 0 ] && [ -e "$home/output" ]; then
    exec >&3 2>&1
    sleep 1  # for tee
    tail -c 4000 "$home/output" | curl --fail --silent --globoff --noproxy '*' --max-time 10 \
      --header "@$home/access" --header 'Expect:' --data-binary @- \
      "http://$address/failed?${MAYFLY_SERVER:-$(hostname)}"
  fi
  shutdown -P now
}
trap at_exit EXIT
)";
constexpr const char* kKeepOutput = R"(
exec 3>&1
mkfifo pipe
tee output <pipe >&3 &
exec >pipe 2>&1
)";

constexpr const char* kWaitOfSlurm = R"( &
worker=$! code=0
trap 'kill -TERM "$worker" || :' TERM USR1
wait "$worker" || code=$?
while kill -0 "$worker" 2>/dev/null; do  # a signal ends the wait, too
  code=0
  wait "$worker" || code=$?
done
exit "$code")";

/// Runs on a host over ssh, in a folder of its own: start PROGRAM SLOTS (cloud_hooks/ssh).
constexpr const char* kOnHost = R"(#!/bin/sh
umask 077
printf '%s\n' {token} >token
program=$1 slots=$2 threads=
if [ "$slots" -gt 1 ]; then
  threads=$(($(nproc) / slots))
  [ "$threads" -ge 1 ] || threads=1
fi
# What a worker of this very job saved here when no coordinator came back (cloud_hooks/ssh). It is
# offered once: a job that has gone on from an older step meanwhile does not take it. Workers may
# begin here at the same time, so only the holder of the lock for starts and releases moves it.
job=${PWD##*/}
saved=../../saved/${job%%.*}
if (
  flock -w 20 9 && cmp -s token "$saved/token" && [ -e "$saved/run/checkpoints/latest" ] &&
    rm -rf "$saved.offered" && mv "$saved" "$saved.offered"
) 9>../../lock; then
  saved=$saved.offered
else
  saved=
fi
exec "$program" worker --coordinator {coordinators} --token-file token --run-dir run \
  ${threads:+--threads "$threads"} ${saved:+--resume "$saved/run"} {worker_args}
)";

using Marks = std::vector<std::pair<std::string_view, std::string>>;

/// Replaces each mark {NAME} by its text. Inserted texts are not searched for marks.
std::string filled(std::string_view text, const Marks& marks) {
  std::string out;
  while (!text.empty()) {
    std::size_t skip = 1;
    std::string_view piece = text.substr(0, 1);
    for (const auto& [mark, by] : marks) {
      if (text.starts_with(mark)) {
        skip = mark.size();
        piece = by;
        break;
      }
    }
    out += piece;
    text.remove_prefix(skip);
  }
  return out;
}

bool is_machine_of_a_cloud(const JobConfig& config) {
  return config.cloud_provider == "gce" || config.cloud_provider == "ec2";
}

/// A line of a request's script that unsets settings. Slurm, and programs that start servers on
/// this host, pass on the environment of the coordinator, whose variables would override the
/// settings that the coordinator sends to workers. A start script that is served must not depend on
/// this environment: after a restart of the coordinator in another environment, servers that were
/// requested before still expect the old hash of the script. MAYFLY_SERVER is kept, because a
/// provider names the worker's server with it, and so is the environment of a script of the user's
/// own. Shells have no names with dashes.
std::string unset_settings(const JobConfig& config) {
  if (is_machine_of_a_cloud(config) || !config.cloud_startup.empty()) {
    return {};
  }
  std::string line;
  for (const std::string& name : setting_variables()) {
    const bool stays = name == "MAYFLY_SERVER" || name.find('-') != std::string::npos;
    line += stays ? "" : " " + name;
  }
  return line.empty() ? line : "unset" + line + "\n";
}

Result<std::string> users_script(const JobConfig& config) {
  Result<std::string> text = read_text_file(config.cloud_startup, kStartupBytesMax);
  if (!text.ok()) {
    return Error{Errc::kInvalidInput, "cloud_startup: " + text.error().detail};
  }
  return text;
}

}  // namespace

std::string worker_coordinators(const JobConfig& config, const std::string& own) {
  return config.cloud_coordinators.empty() ? own : config.cloud_coordinators;
}

std::string worker_words(const JobConfig& config) {
  return config.cloud_program.empty() ? config.cloud_worker_args
                                      : config.cloud_worker_args + " -- " + config.cloud_program;
}

Result<std::string> token_text(const JobConfig& config) {
  TRY_ASSIGN(std::string read, read_text_file(config.token_file, kTokenBytesMax));
  return read.substr(0, read.find('\n'));
}

Result<std::string> startup_text(const JobConfig& config, const std::string& coordinators,
                                 const std::string& token) {
  if (!config.cloud_startup.empty()) {
    TRY_ASSIGN(std::string text, users_script(config));
    return filled(text, {{"{coordinator}", coordinators},
                         {"{run_dir}", absolute_path(config.run_dir)},
                         {"{worker_args}", worker_words(config)},
                         {"{token}", token}});
  }
  if (config.cloud_provider == "ssh") {
    return filled(kOnHost, {{"{token}", shell_quoted(token)},
                            {"{coordinators}", shell_quoted(coordinators)},
                            {"{worker_args}", worker_words(config)}});
  }
  if (is_machine_of_a_cloud(config)) {
    return Error{Errc::kInvalidInput, "cloud_provider " + config.cloud_provider +
                                          " needs cloud_bundle, which new machines get from the "
                                          "coordinator, or cloud_startup, the script that they "
                                          "run (docs/cloud.md)"};
  }
  const bool is_loopback =
      coordinators.starts_with("127.") || coordinators.starts_with("localhost");
  const std::string host = is_loopback ? "127.0.0.1"
                           : config.cloud_provider == "slurm"
                               ? kAutoHost
                               : fmt::format("\"{}\"", kFirstAddress);
  return fmt::format(
      "#!/bin/sh\n"
      "# Starts a worker; for machines that see the same files as the coordinator.\n"
      "{}exec {} worker --config {} --coordinator {} --token-file {} --bind-host {} {}\n",
      unset_settings(config), shell_quoted(own_program()),
      shell_quoted(absolute_path(config.run_dir) + "/config.toml"), shell_quoted(coordinators),
      shell_quoted(absolute_path(config.token_file)), host, worker_words(config));
}

Result<std::string> served_start(const JobConfig& config, const std::string& coordinators,
                                 const std::string& bundle_sha256) {
  if (!config.cloud_startup.empty()) {
    TRY_ASSIGN(std::string text, users_script(config));
    if (text.find("{token}") != std::string::npos) {
      return Error{Errc::kInvalidInput,
                   "cloud_startup: a script that is sent over the network must not contain "
                   "{token}; with cloud_bundle, write \"$token\""};
    }
    return filled(text, {{"{coordinator}", coordinators},
                         {"{run_dir}", absolute_path(config.run_dir)},
                         {"{worker_args}", worker_words(config)},
                         {"{bundle_sha256}", bundle_sha256}});
  }
  const bool is_gce = config.cloud_provider == "gce";
  const bool is_ec2 = config.cloud_provider == "ec2";
  const bool is_slurm = config.cloud_provider == "slurm";
  return filled(kStart, {{"{bundle_sha256}", bundle_sha256},
                         {"{name}", is_gce   ? kNameOnGce
                                    : is_ec2 ? kNameOnEc2
                                             : ""},
                         {"{run}", is_machine_of_a_cloud(config) || is_slurm ? "" : "exec "},
                         {"{end}", is_slurm ? kWaitOfSlurm : ""},
                         {"{bind_host}", is_slurm ? kAutoHost : kFirstAddress},
                         {"{coordinators}", shell_quoted(coordinators)},
                         {"{notice}", is_gce   ? "--notice gce "
                                      : is_ec2 ? "--notice ec2 "
                                               : ""},
                         {"{worker_args}", worker_words(config)}});
}

std::string fetching_text(const JobConfig& config, const std::string& address,
                          const std::string& token, const std::string& start_sha256) {
  const bool is_machine = is_machine_of_a_cloud(config);
  const char* at_exit = is_machine                         ? kAtExitOfMachine
                        : config.cloud_provider == "slurm" ? kAtExitOfSlurm
                                                           : "";
  return filled(kFetching, {{"{address}", shell_quoted(address)},
                            {"{token}", shell_quoted(token)},
                            {"{sha256}", shell_quoted(start_sha256)},
                            {"{unset}", unset_settings(config)},
                            {"{at_exit}", at_exit},
                            {"{keep_output}", is_machine ? kKeepOutput : ""}});
}

}  // namespace mayfly::engine
