#include "engine/training/device_exchange.hpp"

#include <utility>

#include "base/check.hpp"
#include "collectives/nccl/paired_transport.hpp"
#include "collectives/tcp/tcp_transport.hpp"
#include "collectives/transport_module.hpp"
#include "engine/run/network_interface.hpp"

namespace mayfly::engine {
namespace {

using collectives::DeviceTransport;
using collectives::Transport;
using collectives::TransportModule;

Error no_nccl(const Error& error) {
  return {error.code, "backend nccl cannot be used: " + error.detail};
}

std::unique_ptr<DeviceTransport> as_device_transport(std::unique_ptr<Transport> transport) {
  auto* const device = dynamic_cast<DeviceTransport*>(transport.get());
  ENSURE(device != nullptr, "a module with sums on the device makes a DeviceTransport");
  (void)transport.release();
  return std::unique_ptr<DeviceTransport>(device);
}

Result<std::unique_ptr<Transport>> pair(const TransportModule& module, const Job& job,
                                        const nn::DeviceGradient& gradient) {
  const Result<std::string> host = listening_host(job.config.bind_host);
  if (!host.ok()) {
    return host.error();
  }
  collectives::ModuleOptions options;
  options.bind_host = host.value();
  options.device = gradient.device;
  options.is_shared = gradient.is_shared;
  Result<std::unique_ptr<Transport>> device = module.make(options);
  if (!device.ok()) {
    return device;
  }
  collectives::TcpOptions tcp;
  tcp.bind_host = host.value();
  Result<std::unique_ptr<Transport>> control = collectives::make_tcp_transport(tcp);
  if (!control.ok()) {
    return control;
  }
  return collectives::make_paired_transport(std::move(control).value(),
                                            as_device_transport(std::move(device).value()));
}

Result<const TransportModule*> load_nccl() {
  const Result<const TransportModule*> module = collectives::load_transport_module("nccl");
  ENSURE(!module.ok() || module.value()->make_sum_calls != nullptr,
         "the module's groups work on a device");
  return module.ok() ? module : no_nccl(module.error());
}

}  // namespace

bool reduces_on_device(const JobConfig& config) {
  return config.backend == "nccl";
}

// The parameters' blocks, counted from the first of them.
collectives::DeviceSumsShape device_sums_shape(const ReductionLayout& layout, bool exact,
                                               std::uint32_t microbatches) {
  collectives::DeviceSumsShape shape;
  shape.exact = exact;
  shape.bits = collectives::magnitude_bits(microbatches);
  for (std::size_t b = layout.first_parameter_block(); b < layout.blocks().block_count(); ++b) {
    shape.offsets.push_back(
        static_cast<std::uint32_t>(layout.blocks().offset(b) - layout.parameters_offset()));
  }
  shape.offsets.push_back(
      static_cast<std::uint32_t>(layout.element_count() - layout.parameters_offset()));
  return shape;
}

std::size_t device_sums_bytes(const ReductionLayout& layout, bool exact) {
  constexpr std::uint32_t kAnyMicrobatches = 1;
  return collectives::DeviceSums::device_bytes(device_sums_shape(layout, exact, kAnyMicrobatches));
}

Result<DeviceSumsParts> make_device_sums(const ReductionLayout& layout, bool exact,
                                         std::uint32_t microbatches,
                                         const std::optional<nn::DeviceGradient>& gradient) {
  if (!gradient.has_value()) {
    return no_nccl({Errc::kUnsupported, "gradients are not in the memory of a GPU"});
  }
  const Result<const TransportModule*> module = load_nccl();
  if (!module.ok()) {
    return module.error();
  }
  DeviceSumsParts made;
  Result<std::unique_ptr<collectives::SumCalls>> calls =
      module.value()->make_sum_calls(gradient->device);
  if (!calls.ok()) {
    return no_nccl(calls.error());
  }
  made.calls = std::move(calls).value();
  Result<std::unique_ptr<collectives::DeviceSums>> sums =
      collectives::DeviceSums::make(*made.calls, device_sums_shape(layout, exact, microbatches),
                                    {gradient->gradient, gradient->stream});
  if (!sums.ok()) {
    return no_nccl(sums.error());
  }
  made.sums = std::move(sums).value();
  return made;
}

Result<DeviceExchange> make_device_exchange(const Job& job, const ReductionLayout& layout,
                                            const std::optional<nn::DeviceGradient>& gradient) {
  Result<DeviceSumsParts> parts = make_device_sums(layout, job.exact(), job.microbatches, gradient);
  if (!parts.ok()) {
    return std::move(parts).error();
  }
  const Result<const TransportModule*> module = load_nccl();
  if (!module.ok()) {
    return module.error();
  }
  Result<std::unique_ptr<Transport>> transport = pair(*module.value(), job, *gradient);
  if (!transport.ok()) {
    return no_nccl(transport.error());
  }
  return DeviceExchange{std::move(transport).value(), std::move(parts).value()};
}

}  // namespace mayfly::engine
