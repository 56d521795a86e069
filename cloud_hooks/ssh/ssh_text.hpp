#pragma once

// Hosts that are reached by ssh: how they are written, the shell scripts that run on them, and what
// those print. No processes here.
//
// A host keeps everything in one folder: `programs/SHA256` are unpacked programs, and
// `servers/LABEL.ID` is a server, which here is a process: its script, token, log and run
// directory, and in `process` which process it is, so that neither a reused process id nor a reboot
// is taken for it.

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "base/result.hpp"
#include "cloud_hooks/core/provider.hpp"

namespace mayfly::cloud_hooks::ssh {

struct Host {
  std::string name;         ///< as ssh takes it: [USER@]NAME, a numeric address, or an alias
  std::uint32_t slots = 1;  ///< workers that it has room for
  friend bool operator==(const Host&, const Host&) = default;
};

/// "a,b:2,[fd00::1]:4": a colon and a number say how many slots. kInvalidInput with the part that
/// is no host, or that is there twice.
[[nodiscard]] Result<std::vector<Host>> parse_hosts(const std::string& text);
/// One host per line, as mpirun reads them: "a", "a slots=2" or "a:2"; # begins a comment.
/// kInvalidInput with the line's number.
[[nodiscard]] Result<std::vector<Host>> parse_hostfile(const std::string& text);

/// What the scripts of one job are told.
struct Places {
  std::string folder;   ///< on the hosts; from the user's home directory if it is not absolute
  std::string label;    ///< of the job
  std::string sha256;   ///< of the packed program; empty if `program` is there already
  std::string program;  ///< path on the hosts; empty = programs/SHA256/mayfly/mayfly in `folder`
};

/// Says what the host is, and which servers of the job it has. Creates nothing.
[[nodiscard]] std::string look_script(const Places& places);
/// Makes the folder into which `name`, a file beneath it, is then copied.
[[nodiscard]] std::string make_folder_script(const Places& places);
/// Unpacks the file `name` in the folder as the program, after checking it and that it runs.
[[nodiscard]] std::string install_script(const Places& places, const std::string& name);
/// Starts the script `startup` as the server `id`, unless the host has it, or has no free slot.
/// Its arguments are the program's path and the host's slots; MAYFLY_SERVER is in its environment.
[[nodiscard]] std::string start_script(const Places& places, const Host& host,
                                       const std::string& id, const std::string& request_id,
                                       const std::string& startup);
/// Ends the server, prints the end of its log and removes its folder.
[[nodiscard]] std::string release_script(const Places& places, const std::string& id);

/// What look_script() printed.
struct HostReport {
  std::string system;          ///< "Linux/x86_64"
  std::uint64_t free_mib = 0;  ///< in the folder's file system
  std::string missing;  ///< programs that the scripts need and the host has not; empty = none
  bool has_program = false;
  std::vector<ServerStatus> servers;
};
/// Nothing if it is not whole; other lines, such as a login script's, are left out.
[[nodiscard]] std::optional<HostReport> parse_report(const std::string& output);

/// The word after "mayfly-" in the last such line of the other scripts: "done", "full" or "failed".
struct Outcome {
  std::string word;
  std::string detail;
};
[[nodiscard]] Outcome parse_outcome(const std::string& output);
/// What release_script() printed of the log.
[[nodiscard]] std::string log_in(const std::string& output);

/// HOST.REQUEST: unique, as a request is for one server.
[[nodiscard]] std::string server_id(const std::string& host, const std::string& request_id);
/// The host in such an id.
[[nodiscard]] std::string host_of(const std::string& id);

}  // namespace mayfly::cloud_hooks::ssh
