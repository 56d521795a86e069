#pragma once

// Private to the mpi module: needs Open MPI's headers.
//
// How MPI's own reductions are told what to do.

#include <mpi.h>

#include "collectives/plan/types.hpp"

namespace mayfly::collectives {

/// MPI's name for an element and for what is done with two of them. MPI's own operation where it
/// means the same as ours; otherwise collectives/plan/reduce_kernels as a user-defined one (16-bit
/// elements, which MPI does not add, and the maximum of floats, whose order MPI leaves open).
struct MpiReduction {
  MPI_Datatype type;
  MPI_Op op;
};

/// After MPI was started. The operations live as long as the process.
[[nodiscard]] MpiReduction mpi_reduction(DataType type, ReduceOp op);

}  // namespace mayfly::collectives
