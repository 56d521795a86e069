#pragma once

// Isolation of a benchmark's workers. A network namespace for each worker, all on a bridge of this
// host, makes it possible to cut a worker off as if its machine were lost: its packets are dropped,
// and no connection is closed. This needs root and the `ip` program. With a core of its own a new
// worker takes no processor time from the others while it starts.

#include <sched.h>
#include <cstddef>
#include <string>
#include <vector>

#include "base/result.hpp"

namespace mayfly::bench {

class NetworkNamespaces {
 public:
  /// Makes the bridge. kIo names the command that failed.
  static Result<NetworkNamespaces> make();
  NetworkNamespaces(NetworkNamespaces&& other) noexcept;
  NetworkNamespaces(const NetworkNamespaces&) = delete;
  NetworkNamespaces& operator=(NetworkNamespaces&&) = delete;
  NetworkNamespaces& operator=(const NetworkNamespaces&) = delete;
  /// Removes the bridge and all namespaces.
  ~NetworkNamespaces();

  /// The host's own address on the bridge: where the coordinator listens.
  [[nodiscard]] std::string host_address() const;
  /// Makes worker `number`'s namespace and changes its command so that it runs and listens in it.
  [[nodiscard]] Result<void> move_in(std::size_t number, std::vector<std::string>& command);
  /// From now on every packet from and to this worker is lost.
  [[nodiscard]] Result<void> cut(std::size_t number);

 private:
  explicit NetworkNamespaces(std::string prefix) : prefix_(std::move(prefix)) {}
  [[nodiscard]] std::string name_of(std::size_t number) const;
  [[nodiscard]] std::string outside_of(std::size_t number) const;  // the link's end on the bridge
  [[nodiscard]] std::string address_of(std::size_t number) const;

  std::string prefix_;  // of the names of everything that is made; empty = moved from
  std::vector<std::size_t> made_;
};

/// Why workers cannot be cut off on this machine; empty if they can.
[[nodiscard]] std::string why_no_namespaces();

/// Runs `ip` with these words; kIo with its error message.
[[nodiscard]] Result<void> run_ip(const std::vector<std::string>& words);

class OwnCore {
 public:
  /// From now on the calling thread, and the threads and processes that it starts, use all cores
  /// that it may use except the last one. kInvalidInput if it may use only one core.
  static Result<OwnCore> reserve();
  OwnCore(OwnCore&& other) noexcept;
  OwnCore(const OwnCore&) = delete;
  OwnCore& operator=(OwnCore&&) = delete;
  OwnCore& operator=(const OwnCore&) = delete;
  /// The calling thread, and those that it starts, may use all of these cores again.
  ~OwnCore();

  /// Changes a command so that its process uses the last core, and no other one.
  void move_in(std::vector<std::string>& command) const;

 private:
  OwnCore(const cpu_set_t& all, std::size_t last);

  cpu_set_t all_;
  std::size_t last_;
  bool is_reserved_ = true;
};

}  // namespace mayfly::bench
