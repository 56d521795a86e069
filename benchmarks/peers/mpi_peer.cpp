// A rank of `mayfly bench allreduce` that calls MPI_Allreduce, started by mpirun.

#define OMPI_SKIP_MPICXX 1
#include <mpi.h>
#include <unistd.h>

#include <csignal>

#include "benchmarks/ranks/rank_session.hpp"

namespace {

using namespace mayfly;  // NOLINT: a program

class MpiReducer final : public bench::AllReducer {
 public:
  [[nodiscard]] std::optional<std::uint32_t> fixed_rank() const override {
    int rank = 0;
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    return static_cast<std::uint32_t>(rank);
  }
  Result<void> connect(std::uint32_t, std::uint64_t, const std::vector<std::string>&) override {
    return MPI_Barrier(MPI_COMM_WORLD) == MPI_SUCCESS ? Result<void>() : failed("MPI_Barrier");
  }
  Result<void> sum(void* data, std::size_t count, collectives::DataType type) override {
    const MPI_Datatype element = type == collectives::DataType::kFloat32 ? MPI_FLOAT : MPI_INT32_T;
    const int done = MPI_Allreduce(MPI_IN_PLACE, data, static_cast<int>(count), element, MPI_SUM,
                                   MPI_COMM_WORLD);
    return done == MPI_SUCCESS ? Result<void>() : failed("MPI_Allreduce");
  }

 private:
  static Result<void> failed(const std::string& call) {
    return Error{Errc::kPeerLost, call + " failed"};
  }
};

}  // namespace

int main(int argc, char** argv) {
  ::signal(SIGPIPE, SIG_IGN);
  const Result<bench::RankOptions> options = bench::parse_rank_options({argv + 1, argv + argc});
  if (!options.ok()) {
    return 2;
  }
  if (MPI_Init(&argc, &argv) != MPI_SUCCESS) {
    return bench::refuse_rank(options.value(), {Errc::kUnsupported, "MPI_Init failed"});
  }
  MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_RETURN);
  MpiReducer reducer;
  if (bench::serve_rank(options.value(), reducer) != 0) {
    ::_exit(1);  // MPI_Finalize waits for the others
  }
  MPI_Finalize();
  return 0;
}
