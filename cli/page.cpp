#include "cli/page.hpp"

#include "base/file.hpp"
#include "base/net/sockets.hpp"
#include "base/parse.hpp"
#include "base/time.hpp"
#include "base/try_assign.hpp"
#include "observe/report.hpp"

namespace mayfly::cli {
namespace {

constexpr std::size_t kTokenBytesMax = 4096;

}  // namespace

Result<Page> open_page(const PagePlace& place, FollowedRuns runs) {
  Result<UniqueFd> listener = listen_tcp(place.listen);
  if (!listener.ok()) {
    return Error{listener.error().code, "dashboard: " + listener.error().detail};
  }
  Page page;
  page.endpoint = bound_endpoint(listener.value().get());
  observe::ServerOptions options;
  options.gate.key = place.key;
  options.gate.port = page.endpoint.port;
  if (!place.host_name.empty()) {
    options.gate.names.push_back(place.host_name);
  }
  if (!is_loopback(page.endpoint.host)) {
    page.warning = "the page can be reached from other hosts at " + to_string(page.endpoint) +
                   ", unencrypted; only with its key";
  } else if (!is_loopback(place.listen.host) && place.listen.host.find(':') == std::string::npos &&
             place.listen.host != "localhost") {
    page.warning = place.listen.host + " is " + page.endpoint.host +
                   " on this host, so only this host can reach the page; for others name an "
                   "address, or 0.0.0.0";
  }
  const std::string shown = !place.host_name.empty()          ? place.host_name
                            : is_wildcard(page.endpoint.host) ? default_address()
                                                              : page.endpoint.host;
  page.address = "http://" + to_string(Endpoint{shown, page.endpoint.port}) + "/#key=" + place.key;
  options.listener = std::move(listener).value();
  options.runs = std::move(runs);
  page.server = observe::Server::make(std::move(options));
  return page;
}

Result<std::size_t> write_report(const std::string& path, const FollowedRuns& runs) {
  std::vector<observe::RunFollower*> list;
  for (const std::unique_ptr<observe::RunFollower>& run : runs) {
    list.push_back(run.get());
  }
  const std::string text = observe::report_of(list, wall_clock_seconds());
  TRY(write_file_atomic(path, text));
  return (text.size() + 1023) / 1024;
}

Result<std::string> viewing_key_of(const std::string& token_file) {
  TRY_ASSIGN(const std::string text, read_text_file(token_file, kTokenBytesMax));
  return observe::viewing_key(text.substr(0, text.find_last_not_of(" \r\n") + 1));
}

Result<Endpoint> parse_dashboard(const std::string& text) {
  if (text.find(':') != std::string::npos) {
    return parse_endpoint(text);
  }
  const std::optional<std::uint16_t> port = number_in<std::uint16_t>(text);
  return port ? Result<Endpoint>(Endpoint{kLoopbackHost, *port})
              : Result<Endpoint>(Error{Errc::kInvalidInput,
                                       "dashboard expects PORT or HOST:PORT, got '" + text + "'"});
}

}  // namespace mayfly::cli
