#include "cloud_hooks/ssh/ssh_text.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <sstream>

#include "base/parse.hpp"
#include "base/text.hpp"

namespace mayfly::cloud_hooks::ssh {
namespace {

constexpr std::uint32_t kSlotsMax = 256;
constexpr std::size_t kRequestCharacters = 8;  // of a request's id that are part of a server's id
constexpr const char* kLogBegins = "mayfly-log\n";

/// The beginning of every script. `birth` distinguishes a process from a later one with the same
/// number.
constexpr const char* kCommon = R"sh(
set -u
umask 077
LC_ALL=C
fail() { echo "mayfly-failed $*"; exit 0; }
birth() { sed 's/.*) //' "/proc/$1/stat" 2>/dev/null | cut -d' ' -f1,20; }
runs() { # 2: the host was restarted since
  { read -r pid born boot <"$1/process"; } 2>/dev/null || return 1
  [ "$boot" = "$(cat /proc/sys/kernel/random/boot_id)" ] || return 2
  case $(birth "$pid") in
    Z*) return 1 ;;
    *" $born") return 0 ;;
    *) return 1 ;;
  esac
}
# The process is noted only after the server's folder is there: one of a start that is under way is
# waited for, or it would count as gone.
await_start() { [ -e "$1/process" ] || flock -s -w 20 "$folder/lock" true; }
# Whoever starts a server, or moves what one has saved, does so alone: FOLDER.
take_lock() {
  exec 9>"$1/lock"
  flock -w 20 9 || fail "another start has held the lock for 20 s"
}
# What a worker saved to which no coordinator came back is nowhere else: FOLDER SERVER. Of several
# that this job left on the host, the newest is kept. Needs the lock.
keep_left_alone() {
  [ -e "$2/run/left_alone" ] || return 0
  there=$(sed -n 's/^step-//p' "$1/saved/$label/run/checkpoints/latest" 2>/dev/null)
  this=$(sed -n 's/^step-//p' "$2/run/checkpoints/latest" 2>/dev/null)
  if [ "${there:-0}" -gt "${this:-0}" ] && cmp -s "$1/saved/$label/token" "$2/token"; then
    rm -rf "$2" # else it is saved and offered later, in place of the newer one that is being read
    return
  fi
  mkdir -p "$1/saved" && rm -rf "$1/saved/$label" && mv "$2" "$1/saved/$label"
}
)sh";

constexpr const char* kLook = R"sh(
home=$folder
[ -d "$home" ] || home=.
free=$(df -Pk "$home" | awk 'NR == 2 { print $4 }')
missing=
for tool in $tools; do
  command -v $tool >/dev/null 2>&1 || missing="$missing $tool"
done
echo "mayfly-host $(uname -s)/$(uname -m) $((${free:-0} / 1024))$missing"
[ ! -x "$program" ] || echo mayfly-program
for server in "$folder/servers/$label".*; do
  [ -d "$server" ] || continue
  id=${server#"$folder/servers/$label."}
  await_start "$server"
  request=$(cat "$server/request" 2>/dev/null)
  runs "$server"
  case $? in
    0) echo "mayfly-server $id running ${request:--}"; continue ;;
    2) end=restarted ;;
    *) end=gone ;;
  esac
  echo "mayfly-server $id $end ${request:--} $(tail -n 1 "$server/log" 2>/dev/null | cut -c1-300)"
done
echo mayfly-end
)sh";

constexpr const char* kMakeFolder = R"sh(
mkdir -p "$folder/programs" "$folder/servers" || fail "cannot make the folder $folder"
# What broke off, a removal also, has not been written to for longer than any copy may take.
find "$folder" "$folder/programs" -maxdepth 1 \( -name 'copy-*' -o -name '.copy-*' \) -mmin +60 \
  -exec rm -rf {} + 2>/dev/null
echo mayfly-done
)sh";

