#pragma once

// One rank of the mpi contract programs: the transport of this process, and a page of memory that
// all ranks of the mpirun share, through which they synchronise without MPI.

#include <unistd.h>

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

#include "collectives/group.hpp"

namespace mayfly::collectives::test {

constexpr std::uint32_t kRanksMax = 64;

/// The content of a file that mpi_contract_test.py makes, filled with zeros.
struct SharedPage {
  std::atomic<std::uint32_t> entered;                          ///< for any use by a test
  std::array<std::atomic<std::uint64_t>, kRanksMax> meetings;  ///< each rank's calls of meet()
  std::array<std::atomic<bool>, kRanksMax> dying;              ///< the rank is about to be killed
};

class MpiRank {
 public:
  /// Loads the module and makes the transport; exits with a line if that fails. `page_file`
  /// contains the shared page.
  static MpiRank& start(const char* page_file);
  static MpiRank& get();

  [[nodiscard]] std::uint32_t rank() const { return rank_; }
  [[nodiscard]] std::uint32_t size() const { return size_; }
  /// Whether operations can be aborted.
  [[nodiscard]] bool elastic() const { return elastic_; }
  [[nodiscard]] SharedPage& page() { return *page_; }
  /// Open sockets of this process: now, and when its transport had just been made.
  [[nodiscard]] static std::size_t sockets();
  [[nodiscard]] std::size_t sockets_at_start() const { return sockets_at_start_; }
  [[nodiscard]] Transport& transport() { return *transport_; }

  /// Ranks 0 to size() - 1.
  [[nodiscard]] std::vector<std::uint32_t> everybody() const;
  /// The next view, with these ranks in this order. Every rank calls this, member or not.
  [[nodiscard]] GroupSpec next_spec(const std::vector<std::uint32_t>& members);
  /// Forms the group of next_spec(); returns null on ranks that are not members.
  [[nodiscard]] std::unique_ptr<Group> form(const std::vector<std::uint32_t>& members);
  /// Returns when all of `members` have called it.
  void meet(const std::vector<std::uint32_t>& members);

  /// Destroys the transport, which finalises or leaves MPI as its mode requires.
  void finish() { transport_.reset(); }

 private:
  std::uint32_t rank_ = 0;
  std::uint32_t size_ = 1;
  bool elastic_ = false;
  std::uint64_t view_ = 0;
  std::size_t sockets_at_start_ = 0;
  SharedPage* page_ = nullptr;
  std::unique_ptr<Transport> transport_;
};

}  // namespace mayfly::collectives::test
