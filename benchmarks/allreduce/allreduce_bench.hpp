#pragma once

#include <cstdint>
#include <set>
#include <string>
#include <vector>

#include "benchmarks/allreduce/contestants.hpp"

namespace mayfly::bench {

struct AllReduceBenchOptions {
  std::vector<std::uint32_t> ranks = {2, 4};
  std::vector<std::size_t> sizes = {4U << 10, 64U << 10, 2U << 20, 25U << 20,
                                    100U << 20};  ///< bytes
  std::vector<std::string> backends = bench_backends();
  std::vector<std::string> peers = bench_peers();
  /// If one of these cannot run on this machine, that is a failure, not a note.
  bool backends_named = false;
  bool peers_named = false;
  std::string type = "fp32";  ///< or int32
  std::uint32_t rounds = 5;
  bool json = false;  ///< JSON lines instead of a table
  std::string out;    ///< also write the JSON lines to this file
};

/// `mayfly bench allreduce`: the time of one all-reduce for each number of ranks, vector size and
/// contestant, Mayfly's and peers. Every contestant is a set of processes that are started once per
/// number of ranks and sleep while others are measured. In each round each contestant runs once per
/// size, in an order that rotates. If a contestant computes a wrong sum or breaks, an error line is
/// printed and the exit code is 1; the others are measured as usual.
int bench_allreduce(const AllReduceBenchOptions& options);

}  // namespace mayfly::bench