constexpr const char* kInstall = R"sh(
cd "$folder" || fail "there is no folder $folder"
trap 'rm -rf "$file" "programs/.$file"' EXIT
[ "$(sha256sum <"$file" | cut -d' ' -f1)" = "$sha256" ] || fail "the copy of the program is damaged"
mkdir "programs/.$file" && tar -xzf "$file" -C "programs/.$file" 2>"programs/.$file/errors" ||
  fail "the program cannot be unpacked: $(tail -n 1 "programs/.$file/errors")"
"programs/.$file/mayfly/mayfly" --version >/dev/null 2>"programs/.$file/errors" ||
  fail "the program does not run there: $(tail -n 1 "programs/.$file/errors")"
sync -f "programs/.$file" 2>/dev/null || sync  # what is in its place is taken for whole
mv -T "programs/.$file" "programs/$sha256" 2>/dev/null || [ -x "programs/$sha256/mayfly/mayfly" ] ||
  fail "the program cannot be put into its place"
(
  flock -w 5 9 || exit 0 # then no start is under way, and each server has noted its process
  used=
  for server in servers/*; do
    ! runs "$server" || used="$used $(cat "$server/program" 2>/dev/null) "
  done
  ls -1t programs | tail -n +5 | while read -r old; do
    case $used in *" $old "*) continue ;; esac
    # One of which a removal that was interrupted has left a part would be taken for whole.
    mv -T "programs/$old" "programs/.copy-$old" && rm -rf "programs/.copy-$old"
  done
) 9>lock
echo mayfly-done
)sh";

constexpr const char* kStart = R"sh(
mkdir -p "$folder/servers" || fail "cannot make the folder $folder"
cd "$folder" || fail "there is no folder $folder"
case $program in
  "$folder"/*) program=$(pwd)/${program#"$folder/"} ;;
  /*) ;;
  *) program=$HOME/$program ;;
esac
take_lock .
server=servers/$label.$id
if [ -d "$server" ]; then echo mayfly-done; exit 0; fi
taken=0 used=' '
for other in "servers/$label".*; do
  [ -d "$other" ] || continue
  if ! runs "$other"; then keep_left_alone . "$other"; continue; fi
  taken=$((taken + 1)) used="$used$(cat "$other/slot" 2>/dev/null) "
done
if [ "$taken" -ge "$slots" ]; then echo mayfly-full; exit 0; fi
slot=0
while [ "$used" != "${used#* $slot }" ]; do slot=$((slot + 1)); done
[ -x "$program" ] || fail "there is no program $program"
[ ! -d "programs/$sha256" ] || touch "programs/$sha256"
mkdir "$server" && printf '%s' "$startup" >"$server/start" && echo "$request" >"$server/request" &&
  echo "$sha256" >"$server/program" && echo "$slot" >"$server/slot" ||
  { rm -rf "$server"; fail "cannot write into $folder"; }
cd "$server" || fail "cannot use $folder"
MAYFLY_SERVER=$id MAYFLY_SLOT=$slot \
  setsid nohup sh ./start "$program" "$slots" >log 2>&1 </dev/null 9>&- &
pid=$!
born=$(birth "$pid")
born=${born:-Z 0} # it has ended, and the shell has noticed
echo "$pid ${born#* } $(cat /proc/sys/kernel/random/boot_id)" >process && [ -s process ] || {
  kill -s KILL -- "-$pid" 2>/dev/null # nobody would find it again
  rm -rf "../${server##*/}"
  fail "cannot write into $folder"
}
echo mayfly-done
)sh";

constexpr const char* kRelease = R"sh(
server=$folder/servers/$label.$id
if [ ! -d "$server" ]; then echo mayfly-done; exit 0; fi
await_start "$server"
if runs "$server"; then
  kill -TERM "$pid" 2>/dev/null
  tries=0
  while runs "$server" && [ "$tries" -lt 50 ]; do
    sleep 0.1
    tries=$((tries + 1))
  done
  kill -s KILL -- "-$pid" 2>/dev/null
