#include "collectives/tcp/tcp_transport.hpp"

#include <fmt/format.h>
#include <unistd.h>

#include <random>
#include <utility>

#include "base/net/sockets.hpp"
#include "collectives/forming_guard.hpp"
#include "collectives/ring_group.hpp"
#include "collectives/tcp/tcp_formation.hpp"

namespace mayfly::collectives {
namespace {

class TcpTransport final : public Transport {
 public:
  TcpTransport(TcpDoor door, std::string address, std::string unix_path, DelaySource delay)
      : door_(std::move(door)),
        address_(std::move(address)),
        unix_path_(std::move(unix_path)),
        delay_(std::move(delay)) {}
  ~TcpTransport() override {
    if (!unix_path_.empty()) {
      ::unlink(unix_path_.c_str());
    }
  }

  std::string address() const override { return address_; }

  Result<std::unique_ptr<Group>> form(const GroupSpec& spec, Instant deadline) override {
    TRY(check_spec(spec));
    const auto signal = std::make_shared<AbortSignal>();
    const FormingGuard::Entry entry = guard_.enter(spec.view, [signal] { signal->raise(); });
    const auto size = static_cast<std::uint32_t>(spec.peers.size());
    std::unique_ptr<RingLink> link;
    if (size > 1) {
      Result<TcpConnections> connections = connect_members(spec, door_, *signal, deadline);
      if (!connections.ok()) {
        return connections.error();
      }
      std::unique_ptr<TcpLink> made = make_tcp_link(std::move(connections).value(), signal);
      const Result<std::int32_t> crowded =
          run_first_barrier(*made, size, spec.rank, made->finds_host_crowded() ? 1 : 0, deadline);
      if (!crowded.ok()) {
        return crowded.error();
      }
      made->spare_messages(crowded.value() > 0);
      link = delay_ ? make_late_link(std::move(made), delay_) : std::move(made);
    }
    if (signal->raised()) {
      return Error{Errc::kAborted, fmt::format("view {} was given up", value(spec.view))};
    }
    return make_ring_group(spec.view, spec.rank, size, std::move(link));
  }

  void give_up_on(ViewId view) noexcept override { guard_.give_up_on(view); }

 private:
  TcpDoor door_;
  const std::string address_;
  const std::string unix_path_;  // to remove at the end; empty: none
  const DelaySource delay_;      // empty: none
  FormingGuard guard_;
};

std::string new_unix_name(const std::string& folder) {
  std::random_device random;
  const std::string name = fmt::format("mayfly-{}-{:08x}{:08x}", ::getpid(), random(), random());
  return folder.empty() ? "@" + name : folder + "/" + name;
}

// Members of one host are still reachable over TCP, so that a system that refuses Unix-domain
// sockets is not an error.
UniqueFd open_unix_door(const std::string& folder, TcpAddress& address) {
  std::string name = new_unix_name(folder);
  Result<UniqueFd> fd = listen_unix(name);
  std::string host_id = this_host_id();
  if (!fd.ok() || host_id.empty()) {
    return {};
  }
  address.unix_name = std::move(name);
  address.host_id = std::move(host_id);
  return std::move(fd).value();
}

}  // namespace

Result<std::unique_ptr<Transport>> make_tcp_transport(const TcpOptions& options) {
  Result<UniqueFd> tcp = listen_tcp({options.bind_host, options.port});
  if (!tcp.ok()) {
    return tcp.error();
  }
  const Endpoint bound = bound_endpoint(tcp.value().get());
  TcpAddress address;
  address.host = options.advertise_host.empty() ? bound.host : options.advertise_host;
  address.port = bound.port;
  if (is_wildcard(address.host)) {
    return Error{Errc::kInvalidInput,
                 "listening on every interface needs an address that others can connect to"};
  }
  UniqueFd unix_domain = options.use_unix ? open_unix_door(options.unix_dir, address) : UniqueFd();
  TcpDoor door;
  door.room = std::make_unique<PendingConnections>(std::move(tcp).value(), std::move(unix_domain));
  door.host_id = address.host_id;
  door.share_memory = options.share_memory;
  door.mesh_members_max = options.mesh_members_max;
  const bool is_path = !address.unix_name.empty() && address.unix_name.front() != '@';
  std::string unix_path = is_path ? address.unix_name : std::string();
  return std::unique_ptr<Transport>(std::make_unique<TcpTransport>(
      std::move(door), to_string(address), std::move(unix_path), options.delay));
}

}  // namespace mayfly::collectives
