// `mayfly dashboard`: the records of runs as a page, served or written into one file.

#include <memory>
#include <vector>

#include "base/file.hpp"
#include "base/net/sockets.hpp"
#include "base/time.hpp"
#include "cli/cli.hpp"
#include "observe/report.hpp"
#include "observe/server.hpp"

namespace mayfly::cli {
namespace {

constexpr std::size_t kTokenBytesMax = 4096;

using Runs = std::vector<std::unique_ptr<observe::RunFollower>>;

int write_report(const std::string& path, const Runs& runs, const Context& context) {
  std::vector<observe::RunFollower*> list;
  for (const std::unique_ptr<observe::RunFollower>& run : runs) {
    list.push_back(run.get());
  }
  const std::string page = observe::report_of(list, wall_clock_seconds());
  if (Result<void> written = write_file_atomic(path, page); !written.ok()) {
    return context.complain(written.error());
  }
  context.out << path << ": " << (page.size() + 1023) / 1024 << " KiB\n";
  return kExitDone;
}

/// From the job's token, so that the address stays the same; without one by chance.
std::string key_of(const std::vector<std::string>& paths) {
  for (const std::string& path : paths) {
    const Result<std::string> token = read_text_file(path + "/token", kTokenBytesMax);
    if (token.ok()) {
      const std::string& text = token.value();
      return observe::viewing_key(text.substr(0, text.find_last_not_of(" \r\n") + 1));
    }
  }
  return observe::random_key();
}

int serve(const ParsedArguments& arguments, Runs runs, const Context& context) {
  std::uint16_t port = 0;
  if (Result<void> read = read_number(arguments, "port", port); !read.ok()) {
    return context.complain(read.error());
  }
  const std::string host = arguments.option("bind-host", kLoopbackHost);
  Result<UniqueFd> listener = listen_tcp({host, port});
  if (!listener.ok()) {
    return context.complain("dashboard: " + listener.error().detail, kExitFailed);
  }
  const Endpoint bound = bound_endpoint(listener.value().get());
  observe::ServerOptions options;
  options.gate.key = key_of(arguments.positionals);
  options.gate.port = bound.port;
  if (const std::string name = arguments.option("host-name"); !name.empty()) {
    options.gate.names.push_back(name);
  }
  if (!is_loopback(bound.host)) {
    context.err << "mayfly: the page can be reached from other hosts at " << to_string(bound)
                << ", unencrypted; only with its key\n";
  }
  const std::string shown = !arguments.option("host-name").empty() ? arguments.option("host-name")
                            : is_wildcard(bound.host)              ? default_address()
                                                                   : bound.host;
  context.out << "http://" << to_string(Endpoint{shown, bound.port}) << "/#key=" << options.gate.key
              << std::endl;
  options.listener = std::move(listener).value();
  options.runs = std::move(runs);
  observe::Server::make(std::move(options))->run(true);
  return kExitDone;
}

}  // namespace

int dashboard(const ParsedArguments& arguments, Context& context) {
  if (arguments.positionals.empty()) {
    return context.complain("dashboard expects run directories, such as runs/a", kExitUsage);
  }
  Runs runs;
  for (const std::string& path : arguments.positionals) {
    Result<std::unique_ptr<observe::RunFollower>> opened = observe::RunFollower::open(path);
    if (!opened.ok()) {
      return context.complain("dashboard: " + opened.error().detail, kExitUsage);
    }
    runs.push_back(std::move(opened).value());
  }
  const std::string report = arguments.option("report");
  return report.empty() ? serve(arguments, std::move(runs), context)
                        : write_report(report, runs, context);
}

}  // namespace mayfly::cli
