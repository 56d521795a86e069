#pragma once

// The port to whatever starts and stops servers: processes on this host, a user's program, a batch
// system, a cloud. Errors come in five kinds, so that the policy (try another zone, wait, give up)
// is written once for all providers. A provider object serves one job: everything that it creates
// carries that job's label, and list() finds nothing else.
//
// Calls block, each at most as long as the provider's own time-out says, and may come from any one
// thread at a time. Texts for people and previews never contain a secret.

#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "base/time.hpp"

namespace mayfly::cloud_hooks {

enum class ProviderErrorKind : std::uint8_t {
  kCapacity,  ///< none to be had here now; another zone or type may have some, later here too
  kQuota,     ///< our own limit is reached; waiting helps only if we release something
  kAuth,      ///< we are not allowed to; a person must act
  kRate,      ///< asked too often, or no answer came: wait, then repeat the same request
  kConfig,    ///< the request itself is wrong; a person must act
};

/// A short fixed name for logs and records, for example "capacity".
[[nodiscard]] const char* to_string(ProviderErrorKind kind);
/// The kind of that name, if there is one.
[[nodiscard]] std::optional<ProviderErrorKind> error_kind_of(const std::string& name);

struct ProviderError {
  ProviderErrorKind kind = ProviderErrorKind::kConfig;
  std::string detail;  ///< for people
  /// Of kCapacity, if the provider says so: the zones that could serve the request now.
  std::vector<std::string> zones_available;
  /// Of kRate and kCapacity, if the provider says so: how long to wait at least.
  std::optional<Duration> retry_after;

  friend bool operator==(const ProviderError&, const ProviderError&) = default;
};

/// What was asked for, or why it cannot be had.
template <typename T>
using Answer = std::variant<T, ProviderError>;

/// How a server is paid for: cheap and taken away at will, or dear and kept.
enum class Market : std::uint8_t { kSpot, kOnDemand };

/// "spot" or "on_demand".
[[nodiscard]] const char* to_string(Market market);
[[nodiscard]] std::optional<Market> market_of(const std::string& name);

/// Something that can be asked for: a machine type in a zone on a market.
struct Offer {
  std::string machine_type;  ///< in the provider's own words; empty = the provider's only one
  std::string zone;          ///< zone, partition or subnet; empty = the provider chooses
  Market market = Market::kSpot;

  friend bool operator==(const Offer&, const Offer&) = default;
  friend auto operator<=>(const Offer&, const Offer&) = default;
};

/// For logs and records, for example "n1-standard-8 in us-central1-a (spot)".
[[nodiscard]] std::string to_string(const Offer& offer);

struct ServerRequest {
  /// Lower-case UUID (36 characters). The same id means the same request, whenever it is repeated.
  std::string request_id;
  std::uint32_t count = 1;  ///< servers, 1 to Capabilities::count_max
  Offer offer;
  /// Besides those for the job and the request id, which the provider adds itself. Names and values
  /// of [a-z0-9_-], at most 63 characters.
  std::vector<std::pair<std::string, std::string>> labels;
  /// After which the provider ends the server by itself, so that a forgotten one does not bill for
  /// ever; 0 = never.
  Duration lifetime_max{};
  /// Shell script that a new server runs, with "#!" as its first characters. Empty: the provider's
  /// machine image knows what to do.
  std::string startup_text;

  friend bool operator==(const ServerRequest&, const ServerRequest&) = default;
};

enum class ServerState : std::uint8_t {
  kStarting,  ///< promised or booting; bills from here on at the latest
  kRunning,
  kStopping,  ///< asked to end, or being taken away; still bills
  kGone,      ///< ended for good
};

/// "starting", "running", "stopping" or "gone".
[[nodiscard]] const char* to_string(ServerState state);
[[nodiscard]] std::optional<ServerState> server_state_of(const std::string& name);

/// What a provider knows of one server.
struct ServerStatus {
  std::string id;  ///< the provider's name for it; never reused within a job
  ServerState state = ServerState::kGone;
  std::string request_id;  ///< that it was made for; empty if the provider cannot tell
  Offer offer;             ///< as far as the provider can tell
  /// Since billing began; none if the provider cannot tell, then the policy counts by itself.
  std::optional<Duration> uptime;
  std::optional<double> price_per_hour;  ///< that is really paid, where the provider knows it
  std::string detail;                    ///< for people: why it ended, what it waits for
  /// It is gone because what it ran ended with an error, and not because it was taken away.
  bool failed = false;

  // Only of processes on this host:
  int pid = 0;        ///< otherwise 0
  int exit_code = 0;  ///< once it has ended by itself
  int signal = 0;     ///< that ended it, otherwise 0

  [[nodiscard]] bool alive() const { return state != ServerState::kGone; }

  friend bool operator==(const ServerStatus&, const ServerStatus&) = default;
};

/// The one of that id; one that is not among them is kGone.
[[nodiscard]] ServerStatus status_in(std::vector<ServerStatus> servers, const std::string& id);

/// The servers that exist for a request, and why they are fewer than asked for, if they are. With
/// kRate it is not known whether the rest was started: only the same request, or list(), can tell.
/// After any other error the rest was not started and will not be.
struct RequestOutcome {
  std::vector<ServerStatus> servers;
  std::optional<ProviderError> error;
};

/// What a provider can do beyond the bare port.
struct Capabilities {
  std::uint32_t count_max = 1;   ///< servers in one request
  bool survives_us = false;      ///< list() finds servers of an earlier process of this job
  bool limits_lifetime = false;  ///< ServerRequest::lifetime_max is obeyed without us
  bool knows_uptime = false;     ///< ServerStatus::uptime is the provider's own
  bool has_spot = false;         ///< Market::kSpot is something else than kOnDemand
};

/// One line of `mayfly cloud doctor`.
struct Finding {
  bool ok = false;
  std::string text;  ///< what was looked at, and what is missing

  friend bool operator==(const Finding&, const Finding&) = default;
};

class Provider {
 public:
  virtual ~Provider() = default;

  /// Asks for servers. Idempotent by request id: repeating a request, after a lost answer or a
  /// partial success, starts only what is missing and returns what is there.
  [[nodiscard]] virtual RequestOutcome request(const ServerRequest& request) = 0;
  /// Ends a server. Releasing one that has ended already, or that nobody knows, is a success.
  [[nodiscard]] virtual std::optional<ProviderError> release(const std::string& id) = 0;
  /// A server that nobody knows (any more) is kGone.
  [[nodiscard]] virtual Answer<ServerStatus> status(const std::string& id) = 0;
  /// Every server with this job's label that the provider still remembers, in order of start where
  /// it knows that.
  [[nodiscard]] virtual Answer<std::vector<ServerStatus>> list() = 0;
  [[nodiscard]] virtual Capabilities capabilities() const = 0;

  /// What request() would send, for --dry-run. Asks nobody.
  [[nodiscard]] virtual std::string preview(const ServerRequest& request) const = 0;
  /// Looks at programs, credentials, quota and images without creating anything.
  [[nodiscard]] virtual std::vector<Finding> examine() = 0;
};

}  // namespace mayfly::cloud_hooks
