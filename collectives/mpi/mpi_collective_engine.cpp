#include <algorithm>
#include <cstddef>
#include <utility>

#include "base/check.hpp"
#include "collectives/mpi/mpi_engine.hpp"
#include "collectives/plan/reduce_kernels.hpp"

namespace mayfly::collectives {
namespace {

// MPI counts elements as int.
constexpr std::size_t kCountMax = std::size_t{1} << 30;
// MPI's own collectives do not return before they are complete, so a waiting thread calls them only
// if its deadline is so far away that only a hang can last longer.
constexpr Duration kHangs = seconds(1);
// How long an aborted group waits for an operation that cannot be stopped.
constexpr Duration kStuck = seconds(5);

// Calls `run(offset, count)` for pieces of at most kCountMax, until one fails.
template <typename Run>
int in_pieces(std::size_t count, const Run& run) {
  int code = MPI_SUCCESS;
  for (std::size_t done = 0; done < count && code == MPI_SUCCESS; done += kCountMax) {
    code = run(done, static_cast<int>(std::min(kCountMax, count - done)));
  }
  return code;
}

// MPI's types for an element and for the reduction of two elements. MPI's own operation if it has
// the same result as Mayfly's; otherwise collectives/plan/reduce_kernels as a user-defined one
// (16-bit floats, which MPI does not add, and the maximum of floats, whose order MPI does not
// define).
struct MpiReduction {
  MPI_Datatype type;
  MPI_Op op;
};

template <DataType kType, ReduceOp kOp>
void reduce_for_mpi(void* in, void* inout, int* count, MPI_Datatype* /*type*/) {
  reduce(inout, in, static_cast<std::size_t>(*count), kType, kOp);
}

template <DataType kType, ReduceOp kOp>
MPI_Op own_op() {
  static const MPI_Op op = [] {
    MPI_Op made = MPI_OP_NULL;
    constexpr int kCommutes = 1;
    ENSURE(::MPI_Op_create(&reduce_for_mpi<kType, kOp>, kCommutes, &made) == MPI_SUCCESS,
           "MPI accepts an operation of our own");
    return made;
  }();
  return op;
}

template <DataType kType>
MPI_Op own_op(ReduceOp op) {
  return op == ReduceOp::kSum ? own_op<kType, ReduceOp::kSum>() : own_op<kType, ReduceOp::kMax>();
}

// The user-defined operations live as long as the process.
MpiReduction mpi_reduction(DataType type, ReduceOp op) {
  const MPI_Op own_integer = op == ReduceOp::kSum ? MPI_SUM : MPI_MAX;
  switch (type) {
    case DataType::kFloat32:
      return {MPI_FLOAT, op == ReduceOp::kSum ? MPI_SUM : own_op<DataType::kFloat32>(op)};
    case DataType::kInt32: return {MPI_INT32_T, own_integer};
    case DataType::kInt64: return {MPI_INT64_T, own_integer};
    case DataType::kInt16: return {MPI_INT16_T, own_integer};
    case DataType::kFloat16: return {MPI_UINT16_T, own_op<DataType::kFloat16>(op)};
    case DataType::kBFloat16: return {MPI_UINT16_T, own_op<DataType::kBFloat16>(op)};
  }
  UNREACHABLE("a DataType outside its enumerators");
}

class CollectiveEngine final : public GroupEngine {
 public:
  CollectiveEngine(MpiWorld& world, MPI_Comm comm, std::uint32_t size)
      : world_(world),
        comm_(comm),
        size_(size),
        watch_(kStuck,
               "an MPI operation that lost a member cannot be stopped, so this process ends; "
               "operations under mpirun --enable-recovery can be") {}
  ~CollectiveEngine() override { ::MPI_Comm_free(&comm_); }

  void begin(const Operation& operation) override { operation_ = &operation; }

  Result<bool> advance(std::optional<Instant> /*until*/) override {
    if (!watch_.enter()) {
      return Error{Errc::kAborted, "the group was aborted"};
    }
    Result<void> done = check_mpi(carry_out(), "a collective operation");
    watch_.leave();
    if (!done.ok()) {
      world_.spoil();
      return std::move(done).error();
    }
    return true;
  }

  bool returns_by(std::optional<Instant> until) const override {
    return !until || *until - monotonic_now() > kHangs;
  }
  void abort() noexcept override { watch_.start_clock(); }

  bool settles() const override { return true; }
  void settle() override { world_.settle(); }

 private:
  int carry_out() {
    switch (operation_->kind) {
      case Operation::Kind::kAllReduce: return all_reduce();
      case Operation::Kind::kBroadcast: return broadcast(operation_->data, value(operation_->root));
      case Operation::Kind::kAllGather: return all_gather(operation_->data);
      case Operation::Kind::kBarrier: return ::MPI_Barrier(comm_);
    }
    UNREACHABLE("a kind of operation outside its enumerators");
  }

  int all_reduce() {
    const MpiReduction how = mpi_reduction(operation_->type, operation_->op);
    const std::size_t element = size_of(operation_->type);
    std::byte* const data = operation_->data.data();
    return in_pieces(operation_->data.size() / element, [&](std::size_t offset, int count) {
      return ::MPI_Allreduce(MPI_IN_PLACE, data + offset * element, count, how.type, how.op, comm_);
    });
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
  const std::uint32_t size_;
  const Operation* operation_ = nullptr;
  Watchdog watch_;
};

}  // namespace

Result<std::unique_ptr<GroupEngine>> make_collective_engine(MpiWorld& world, const MpiPlace& place,
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
  return std::unique_ptr<GroupEngine>(std::make_unique<CollectiveEngine>(world, comm, place.size));
}

}  // namespace mayfly::collectives