fi
take_lock "$folder"
echo mayfly-done
echo mayfly-log
tail -c 262144 "$server/log" 2>/dev/null
keep_left_alone "$folder" "$server" && rm -rf "$server"
)sh";

std::optional<std::uint32_t> slots_in(std::string_view text) {
  return number_in<std::uint32_t>(text, 1, kSlotsMax);
}

/// True if neither ssh nor a shell can take the text for anything but a name.
bool is_name(const std::string& name) {
  constexpr const char* kAllowed =
      "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789._-@:%";
  return !name.empty() && name.size() <= 255 && name.front() != '-' && name.front() != '.' &&
         name.find_first_not_of(kAllowed) == std::string::npos;
}

/// NAME, NAME:SLOTS, [ADDRESS] or [ADDRESS]:SLOTS; an address with several colons is one itself.
std::optional<Host> parse_host(const std::string& text) {
  Host host;
  std::string slots;
  if (text.starts_with("[")) {
    const std::size_t end = text.find(']');
    if (end == std::string::npos) {
      return std::nullopt;
    }
    host.name = text.substr(1, end - 1);
    slots = text.substr(end + 1);
    if (!slots.empty() && slots.front() != ':') {
      return std::nullopt;
    }
  } else if (std::count(text.begin(), text.end(), ':') == 1) {
    host.name = text.substr(0, text.find(':'));
    slots = text.substr(text.find(':'));
  } else {
    host.name = text;
  }
  if (!slots.empty()) {
    const std::optional<std::uint32_t> number = slots_in(slots.substr(1));
    if (!number) {
      return std::nullopt;
    }
    host.slots = *number;
  }
  return is_name(host.name) ? std::optional(host) : std::nullopt;
}

bool holds(const std::vector<Host>& hosts, const std::string& name) {
  return std::any_of(hosts.begin(), hosts.end(),
                     [&](const Host& host) { return host.name == name; });
}

std::string with(const Places& places,
                 const std::vector<std::pair<const char*, std::string>>& variables,
                 const char* script) {
  const std::string program = places.program.empty()
                                  ? places.folder + "/programs/" + places.sha256 + "/mayfly/mayfly"
                                  : places.program;
  std::string text =
      "folder=" + shell_quoted(places.folder) + "\nlabel=" + shell_quoted(places.label) +
      "\nsha256=" + shell_quoted(places.sha256) + "\nprogram=" + shell_quoted(program) + "\n";
  for (const auto& [name, value] : variables) {
    text += std::string(name) + "=" + shell_quoted(value) + "\n";
  }
  return text + kCommon + script;
}

std::string take_word(std::string& line) {
  const std::size_t end = std::min(line.find(' '), line.size());
  std::string word = line.substr(0, end);
  line.erase(0, std::min(end + 1, line.size()));
  return word;
}

}  // namespace

Result<std::vector<Host>> parse_hosts(const std::string& text) {
  std::vector<Host> hosts;
  if (text.empty()) {
    return Error{Errc::kInvalidInput, "no host is named"};
  }
  for (const std::string_view word : split(text, ',')) {
    const std::string part(word);
    const std::optional<Host> host = parse_host(part);
    if (!host) {
      return Error{Errc::kInvalidInput, "'" + part +
                                            "' is not a host; write names with commas, and "
                                            "NAME:SLOTS for a host of several workers"};
    }
    if (holds(hosts, host->name)) {
      return Error{Errc::kInvalidInput, "the host " + host->name + " is given twice; write " +
                                            host->name + ":2 for two workers on it"};
    }
    hosts.push_back(*host);
  }
  return hosts;
}

