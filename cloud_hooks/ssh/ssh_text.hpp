#pragma once

// Hosts that are reached over ssh: parsing of their names, the shell scripts that run on them, and
// the output of those. Starts no processes.
//
// All files on a host are in one folder. `programs/SHA256` has unpacked programs: the newest, and
// those of servers that run. `servers/LABEL.ID` belongs to a server, which is a process: its
// script, token, log and run directory, the hash of its program, and in `process` its identity, so
// that neither a reused process id nor a reboot is mistaken for it.

#include <cstdint>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "base/result.hpp"
#include "cloud_hooks/core/provider.hpp"

namespace mayfly::cloud_hooks::ssh {

struct Host {
  std::string name;         ///< as ssh accepts it: [USER@]NAME, a numeric address, or an alias
  std::uint32_t slots = 1;  ///< most workers at a time
  friend bool operator==(const Host&, const Host&) = default;
};

/// Parses "a,b:2,[fd00::1]:4", where a colon and a number give the slots. kInvalidInput with the
/// part that is not a host, or that occurs twice.
[[nodiscard]] Result<std::vector<Host>> parse_hosts(const std::string& text);
/// Parses one host per line in mpirun's format: "a", "a slots=2" or "a:2"; # begins a comment.
/// kInvalidInput with the number of the line.
[[nodiscard]] Result<std::vector<Host>> parse_hostfile(const std::string& text);

/// Parameters of the scripts of one job.
struct Places {
  std::string folder;   ///< on the hosts; relative to the home directory if it is not absolute
  std::string label;    ///< of the job
  std::string sha256;   ///< of the packed program; empty if `program` is installed
  std::string program;  ///< path on the hosts; empty = programs/SHA256/mayfly/mayfly in `folder`
};

/// Prints the properties of the host and its servers of the job. Creates nothing.
[[nodiscard]] std::string look_script(const Places& places);
/// Creates the folder into which the file for install_script() is then copied, and removes the
/// remains of copies that were interrupted an hour ago or earlier.
[[nodiscard]] std::string make_folder_script(const Places& places);
/// Unpacks the file `name` in the folder as the program, after checking its hash and that it runs.
[[nodiscard]] std::string install_script(const Places& places, const std::string& name);
/// Starts the script `startup` as the server `id`, unless the host has it, or has no free slot.
/// Its arguments are the program's path and the host's slots; MAYFLY_SERVER is in its environment,
/// and in MAYFLY_SLOT the lowest number that no running server of the job has there.
[[nodiscard]] std::string start_script(const Places& places, const Host& host,
                                       const std::string& id, const std::string& request_id,
                                       const std::string& startup);
/// Ends the server, prints the end of its log and removes its folder.
[[nodiscard]] std::string release_script(const Places& places, const std::string& id);

/// The parsed output of look_script().
struct HostReport {
  std::string system;          ///< "Linux/x86_64"
  std::uint64_t free_mib = 0;  ///< in the folder's file system
  std::string missing;         ///< programs that the scripts need and the host lacks; empty = none
  bool has_program = false;
  std::vector<ServerStatus> servers;
  std::set<std::string> ended_with_host;  ///< those of `servers` that are older than its restart
};
/// Nothing if the output is incomplete; other lines, such as those of a login script, are skipped.
[[nodiscard]] std::optional<HostReport> parse_report(const std::string& output);

/// The word after "mayfly-" in the last such line of the other scripts: "done", "full" or "failed".
struct Outcome {
  std::string word;
  std::string detail;
};
[[nodiscard]] Outcome parse_outcome(const std::string& output);
/// The part of the log in the output of release_script().
[[nodiscard]] std::string log_in(const std::string& output);

/// The id HOST.REQUEST; it is unique because a request is for one server.
[[nodiscard]] std::string server_id(const std::string& host, const std::string& request_id);
/// The host part of such an id.
[[nodiscard]] std::string host_of(const std::string& id);

}  // namespace mayfly::cloud_hooks::ssh
