#pragma once

// Where a parameter server's shards are, as the address of its member in the views of a job. Pure.

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "base/result.hpp"

namespace mayfly::engine {

inline constexpr const char* kPsWorkerAddress = "ps-worker";
struct ServerAddress {
  std::uint32_t index = 0;
  std::vector<std::string> shards;
  std::vector<std::string> followers;  ///< of the shards of the server before; may be none
  bool computes = false;               ///< it is a worker, too (ps colocated)
  friend bool operator==(const ServerAddress&, const ServerAddress&) = default;
};
/// Where the shards of a server are, as a member's address; and that of a member that is a worker.
[[nodiscard]] std::string to_text(const ServerAddress& address);
/// Nothing if the member is no server. kInvalidInput if it says so and cannot be read.
[[nodiscard]] Result<std::optional<ServerAddress>> parse_server_address(const std::string& text);
/// The member with this address computes.
[[nodiscard]] bool is_worker(const std::string& address);

}  // namespace mayfly::engine
