#include "benchmarks/ranks/group_rank.hpp"

#include <utility>

#include "base/try_assign.hpp"
#include "benchmarks/ranks/control_hub.hpp"
#include "benchmarks/ranks/rank_session.hpp"
#include "benchmarks/reform/reform_rank.hpp"
#include "collectives/gloo/gloo_transport.hpp"
#include "collectives/tcp/tcp_transport.hpp"
#include "collectives/transport_module.hpp"
#include "engine/membership/exit_codes.hpp"

namespace mayfly::bench {
namespace {

constexpr Duration kFormTimeout = seconds(30);
constexpr Duration kSumTimeout = seconds(60);
constexpr const char* kLauncherRank = "OMPI_COMM_WORLD_RANK";

class GroupReducer final : public AllReducer {
 public:
  GroupReducer(std::unique_ptr<collectives::Transport> transport, bool launched,
               std::unique_ptr<ControlStore> store)
      : transport_(std::move(transport)), launched_(launched), store_(std::move(store)) {}
  ~GroupReducer() override { group_.reset(); }

  [[nodiscard]] std::optional<std::uint32_t> fixed_rank() const override {
    const char* rank = launched_ ? std::getenv(kLauncherRank) : nullptr;
    return rank == nullptr ? std::nullopt
                           : std::optional(static_cast<std::uint32_t>(std::atoi(rank)));
  }
  [[nodiscard]] std::string address() const override { return transport_->address(); }

  Result<void> connect(std::uint32_t rank, std::uint64_t key,
                       const std::vector<std::string>& addresses) override {
    collectives::GroupSpec spec;
    spec.view = ViewId{1};
    spec.rank = Rank{rank};
    for (std::size_t i = 0; i < addresses.size(); ++i) {
      spec.peers.push_back({MemberId{i + 1}, addresses[i]});
    }
    spec.key = key;
    spec.store = store_.get();
    TRY_ASSIGN(std::unique_ptr<collectives::Group> formed,
               transport_->form(spec, monotonic_now() + kFormTimeout));
    group_ = std::move(formed);
    return {};
  }

  Result<void> sum(void* data, std::size_t count, collectives::DataType type) override {
    return group_->all_reduce_blocking(data, count, type, collectives::ReduceOp::kSum,
                                       monotonic_now() + kSumTimeout);
  }

 private:
  std::unique_ptr<collectives::Transport> transport_;
  bool launched_;  // mpirun has started this process, with this backend
  std::unique_ptr<ControlStore> store_;
  std::unique_ptr<collectives::Group> group_;  // destroyed before the members that it uses
};

int run_allreduce_rank(const std::string& backend, const RankOptions& options) {
  Result<std::unique_ptr<collectives::Transport>> transport = make_bench_transport(backend);
  if (!transport.ok()) {
    return refuse_rank(options, transport.error());
  }
  Result<std::unique_ptr<ControlStore>> store =
      ControlStore::connect(options.control, options.name);
  if (!store.ok()) {
    return engine::kExitFailed;  // the driver has ended
  }
  GroupReducer reducer(std::move(transport).value(), backend == "mpi", std::move(store).value());
  return serve_rank(options, reducer);
}

}  // namespace

Result<std::unique_ptr<collectives::Transport>> make_bench_transport(const std::string& backend) {
  if (backend == "gloo") {
    return collectives::make_gloo_transport({});
  }
  if (backend == "tcp" || backend == "unix") {
    collectives::TcpOptions options;
    options.use_unix = backend == "unix";
    return collectives::make_tcp_transport(options);
  }
  TRY_ASSIGN(const collectives::TransportModule* module,
             collectives::load_transport_module(backend));
  TRY(module->probe());
  return module->make({});
}

int run_bench_rank(const std::vector<std::string>& words) {
  const bool reform = !words.empty() && words[0] == "reform";
  const std::size_t first = reform ? 1 : 0;
  const Result<RankOptions> options =
      words.size() > first
          ? parse_rank_options(
                {words.begin() + static_cast<std::ptrdiff_t>(first) + 1, words.end()})
          : parse_rank_options({});
  if (!options.ok()) {
    return engine::refuse(options.error(), engine::kExitUsage);
  }
  return reform ? run_reform_rank(words[first], options.value())
                : run_allreduce_rank(words[first], options.value());
}

}  // namespace mayfly::bench
