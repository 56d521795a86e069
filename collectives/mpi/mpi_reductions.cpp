#include "collectives/mpi/mpi_reductions.hpp"

#include <cstddef>

#include "base/check.hpp"
#include "collectives/plan/reduce_kernels.hpp"

namespace mayfly::collectives {
namespace {

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

}  // namespace

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

}  // namespace mayfly::collectives
