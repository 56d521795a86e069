#pragma once

// Serves and writes the page of runs (observe), for `mayfly dashboard` and for the commands that
// run a job. Any thread.

#include <memory>
#include <string>
#include <vector>

#include "base/net/addresses.hpp"
#include "base/result.hpp"
#include "observe/run_follower.hpp"
#include "observe/server.hpp"

namespace mayfly::cli {

using FollowedRuns = std::vector<std::unique_ptr<observe::RunFollower>>;

struct PagePlace {
  Endpoint listen{kLoopbackHost, 0};
  std::string host_name;  ///< another name of this host that browsers may use; empty = none
  std::string key;        ///< of viewers
};

struct Page {
  std::unique_ptr<observe::Server> server;  ///< it listens; run() serves
  Endpoint endpoint;
  std::string address;  ///< for a browser, with the key
  std::string
      warning;  ///< for the user: which hosts can reach the page, if that is unexpected; or empty
};

/// kIo with the address and the reason, for example that the port is in use.
[[nodiscard]] Result<Page> open_page(const PagePlace& place, FollowedRuns runs);

/// Writes the page with the numbers of the runs into a file. Returns its size in KiB.
[[nodiscard]] Result<std::size_t> write_report(const std::string& path, const FollowedRuns& runs);

/// The viewers' key of a job, from the file of its token; kNotFound, kIo.
[[nodiscard]] Result<std::string> viewing_key_of(const std::string& token_file);

/// The setting `dashboard`: PORT on this host alone, or HOST:PORT. kInvalidInput.
[[nodiscard]] Result<Endpoint> parse_dashboard(const std::string& text);

}  // namespace mayfly::cli
