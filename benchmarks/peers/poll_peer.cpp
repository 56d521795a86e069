// A rank of `mayfly bench allreduce` that uses the plain ring of poll_ring.hpp.

#include <csignal>

#include "benchmarks/peers/poll_ring.hpp"
#include "benchmarks/ranks/rank_session.hpp"

namespace {

using namespace mayfly;  // NOLINT: a program

class PollReducer final : public bench::AllReducer {
 public:
  explicit PollReducer(std::unique_ptr<peers::PollRing> ring) : ring_(std::move(ring)) {}

  [[nodiscard]] std::string address() const override { return ring_->address(); }
  Result<void> connect(std::uint32_t rank, std::uint64_t,
                       const std::vector<std::string>& addresses) override {
    return ring_->connect(rank, addresses);
  }
  Result<void> sum(void* data, std::size_t count, collectives::DataType type) override {
    return type == collectives::DataType::kFloat32
               ? ring_->sum(static_cast<float*>(data), count)
               : ring_->sum(static_cast<std::int32_t*>(data), count);
  }

 private:
  std::unique_ptr<peers::PollRing> ring_;
};

}  // namespace

int main(int argc, char** argv) {
  ::signal(SIGPIPE, SIG_IGN);
  const Result<bench::RankOptions> options = bench::parse_rank_options({argv + 1, argv + argc});
  if (!options.ok()) {
    return 2;
  }
  Result<std::unique_ptr<peers::PollRing>> ring = peers::PollRing::listen();
  if (!ring.ok()) {
    return bench::refuse_rank(options.value(), ring.error());
  }
  PollReducer reducer(std::move(ring).value());
  return bench::serve_rank(options.value(), reducer);
}
