#include "engine/training/backend.hpp"

#include <cstdlib>
#include <utility>

#include "base/check.hpp"
#include "base/try_assign.hpp"
#include "collectives/gloo/gloo_transport.hpp"
#include "collectives/nccl/paired_transport.hpp"
#include "collectives/tcp/tcp_transport.hpp"
#include "collectives/transport_module.hpp"
#include "engine/config/bind_host.hpp"

namespace mayfly::engine {
namespace {

// Whether the backend is in a module that is loaded at run time.
bool is_module(const std::string& backend) {
  return backend == "mpi" || backend == "nccl";
}

using collectives::Transport;
using collectives::TransportModule;

Error no_nccl(const Error& error) {
  return {error.code, "backend nccl cannot be used: " + error.detail};
}

Result<std::unique_ptr<Transport>> pair(const TransportModule& module, const Job& job,
                                        const nn::DeviceGradient& gradient) {
  TRY_ASSIGN(const auto host, listening_host(job.config.bind_host));
  collectives::ModuleOptions options;
  options.bind_host = host;
  options.device = gradient.device;
  options.is_shared = gradient.is_shared;
  TRY_ASSIGN(auto device, module.make(options));
  collectives::TcpOptions tcp;
  tcp.bind_host = host;
  TRY_ASSIGN(auto control, collectives::make_tcp_transport(tcp));
  return collectives::make_paired_transport(std::move(control), std::move(device));
}

Result<const TransportModule*> load_nccl() {
  const Result<const TransportModule*> module = collectives::load_transport_module("nccl");
  ENSURE(!module.ok() || module.value()->make_sum_calls != nullptr,
         "the module's groups work on a device");
  return module.ok() ? module : no_nccl(module.error());
}

}  // namespace

Result<void> check_backend(const JobConfig& config) {
  if (!is_module(config.backend)) {
    return {};
  }
  const Result<const collectives::TransportModule*> module =
      collectives::load_transport_module(config.backend);
  return module.ok() ? module.value()->probe() : Result<void>(module.error());
}

Result<std::unique_ptr<collectives::Transport>> make_transport(const JobConfig& config,
                                                               collectives::DelaySource delay) {
  TRY_ASSIGN(const auto host, listening_host(config.bind_host));
  ENSURE(config.backend != "nccl", "its transport needs a device, see device_exchange");
  if (is_module(config.backend)) {
    TRY_ASSIGN(const auto module, collectives::load_transport_module(config.backend));
    collectives::ModuleOptions options;
    options.bind_host = host;
    options.share_cores = true;
    return module->make(options);
  }
  if (config.backend == "gloo") {
    collectives::GlooOptions options;
    options.bind_host = host;
    return collectives::make_gloo_transport(options);
  }
  collectives::TcpOptions options;
  options.bind_host = host;
  options.delay = std::move(delay);
  return collectives::make_tcp_transport(options);
}

std::string process_set(const JobConfig& config) {
  const char* job = config.backend == "mpi" ? std::getenv("PMIX_NAMESPACE") : nullptr;
  return job == nullptr ? "any" : std::string("mpirun ") + job;
}

bool reduces_on_device(const JobConfig& config) {
  return config.backend == "nccl";
}

// Offsets are counted from the first block of parameters.
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
                                         const nn::DeviceGradient& gradient) {
  TRY_ASSIGN(const auto module, load_nccl());
  DeviceSumsParts made;
  Result<std::unique_ptr<collectives::SumCalls>> calls = module->make_sum_calls(gradient.device);
  if (!calls.ok()) {
    return no_nccl(calls.error());
  }
  made.calls = std::move(calls).value();
  Result<std::unique_ptr<collectives::DeviceSums>> sums =
      collectives::DeviceSums::make(*made.calls, device_sums_shape(layout, exact, microbatches),
                                    {gradient.gradient, gradient.stream});
  if (!sums.ok()) {
    return no_nccl(sums.error());
  }
  made.sums = std::move(sums).value();
  return made;
}

Result<DeviceExchange> make_device_exchange(const Job& job, const ReductionLayout& layout,
                                            const nn::DeviceGradient& gradient) {
  TRY_ASSIGN(auto parts, make_device_sums(layout, job.exact(), job.microbatches, gradient));
  TRY_ASSIGN(const auto module, load_nccl());
  Result<std::unique_ptr<Transport>> transport = pair(*module, job, gradient);
  if (!transport.ok()) {
    return no_nccl(transport.error());
  }
  return DeviceExchange{std::move(transport).value(), std::move(parts)};
}

}  // namespace mayfly::engine
