#pragma once

// Private to the mpi module: needs Open MPI's headers.

#include <mpi.h>

namespace mayfly::collectives {

/// Makes Open MPI connect every two ranks of `comm`, which it does with the first message between
/// them; returns when this rank is connected with all others. Collective: all ranks call it at
/// once, and none may die meanwhile. Takes two messages of 1 MiB per other rank.
void connect_all(MPI_Comm comm);

}  // namespace mayfly::collectives
