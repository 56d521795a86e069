#include "engine/processes/store_transport.hpp"

#include <gtest/gtest.h>

#include <memory>
#include <string>
#include <vector>

namespace mayfly::engine {
namespace {

/// Records the addresses that it receives. It represents transports, such as MPI's, that refuse
/// additions to their addresses.
class StrictTransport final : public collectives::Transport {
 public:
  explicit StrictTransport(std::vector<std::string>& seen) : seen_(seen) {}
  [[nodiscard]] std::string address() const override { return "mpi:7:0"; }
  [[nodiscard]] Result<std::unique_ptr<collectives::Group>> form(const collectives::GroupSpec& spec,
                                                                 Instant) override {
    for (const auto& peer : spec.peers) {
      seen_.push_back(peer.address);
    }
    return Error{Errc::kAborted, "only the addresses are of interest"};
  }
  void give_up_on(ViewId) noexcept override {}

 private:
  std::vector<std::string>& seen_;
};

TEST(StoreTransport, AWorkerWithoutAStoreUnderstandsThoseThatHaveOne) {
  std::vector<std::string> seen;
  const auto transport = make_store_transport(std::make_unique<StrictTransport>(seen), nullptr);
  EXPECT_EQ(transport->address(), "mpi:7:0");
  collectives::GroupSpec spec;
  spec.peers = {{.member = {}, .address = "mpi:7:0"},
                {.member = {}, .address = "mpi:7:1;images:10.0.0.2:4000/5"}};
  EXPECT_FALSE(transport->form(spec, Instant()).ok());
  EXPECT_EQ(seen, (std::vector<std::string>{"mpi:7:0", "mpi:7:1"}));
  transport->give_up_on(spec.view);
}

}  // namespace
}  // namespace mayfly::engine
