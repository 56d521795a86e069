#pragma once

// Isolation of a benchmark's workers. A network namespace for each worker, all on a bridge of this
// host, lets a worker be taken off the network as if its machine were gone: its packets vanish, and
// nothing is closed. This needs root and the `ip` program. A core of its own keeps the start of a
// new worker from taking processor time from the others.

#include <sched.h>
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

class OwnCore {
 public:
  /// From now on the calling thread, and the threads and processes that it starts, keep to all of
  /// the cores that it may use but the last one. kInvalidInput if it may use one only.
  static Result<OwnCore> reserve();
  OwnCore(OwnCore&& other) noexcept;
  OwnCore(const OwnCore&) = delete;
  OwnCore& operator=(OwnCore&&) = delete;
  OwnCore& operator=(const OwnCore&) = delete;
  /// The calling thread, and what it starts, may use all of them again.
  ~OwnCore();

  /// Changes a command so that what it starts has the last core, and no other one.
  void move_in(std::vector<std::string>& command) const;

 private:
  OwnCore(const cpu_set_t& all, std::size_t last);

  cpu_set_t all_;
  std::size_t last_;
  bool is_reserved_ = true;
};

}  // namespace mayfly::bench
