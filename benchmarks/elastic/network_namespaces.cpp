#include "benchmarks/elastic/network_namespaces.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <unistd.h>
#include <utility>

#include "base/check.hpp"
#include "base/process/program.hpp"
#include "base/try_assign.hpp"

namespace mayfly::bench {
namespace {

// 198.18.0.0/15 is reserved for benchmarks (RFC 2544), so no real address is hidden.
constexpr const char* kHostAddress = "198.18.0.1";
constexpr const char* kBridgeAddress = "02:00:6d:66:00:01";  // locally administered
constexpr const char* kNetBits = "/16";

/// Restricts the calling thread to these cores; threads and processes that it starts inherit that.
void keep_to(const cpu_set_t& cores) {
  ENSURE(sched_setaffinity(0, sizeof cores, &cores) == 0, "these cores could be used before");
}

}  // namespace

Result<void> run_ip(const std::vector<std::string>& words) {
  ProgramCall call;
  call.argv = words;
  call.argv.insert(call.argv.begin(), "ip");
  TRY_ASSIGN(const ProgramResult ran, run_program(call));
  if (!ran.succeeded()) {
    return Error{Errc::kIo, fmt::format("'ip {}': {}", fmt::join(words, " "), ran.summary())};
  }
  return {};
}

std::string why_no_namespaces() {
  if (::geteuid() != 0) {
    return "network namespaces need root";
  }
  const std::string probe = fmt::format("mayfly{}-probe", static_cast<int>(::getpid()));
  if (Result<void> made = run_ip({"netns", "add", probe}); !made.ok()) {
    return made.error().detail;
  }
  (void)run_ip({"netns", "del", probe});
  return {};
}

Result<NetworkNamespaces> NetworkNamespaces::make() {
  NetworkNamespaces made(fmt::format("mf{}", static_cast<int>(::getpid())));
  const std::string bridge = made.prefix_;
  for (const std::vector<std::string>& command :
       // The bridge gets an address of its own: otherwise it would have that of one of its ports,
       // and that port would still receive packets when it is taken off the bridge.
       {std::vector<std::string>{"link", "add", bridge, "address", kBridgeAddress, "type",
                                 "bridge"},
        {"addr", "add", std::string(kHostAddress) + kNetBits, "dev", bridge},
        {"link", "set", bridge, "up"}}) {
    TRY(run_ip(command));
  }
  return made;
}

NetworkNamespaces::NetworkNamespaces(NetworkNamespaces&& other) noexcept
    : prefix_(std::exchange(other.prefix_, {})), made_(std::exchange(other.made_, {})) {}

NetworkNamespaces::~NetworkNamespaces() {
  if (prefix_.empty()) {
    return;
  }
  for (const std::size_t number : made_) {
    // The link would be removed together with the namespace, but later.
    (void)run_ip({"link", "del", outside_of(number)});
    (void)run_ip({"netns", "del", name_of(number)});
  }
  (void)run_ip({"link", "del", prefix_});
}

std::string NetworkNamespaces::host_address() const {
  return kHostAddress;
}

std::string NetworkNamespaces::name_of(std::size_t number) const {
  return fmt::format("{}-{}", prefix_, number);
}

std::string NetworkNamespaces::outside_of(std::size_t number) const {
  return fmt::format("{}v{}", prefix_, number);
}

std::string NetworkNamespaces::address_of(std::size_t number) const {
  return fmt::format("198.18.{}.{}", 1 + number / 250, 1 + number % 250);
}

Result<void> NetworkNamespaces::move_in(std::size_t number, std::vector<std::string>& command) {
  const std::string space = name_of(number);
  const std::string outside = outside_of(number);
  made_.push_back(number);
  for (const std::vector<std::string>& words :
       {std::vector<std::string>{"netns", "add", space},
        {"link", "add", outside, "type", "veth", "peer", "name", "eth0", "netns", space},
        {"link", "set", outside, "master", prefix_, "up"},
        {"-n", space, "addr", "add", address_of(number) + kNetBits, "dev", "eth0"},
        {"-n", space, "link", "set", "eth0", "up"},
        {"-n", space, "link", "set", "lo", "up"}}) {
    TRY(run_ip(words));
  }
  // `ip netns exec` becomes the program, so the process keeps its id.
  command.insert(command.begin(), {"ip", "netns", "exec", space});
  command.insert(command.end(), {"--bind-host", address_of(number)});
  return {};
}

Result<void> NetworkNamespaces::cut(std::size_t number) {
  // Without its port on the bridge the link stays up, and all packets that enter it are lost.
  return run_ip({"link", "set", outside_of(number), "nomaster"});
}

Result<OwnCore> OwnCore::reserve() {
  cpu_set_t all;
  CPU_ZERO(&all);
  if (sched_getaffinity(0, sizeof all, &all) != 0) {
    return Error{Errc::kIo, "cannot find out which cores may be used"};
  }
  if (CPU_COUNT(&all) < 2) {
    return Error{Errc::kInvalidInput,
                 "--own-core: one core may be used here; at least 2 are needed"};
  }
  std::size_t last = CPU_SETSIZE - 1;
  while (!CPU_ISSET(last, &all)) {
    --last;
  }
  return OwnCore(all, last);
}

OwnCore::OwnCore(const cpu_set_t& all, std::size_t last) : all_(all), last_(last) {
  cpu_set_t others = all;
  CPU_CLR(last, &others);
  keep_to(others);
}

OwnCore::OwnCore(OwnCore&& other) noexcept
    : all_(other.all_),
      last_(other.last_),
      is_reserved_(std::exchange(other.is_reserved_, false)) {}

OwnCore::~OwnCore() {
  if (is_reserved_) {
    keep_to(all_);
  }
}

void OwnCore::move_in(std::vector<std::string>& command) const {
  command.insert(command.begin(), {"taskset", "--cpu-list", std::to_string(last_)});
}

}  // namespace mayfly::bench
