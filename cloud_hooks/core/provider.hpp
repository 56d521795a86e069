#pragma once

// The port to whatever starts and stops servers: processes on this host, a cloud, a batch system.
// Errors come in five kinds, so that the policy (try another zone, wait, give up) can be written
// once for all providers.

#include <cstdint>
#include <optional>
#include <string>
#include <variant>
#include <vector>

namespace mayfly::cloud_hooks {

enum class ProviderErrorKind : std::uint8_t {
  kCapacity,  ///< none to be had here now; another zone or type may have some, later here too
  kQuota,     ///< our own limit is reached; waiting helps only if we release something
  kAuth,      ///< we are not allowed to; a person must act
  kRate,      ///< asked too often; wait, then repeat the same request
  kConfig,    ///< the request itself is wrong; a person must act
};

/// A short fixed name for logs and records, for example "capacity".
[[nodiscard]] const char* to_string(ProviderErrorKind kind);

struct ProviderError {
  ProviderErrorKind kind = ProviderErrorKind::kConfig;
  std::string detail;  ///< for people

  friend bool operator==(const ProviderError&, const ProviderError&) = default;
};

/// What a provider knows of one server.
struct ServerStatus {
  std::string id;  ///< the provider's name for it; never reused within a job
  int pid = 0;     ///< of its process, where it is one of this host; otherwise 0
  bool running = false;
  int exit_code = 0;  ///< once it has ended by itself
  int signal = 0;     ///< that ended it, otherwise 0

  friend bool operator==(const ServerStatus&, const ServerStatus&) = default;
};

/// The servers that exist for a request, and why they are fewer than asked for, if they are.
struct RequestOutcome {
  std::vector<ServerStatus> servers;
  std::optional<ProviderError> error;
};

class Provider {
 public:
  virtual ~Provider() = default;

  /// Asks for `count` servers. Idempotent by `request_id`: repeating a request, after a lost answer
  /// or a partial success, starts only what is missing and returns what is there.
  [[nodiscard]] virtual RequestOutcome request(std::uint32_t count,
                                               const std::string& request_id) = 0;
  /// Ends a server. Releasing one that has ended already, or that nobody knows, is a success.
  [[nodiscard]] virtual std::optional<ProviderError> release(const std::string& id) = 0;
  /// kConfig if nobody knows the id.
  [[nodiscard]] virtual std::variant<ServerStatus, ProviderError> status(const std::string& id) = 0;
  /// Everything ever started for this job that the provider still remembers, in order of start.
  [[nodiscard]] virtual std::vector<ServerStatus> list() = 0;
};

}  // namespace mayfly::cloud_hooks
