// libmayfly_mpi.so: groups over Open MPI, in processes that mpirun started (docs/mpi.md).

#include <fmt/format.h>

#include <atomic>
#include <memory>
#include <utility>

#include "collectives/forming_guard.hpp"
#include "collectives/mpi/mpi_formation.hpp"
#include "collectives/mpi/mpi_group.hpp"
#include "collectives/mpi/mpi_world.hpp"
#include "collectives/transport_module.hpp"

namespace mayfly::collectives {
namespace {

/// Of a group of one: there is nobody to exchange anything with.
class NothingToDo final : public MpiEngine {
 public:
  std::unique_ptr<MpiRun> begin(const MpiTask& /*task*/) override {
    return std::make_unique<Done>();
  }
  bool can_be_stopped() const override { return true; }
  void poke() override {}

 private:
  struct Done final : MpiRun {
    Result<Progress> advance() override { return Progress::kDone; }
  };
};

class MpiTransport final : public Transport {
 public:
  explicit MpiTransport(std::unique_ptr<MpiWorld> world) : world_(std::move(world)) {}

  std::string address() const override { return world_->address(); }

  Result<std::unique_ptr<Group>> form(const GroupSpec& spec, Instant deadline) override {
    Result<MpiPlace> place = place_of(spec);
    if (!place.ok()) {
      return place.error();
    }
    std::atomic<bool> stop{false};
    const FormingGuard::Entry entry = guard_.enter(spec.view, [&stop] { stop = true; });
    Result<void> met = meet_members(*world_, spec, place.value(), deadline, stop);
    if (!met.ok()) {
      return met.error();
    }
    if (stop.load()) {
      return Error{Errc::kAborted, fmt::format("view {} was given up", value(spec.view))};
    }
    Result<std::unique_ptr<MpiEngine>> engine = make_engine(place.value(), spec.view);
    if (!engine.ok()) {
      return engine.error();
    }
    world_->note_view();
    auto queue = std::make_shared<MpiQueue>(*world_, std::move(engine).value());
    return make_mpi_group(spec.view, spec.rank, place.value().size, std::move(queue));
  }

  void give_up_on(ViewId view) noexcept override { guard_.give_up_on(view); }

 private:
  Result<MpiPlace> place_of(const GroupSpec& spec) const {
    if (value(spec.rank) >= spec.peers.size()) {
      return Error{Errc::kInvalidInput, "the group's own rank is not among its peers"};
    }
    Result<std::vector<int>> ranks = world_->ranks_of(spec.peers);
    if (!ranks.ok()) {
      return ranks.error();
    }
    return MpiPlace{spec.rank, static_cast<std::uint32_t>(spec.peers.size()), spec.peers,
                    std::move(ranks).value()};
  }

  Result<std::unique_ptr<MpiEngine>> make_engine(const MpiPlace& place, ViewId view) {
    if (place.size == 1) {
      return std::unique_ptr<MpiEngine>(std::make_unique<NothingToDo>());
    }
    if (world_->elastic()) {
      return make_ring_engine(*world_, place, view);
    }
    return make_collective_engine(*world_, place, view);
  }

  const std::unique_ptr<MpiWorld> world_;
  FormingGuard guard_;
};

Result<std::unique_ptr<Transport>> make(const ModuleOptions& options) {
  Result<std::unique_ptr<MpiWorld>> world = MpiWorld::start(options.share_cores);
  if (!world.ok()) {
    return world.error();
  }
  return std::unique_ptr<Transport>(std::make_unique<MpiTransport>(std::move(world).value()));
}

}  // namespace
}  // namespace mayfly::collectives

extern "C" __attribute__((visibility("default"))) const mayfly::collectives::TransportModule*
mayfly_transport_module() {
  using namespace mayfly::collectives;  // NOLINT
  static const TransportModule module{transport_module_build(), &MpiWorld::probe, &make};
  return &module;
}
