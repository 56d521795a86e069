#include "collectives/mpi/mpi_wiring.hpp"

#include <cstddef>
#include <vector>

namespace mayfly::collectives {
namespace {

// Four times the ring's pieces: where there are several ways (networks, links), Open MPI spreads a
// large message over them. Ways that it still connects later are kept when a view forms.
constexpr int kMessageBytes = 1 << 20;
constexpr int kWiringTag = 0;

}  // namespace

// One pair after the other, in the same order on all ranks, so that no two wait for each other; and
// the lower rank of each first, because of two connections that meet half-way Open MPI closes one.
void connect_all(MPI_Comm comm) {
  int rank = 0;
  int size = 0;
  ::MPI_Comm_rank(comm, &rank);
  ::MPI_Comm_size(comm, &size);
  std::vector<std::byte> message(kMessageBytes);
  const auto send = [&](int other) {
    ::MPI_Send(message.data(), kMessageBytes, MPI_BYTE, other, kWiringTag, comm);
  };
  const auto receive = [&](int other) {
    ::MPI_Recv(message.data(), kMessageBytes, MPI_BYTE, other, kWiringTag, comm, MPI_STATUS_IGNORE);
  };
  for (int other = 0; other < size; ++other) {
    if (other < rank) {
      receive(other);
      send(other);
    } else if (other > rank) {
      send(other);
      receive(other);
    }
  }
}

}  // namespace mayfly::collectives
