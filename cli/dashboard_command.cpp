// `mayfly dashboard`: the records of runs as a page, served or written into one file.

#include "cli/cli.hpp"
#include "cli/page.hpp"
#include "observe/access.hpp"

namespace mayfly::cli {
namespace {

/// The key: derived from the job's token, so that the address stays the same, or random without a
/// token.
std::string key_of(const std::vector<std::string>& paths) {
  for (const std::string& path : paths) {
    if (Result<std::string> key = viewing_key_of(path + "/token"); key.ok()) {
      return std::move(key).value();
    }
  }
  return observe::random_key();
}

int serve(const ParsedArguments& arguments, FollowedRuns runs, const Context& context) {
  PagePlace place;
  if (Result<void> read = read_number(arguments, "port", place.listen.port); !read.ok()) {
    return context.complain(read.error());
  }
  place.listen.host = arguments.option("bind-host", kLoopbackHost);
  place.host_name = arguments.option("host-name");
  place.key = key_of(arguments.positionals);
  const Result<Page> page = open_page(place, std::move(runs));
  if (!page.ok()) {
    return context.complain(page.error().detail, kExitUsage);
  }
  if (!page.value().warning.empty()) {
    context.err << "mayfly: " << page.value().warning << "\n";
  }
  context.out << page.value().address << std::endl;
  page.value().server->run(true);
  return kExitDone;
}

int report(const std::string& path, const FollowedRuns& runs, const Context& context) {
  const Result<std::size_t> written = write_report(path, runs);
  if (!written.ok()) {
    return context.complain(written.error());
  }
  context.out << path << ": " << written.value() << " KiB\n";
  return kExitDone;
}

}  // namespace

int dashboard(const ParsedArguments& arguments, Context& context) {
  if (arguments.positionals.empty()) {
    return context.complain("dashboard expects run directories, such as runs/a", kExitUsage);
  }
  FollowedRuns runs;
  for (const std::string& path : arguments.positionals) {
    Result<std::unique_ptr<observe::RunFollower>> opened = observe::RunFollower::open(path);
    if (!opened.ok()) {
      return context.complain("dashboard: " + opened.error().detail, kExitUsage);
    }
    runs.push_back(std::move(opened).value());
  }
  if (const Result<void> named = observe::name_apart(runs); !named.ok()) {
    return context.complain("dashboard: " + named.error().detail, kExitUsage);
  }
  const std::string path = arguments.option("report");
  return path.empty() ? serve(arguments, std::move(runs), context) : report(path, runs, context);
}

}  // namespace mayfly::cli