Result<std::vector<Host>> parse_hostfile(const std::string& text) {
  constexpr const char* kSlots = "slots=";
  std::vector<Host> hosts;
  std::istringstream lines(text);
  std::string line;
  for (int number = 1; std::getline(lines, line); ++number) {
    std::istringstream words(line.substr(0, line.find('#')));
    std::string word;
    if (!(words >> word)) {
      continue;
    }
    std::optional<Host> host = parse_host(word);
    bool is_fine = host.has_value();
    while (is_fine && words >> word) {
      const std::optional<std::uint32_t> slots =
          word.starts_with(kSlots) ? slots_in(word.substr(std::string(kSlots).size()))
                                   : std::nullopt;
      is_fine =
          slots.has_value() || word.starts_with("max_slots=") || word.starts_with("max-slots=");
      host->slots = slots.value_or(host->slots);
    }
    if (!is_fine) {
      return Error{Errc::kInvalidInput, "line " + std::to_string(number) + " '" +
                                            std::string(trimmed(line)) +
                                            "' is not a host; write NAME or NAME slots=N"};
    }
    if (holds(hosts, host->name)) {
      return Error{Errc::kInvalidInput, "line " + std::to_string(number) + ": the host " +
                                            host->name + " is given twice; write slots=2"};
    }
    hosts.push_back(*host);
  }
  if (hosts.empty()) {
    return Error{Errc::kInvalidInput, "no line names a host"};
  }
  return hosts;
}

std::string look_script(const Places& places) {
  const std::string tools = "flock setsid nohup";
  const bool is_installed = !places.program.empty();
  return with(places, {{"tools", is_installed ? tools : tools + " sha256sum tar gzip"}}, kLook);
}

std::string make_folder_script(const Places& places) {
  return with(places, {}, kMakeFolder);
}

std::string install_script(const Places& places, const std::string& name) {
  return with(places, {{"file", name}}, kInstall);
}

std::string start_script(const Places& places, const Host& host, const std::string& id,
                         const std::string& request_id, const std::string& startup) {
  return with(places,
              {{"id", id},
               {"request", request_id},
               {"slots", std::to_string(host.slots)},
               {"startup", startup}},
              kStart);
}

std::string release_script(const Places& places, const std::string& id) {
  return with(places, {{"id", id}}, kRelease);
}

std::optional<HostReport> parse_report(const std::string& output) {
  HostReport report;
  bool is_whole = false;
  std::istringstream lines(output);
  std::string line;
  while (std::getline(lines, line)) {
    const std::string kind = take_word(line);
    if (kind == "mayfly-host") {
      report.system = take_word(line);
      const std::string free = take_word(line);
      report.free_mib = number_in<std::uint64_t>(free).value_or(0);
      report.missing = line;
    } else if (kind == "mayfly-program") {
      report.has_program = true;
    } else if (kind == "mayfly-server") {
      ServerStatus server;
      server.id = take_word(line);
      const std::string state = take_word(line);
      server.state = server_state_of(state).value_or(ServerState::kGone);
      if (state == "restarted") {
        report.ended_with_host.insert(server.id);
      }
      server.request_id = take_word(line);
      server.detail = line;
      report.servers.push_back(std::move(server));
    } else if (kind == "mayfly-end") {
      is_whole = !report.system.empty();
    }
  }
  return is_whole ? std::optional(std::move(report)) : std::nullopt;
}

Outcome parse_outcome(const std::string& output) {
  constexpr const char* kMark = "mayfly-";
  Outcome outcome;
  std::istringstream lines(output.substr(0, output.find(kLogBegins)));
  std::string line;
  while (std::getline(lines, line)) {
    if (line.starts_with(kMark)) {
      line.erase(0, std::string(kMark).size());
      outcome.word = take_word(line);
      outcome.detail = line;
    }
  }
  return outcome;
}

std::string log_in(const std::string& output) {
  const std::size_t begin = output.find(kLogBegins);
  return begin == std::string::npos ? "" : output.substr(begin + std::string(kLogBegins).size());
}

std::string server_id(const std::string& host, const std::string& request_id) {
  return host + "." + request_id.substr(0, kRequestCharacters);
}

std::string host_of(const std::string& id) {
  return id.substr(0, id.rfind('.'));
}

}  // namespace mayfly::cloud_hooks::ssh
