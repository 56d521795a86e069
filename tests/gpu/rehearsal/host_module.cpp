// A libmayfly_nccl.so whose groups are those of the tcp transport, in host memory. With it the GPU
// tests, and training on GPUs, can be tested without a GPU, with real processes that are killed.
// With REHEARSAL_NCCL=old in the environment it reports an NCCL that is too old.

#include <cstdlib>
#include <memory>
#include <string>
#include <string_view>

#include "base/try_assign.hpp"
#include "collectives/group.hpp"
#include "collectives/nccl/nccl_transport.hpp"
#include "collectives/tcp/tcp_transport.hpp"
#include "collectives/transport_module.hpp"
#include "tests/unit/collectives/nccl/host_sum_calls.hpp"

namespace mayfly::collectives {
namespace {

class HostGroup final : public DeviceGroup {
 public:
  explicit HostGroup(std::unique_ptr<Group> group) : group_(std::move(group)) {}

  ViewId view() const override { return group_->view(); }
  Rank rank() const override { return group_->rank(); }
  std::uint32_t size() const override { return group_->size(); }
  std::unique_ptr<Work> all_reduce(void* data, std::size_t count, DataType type,
                                   ReduceOp op) override {
    return group_->all_reduce(data, count, type, op);
  }
  std::unique_ptr<Work> broadcast(std::span<std::byte> data, Rank root) override {
    return group_->broadcast(data, root);
  }
  std::unique_ptr<Work> all_gather(ByteSpan mine, std::span<std::byte> all) override {
    return group_->all_gather(mine, all);
  }
  std::unique_ptr<Work> barrier() override { return group_->barrier(); }
  void abort() noexcept override { group_->abort(); }

  // Streams carry operations out at once, so there is nothing to wait for.
  Result<void> follow(DeviceStream /*stream*/) override { return {}; }

 private:
  std::unique_ptr<Group> group_;
};

class HostTransport final : public Transport {
 public:
  explicit HostTransport(std::unique_ptr<Transport> tcp) : tcp_(std::move(tcp)) {}

  std::string address() const override { return tcp_->address(); }
  void give_up_on(ViewId view) noexcept override { tcp_->give_up_on(view); }

  // A GroupSpec for nccl contains no addresses, so the members exchange them through the store.
  Result<std::unique_ptr<Group>> form(const GroupSpec& spec, Instant deadline) override {
    const auto key = [&](std::size_t rank) {
      return "tcp/" + std::to_string(value(spec.view)) + "/" + std::to_string(rank);
    };
    const std::string own = tcp_->address();
    (void)spec.store->set(key(value(spec.rank)), std::as_bytes(std::span(own)));
    GroupSpec with_addresses = spec;
    for (std::size_t rank = 0; rank < spec.peers.size(); ++rank) {
      TRY_ASSIGN(const auto address, spec.store->get(key(rank), deadline));
      const auto* const text = reinterpret_cast<const char*>(address.data());
      with_addresses.peers[rank].address = std::string(text, address.size());
    }
    TRY_ASSIGN(auto formed, tcp_->form(with_addresses, deadline));
    return std::unique_ptr<Group>(std::make_unique<HostGroup>(std::move(formed)));
  }

 private:
  std::unique_ptr<Transport> tcp_;
};

Result<void> probe() {
  constexpr int kOld = 22600;
  constexpr int kUsual = 22809;
  const char* const found = std::getenv("REHEARSAL_NCCL");
  const bool is_old = found != nullptr && std::string_view(found) == "old";
  return judge({.gpu = {.driver_cuda = 13000,
                        .built_cuda = 13000,
                        .devices = 1,
                        .device_error = "",
                        .capability = 90,
                        .name = "",
                        .uuid = ""},
                .built_nccl = kUsual,
                .found_nccl = is_old ? kOld : kUsual});
}

Result<std::unique_ptr<Transport>> make(const ModuleOptions& /*options*/) {
  TRY_ASSIGN(auto tcp, make_tcp_transport({}));
  return std::unique_ptr<Transport>(std::make_unique<HostTransport>(std::move(tcp)));
}

Result<std::unique_ptr<SumCalls>> make_sum_calls(int /*device*/) {
  return std::unique_ptr<SumCalls>(std::make_unique<test::HostSumCalls>());
}

}  // namespace
}  // namespace mayfly::collectives

extern "C" __attribute__((visibility("default"))) const mayfly::collectives::TransportModule*
mayfly_transport_module() {
  using namespace mayfly::collectives;  // NOLINT: the names above
  static const TransportModule module{.build = transport_module_build(),
                                      .probe = probe,
                                      .make = make,
                                      .make_sum_calls = make_sum_calls};
  return &module;
}
