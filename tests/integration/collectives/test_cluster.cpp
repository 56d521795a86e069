#include "tests/integration/collectives/test_cluster.hpp"

#include <gtest/gtest.h>

#include <numeric>

#include "collectives/gloo/gloo_transport.hpp"
#include "collectives/nccl/nccl_transport.hpp"
#include "collectives/nccl/paired_transport.hpp"
#include "collectives/tcp/tcp_transport.hpp"
#include "tests/unit/collectives/nccl/fake_nccl.hpp"

namespace mayfly::collectives::test {

namespace {

// The NCCL transport, with an imitation of the library and the device in this process.
Result<std::unique_ptr<Transport>> make_fake_nccl_transport() {
  return make_nccl_transport(make_fake_nccl(), "nccl:fake");
}

// Gradients over the transport above, everything else over tcp, as with --backend nccl.
Result<std::unique_ptr<Transport>> make_paired() {
  Result<std::unique_ptr<Transport>> host = make_tcp_transport({});
  Result<std::unique_ptr<Transport>> device = make_nccl_transport(make_fake_nccl(), "nccl:fake");
  if (!host.ok() || !device.ok()) {
    return host.ok() ? std::move(device).error() : std::move(host).error();
  }
  return make_paired_transport(std::move(host).value(), std::move(device).value());
}

}  // namespace

std::string name_of(Kind kind) {
  switch (kind) {
    case Kind::kShared: return "Shared";
    case Kind::kUnix: return "Unix";
    case Kind::kTcp: return "Tcp";
    case Kind::kTcpV6: return "TcpV6";
    case Kind::kTcpRing: return "TcpRing";
    case Kind::kGloo: return "Gloo";
    case Kind::kFakeNccl: return "FakeNccl";
    case Kind::kPaired: return "Paired";
  }
  return "?";
}

std::vector<Kind> available_kinds() {
  std::vector<Kind> kinds;
  for (const Kind kind : {Kind::kShared, Kind::kUnix, Kind::kTcp, Kind::kTcpV6, Kind::kTcpRing,
                          Kind::kGloo, Kind::kFakeNccl, Kind::kPaired}) {
    if (make_transport(kind).ok()) {
      kinds.push_back(kind);
    }
  }
  return kinds;
}

Result<std::unique_ptr<Transport>> make_transport(Kind kind) {
  switch (kind) {
    case Kind::kShared: return make_tcp_transport({});
    case Kind::kUnix: return make_tcp_transport({.share_memory = false});
    case Kind::kTcp: return make_tcp_transport({.use_unix = false});
    case Kind::kTcpV6: return make_tcp_transport({.bind_host = "::1", .use_unix = false});
    case Kind::kTcpRing: return make_tcp_transport({.use_unix = false, .mesh_members_max = 0});
    case Kind::kGloo: return make_gloo_transport({});
    case Kind::kFakeNccl: return make_fake_nccl_transport();
    case Kind::kPaired: return make_paired();
  }
  return Error{Errc::kUnsupported, "unknown kind"};
}

Cluster::Cluster(Kind kind, std::uint32_t size) {
  for (std::uint32_t i = 0; i < size; ++i) {
    transports.push_back(make_transport(kind).value());
  }
}

GroupSpec Cluster::spec(ViewId view, const std::vector<std::uint32_t>& members,
                        std::uint32_t rank) {
  GroupSpec spec;
  spec.view = view;
  spec.rank = Rank{rank};
  for (const std::uint32_t m : members) {
    spec.peers.push_back({member(m), transports[m] ? transports[m]->address() : "tcp:127.0.0.1:1"});
  }
  spec.key = value(view) * 1000 + 7;
  spec.store = &store;
  return spec;
}

std::vector<std::unique_ptr<Group>> Cluster::form(ViewId view, std::uint32_t size) {
  std::vector<std::uint32_t> members(size);
  std::iota(members.begin(), members.end(), 0U);
  return form(view, members);
}

std::vector<std::unique_ptr<Group>> Cluster::form(ViewId view,
                                                  const std::vector<std::uint32_t>& members) {
  const auto size = static_cast<std::uint32_t>(members.size());
  std::vector<GroupSpec> specs;
  for (std::uint32_t rank = 0; rank < size; ++rank) {
    specs.push_back(spec(view, members, rank));
  }
  std::vector<std::unique_ptr<Group>> groups(size);
  on_all(size, [&](std::uint32_t rank) {
    Result<std::unique_ptr<Group>> formed = transports[members[rank]]->form(specs[rank], far());
    EXPECT_TRUE(formed.ok()) << formed.error().detail;
    if (formed.ok()) {
      groups[rank] = std::move(formed).value();
    }
  });
  return groups;
}

}  // namespace mayfly::collectives::test
