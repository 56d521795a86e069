#include <algorithm>
#include <cstring>
#include <limits>

#include "collectives/mpi/mpi_engine.hpp"
#include "collectives/mpi/mpi_reductions.hpp"
#include "collectives/plan/ring_schedule.hpp"

namespace mayfly::collectives {
namespace {

// MPI counts elements as int.
constexpr std::size_t kCountMax = std::size_t{1} << 30;

/// Calls `run(offset, count)` for pieces of at most kCountMax, until one fails.
template <typename Run>
int in_pieces(std::size_t count, const Run& run) {
  int code = MPI_SUCCESS;
  for (std::size_t done = 0; done < count && code == MPI_SUCCESS; done += kCountMax) {
    code = run(done, static_cast<int>(std::min(kCountMax, count - done)));
  }
  return code;
}

class MpiCollectiveEngine final : public MpiEngine {
 public:
  MpiCollectiveEngine(MpiWorld& world, MPI_Comm comm, Rank rank, std::uint32_t size)
      : world_(world), comm_(comm), rank_(rank), size_(size) {}
  ~MpiCollectiveEngine() override { ::MPI_Comm_free(&comm_); }

  std::unique_ptr<MpiRun> begin(const MpiTask& task) override {
    return std::make_unique<Run>(*this, task);
  }
  bool can_be_stopped() const override { return false; }
  void poke() override {
    int found = 0;
    ::MPI_Iprobe(MPI_ANY_SOURCE, world_.tag_of(ViewId{0}, kHelloTag), world_.comm(), &found,
                 MPI_STATUS_IGNORE);
  }

 private:
  class Run final : public MpiRun {
   public:
    Run(MpiCollectiveEngine& engine, const MpiTask& task) : engine_(engine), task_(task) {}
    Result<Progress> advance() override {
      if (Result<void> done = check_mpi(engine_.carry_out(task_), "a collective operation");
          !done.ok()) {
        return done.error();
      }
      return Progress::kDone;
    }

   private:
    MpiCollectiveEngine& engine_;
    const MpiTask task_;
  };

  int carry_out(const MpiTask& task) {
    switch (task.kind) {
      case MpiTask::Kind::kAllReduce: return all_reduce(task);
      case MpiTask::Kind::kReduceScatter: return reduce_scatter(task);
      case MpiTask::Kind::kBroadcast: return broadcast(task.data, value(task.root));
      case MpiTask::Kind::kAllGather: return all_gather(task.data);
      case MpiTask::Kind::kBarrier: return ::MPI_Barrier(comm_);
    }
    UNREACHABLE("a kind of operation outside its enumerators");
  }

  int all_reduce(const MpiTask& task) {
    const MpiReduction how = mpi_reduction(task.type, task.op);
    const std::size_t element = size_of(task.type);
    return in_pieces(task.data.size() / element, [&](std::size_t offset, int count) {
      return ::MPI_Allreduce(MPI_IN_PLACE, task.data.data() + offset * element, count, how.type,
                             how.op, comm_);
    });
  }

  int reduce_scatter(const MpiTask& task) {
    const std::size_t element = size_of(task.type);
    const std::size_t count = task.data.size() / element;
    if (count > kCountMax) {
      return all_reduce(task);  // MPI's offsets are ints too
    }
    std::vector<int> counts;
    for (std::uint32_t rank = 0; rank < size_; ++rank) {
      counts.push_back(static_cast<int>(segment_of(count, size_, rank).count));
    }
    const MpiReduction how = mpi_reduction(task.type, task.op);
    const int code = ::MPI_Reduce_scatter(MPI_IN_PLACE, task.data.data(), counts.data(), how.type,
                                          how.op, comm_);
    // MPI leaves the result at the beginning.
    const Segment own = segment_of(count, size_, value(rank_));
    if (code == MPI_SUCCESS && own.count > 0) {
      std::memmove(task.data.data() + own.offset * element, task.data.data(), own.count * element);
    }
    return code;
  }

  int broadcast(std::span<std::byte> data, std::uint32_t root) {
    return in_pieces(data.size(), [&](std::size_t offset, int count) {
      return ::MPI_Bcast(data.data() + offset, count, MPI_BYTE, static_cast<int>(root), comm_);
    });
  }

  int all_gather(std::span<std::byte> all) {
    const std::size_t each = all.size() / size_;
    if (each <= kCountMax) {
      return ::MPI_Allgather(MPI_IN_PLACE, 0, MPI_DATATYPE_NULL, all.data(), static_cast<int>(each),
                             MPI_BYTE, comm_);
    }
    int code = MPI_SUCCESS;
    for (std::uint32_t rank = 0; rank < size_ && code == MPI_SUCCESS; ++rank) {
      code = broadcast(all.subspan(rank * each, each), rank);
    }
    return code;
  }

  MpiWorld& world_;
  MPI_Comm comm_;
  const Rank rank_;
  const std::uint32_t size_;
};

}  // namespace

Result<std::unique_ptr<MpiEngine>> make_collective_engine(MpiWorld& world, const MpiPlace& place,
                                                          ViewId view) {
  MPI_Group all = MPI_GROUP_NULL;
  MPI_Group members = MPI_GROUP_NULL;
  MPI_Comm comm = MPI_COMM_NULL;
  ::MPI_Comm_group(world.comm(), &all);
  ::MPI_Group_incl(all, static_cast<int>(place.size), place.world_ranks.data(), &members);
  const int code =
      ::MPI_Comm_create_group(world.comm(), members, world.tag_of(view, kDataTag), &comm);
  ::MPI_Group_free(&members);
  ::MPI_Group_free(&all);
  TRY(check_mpi(code, "MPI_Comm_create_group"));
  ::MPI_Comm_set_errhandler(comm, MPI_ERRORS_RETURN);
  return std::unique_ptr<MpiEngine>(
      std::make_unique<MpiCollectiveEngine>(world, comm, place.rank, place.size));
}

}  // namespace mayfly::collectives
