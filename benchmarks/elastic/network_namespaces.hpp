#pragma once

// One network namespace per worker, all on a bridge of this host, so that a worker can be taken off
// the network as if its machine were gone: its packets vanish, nothing is closed. Needs root and
// the `ip` program.

#include <cstddef>
#include <string>
#include <vector>

#include "base/result.hpp"

namespace mayfly::bench {

class NetworkNamespaces {
 public:
  /// Makes the bridge. kIo says which command failed.
  static Result<NetworkNamespaces> make();
  NetworkNamespaces(NetworkNamespaces&& other) noexcept;
  NetworkNamespaces(const NetworkNamespaces&) = delete;
  NetworkNamespaces& operator=(NetworkNamespaces&&) = delete;
  NetworkNamespaces& operator=(const NetworkNamespaces&) = delete;
  /// Removes everything again.
  ~NetworkNamespaces();

  /// The host's own address on the bridge: where the coordinator listens.
  [[nodiscard]] std::string host_address() const;
  /// Makes worker `number`'s namespace and changes its command so that it runs and listens there.
  [[nodiscard]] Result<void> move_in(std::size_t number, std::vector<std::string>& command);
  /// From now on every packet from and to it is lost.
  [[nodiscard]] Result<void> cut(std::size_t number);

 private:
  explicit NetworkNamespaces(std::string prefix) : prefix_(std::move(prefix)) {}
  [[nodiscard]] std::string name_of(std::size_t number) const;
  [[nodiscard]] std::string outside_of(std::size_t number) const;  // the link's end on the bridge
  [[nodiscard]] std::string address_of(std::size_t number) const;

  std::string prefix_;  // of the names of all that is made; empty = moved from
  std::vector<std::size_t> made_;
};

/// Why this machine cannot take workers off the network; empty if it can.
[[nodiscard]] std::string why_no_namespaces();

/// Runs `ip` with these words; kIo with its complaint.
[[nodiscard]] Result<void> run_ip(const std::vector<std::string>& words);

}  // namespace mayfly::bench
