#pragma once

// The port to a provider, which starts and stops servers: processes on this host, a user's program,
// a batch system, a cloud. There are five kinds of errors, so that the policy (try another zone,
// wait, give up) is written once for all providers. A provider object serves one job: everything
// that it creates carries that job's label, and list() returns nothing else.
//
// Calls block, at most for the provider's time-out, and may be made from any one thread at a time.
// Messages and previews never contain a secret.

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "base/random.hpp"
#include "base/time.hpp"

namespace mayfly::cloud_hooks {

enum class ProviderErrorKind : std::uint8_t {
  kCapacity,  ///< none available here now; another zone or type may have some, or this one later
  kQuota,     ///< the account's limit is reached; waiting helps only if servers are released
  kAuth,      ///< not authorised; an operator must act
  kRate,      ///< too many requests, or no answer: wait, then repeat the same request
  kConfig,    ///< the request itself is wrong; an operator must act
};

/// A short fixed name for logs and records, for example "capacity".
[[nodiscard]] const char* to_string(ProviderErrorKind kind);
/// The kind with that name, if there is one.
[[nodiscard]] std::optional<ProviderErrorKind> error_kind_of(const std::string& name);

struct ProviderError {
  ProviderErrorKind kind = ProviderErrorKind::kConfig;
  std::string detail;  ///< a readable reason
  /// With kCapacity, if the provider reports them: the zones that could serve the request now.
  std::vector<std::string> zones_available{};
  /// With kRate and kCapacity, if the provider reports it: the least time to wait.
  std::optional<Duration> retry_after{};

  friend bool operator==(const ProviderError&, const ProviderError&) = default;
};

/// The result of a call to a provider, or its error. TRY and TRY_ASSIGN work on it, in functions
/// that return another Answer, an optional error, or a RequestOutcome.
template <typename T>
class [[nodiscard]] Answer {
 public:
  Answer(T value) : either_(std::move(value)) {}
  Answer(ProviderError error) : either_(std::move(error)) {}

  [[nodiscard]] bool ok() const { return either_.index() == 0; }
  // These throw if the answer holds the other alternative, which is a defect of the program.
  [[nodiscard]] T& value() & { return std::get<0>(either_); }
  [[nodiscard]] const T& value() const& { return std::get<0>(either_); }
  [[nodiscard]] T&& value() && { return std::get<0>(std::move(either_)); }
  [[nodiscard]] const ProviderError& error() const& { return std::get<1>(either_); }
  [[nodiscard]] ProviderError&& error() && { return std::get<1>(std::move(either_)); }

 private:
  std::variant<T, ProviderError> either_;
};

/// How a server is paid for: spot servers are cheap and may be taken away at any time, on-demand
/// servers are expensive and stay.
enum class Market : std::uint8_t { kSpot, kOnDemand };

/// "spot" or "on_demand".
[[nodiscard]] const char* to_string(Market market);
[[nodiscard]] std::optional<Market> market_of(const std::string& name);

/// A kind of server that can be requested: a machine type in a zone on a market.
struct Offer {
  std::string machine_type;  ///< in the provider's own words; empty = the provider's only one
  std::string zone;          ///< zone, partition or subnet; empty = the provider chooses
  Market market = Market::kSpot;

  friend bool operator==(const Offer&, const Offer&) = default;
  friend auto operator<=>(const Offer&, const Offer&) = default;
};

/// A text for logs and records, for example "n1-standard-8 in us-central1-a (spot)".
[[nodiscard]] std::string to_string(const Offer& offer);

struct ServerRequest {
  /// Lower-case UUID (36 characters), the idempotency key: the same id is the same request.
  std::string request_id;
  std::uint32_t count = 1;  ///< servers, 1 to Capabilities::count_max
  Offer offer;
  /// Labels in addition to those for the job and the request id, which the provider adds itself.
  /// Names and values consist of [a-z0-9_-], at most 63 characters.
  std::vector<std::pair<std::string, std::string>> labels;
  /// The provider ends the server by itself after this time, so that a forgotten one is not billed
  /// for ever; 0 = never.
  Duration lifetime_max{};
  /// Shell script that a new server runs, beginning with "#!". Empty: the machine image starts the
  /// worker.
  std::string startup_text;

  friend bool operator==(const ServerRequest&, const ServerRequest&) = default;
};

enum class ServerState : std::uint8_t {
  kStarting,  ///< promised or booting; billing has begun at the latest
  kRunning,
  kStopping,  ///< asked to end, or being taken away; still billed
  kGone,      ///< ended for good
};

/// "starting", "running", "stopping" or "gone".
[[nodiscard]] const char* to_string(ServerState state);
[[nodiscard]] std::optional<ServerState> server_state_of(const std::string& name);

/// A provider's description of one server.
struct ServerStatus {
  std::string id;  ///< the provider's name for it; never reused within a job
  ServerState state = ServerState::kGone;
  std::string request_id;  ///< the request that it was created for; empty if unknown
  Offer offer;             ///< as far as the provider knows it
  /// Time since billing began; none if the provider does not know it, then the policy measures it.
  std::optional<Duration> uptime;
  std::optional<double> price_per_hour;  ///< the actual price, if the provider knows it
  std::string detail;                    ///< readable: why it ended, what it waits for
  /// The server is gone, or stopped, because its program ended, not because it was taken away.
  bool failed = false;
  /// Only in a list: the provider could not look, and repeats what it has seen before.
  bool is_remembered = false;

  // Only for processes on this host:
  int pid = 0;        ///< otherwise 0
  int exit_code = 0;  ///< once it has ended by itself
  int signal = 0;     ///< the signal that ended it, otherwise 0

  [[nodiscard]] bool alive() const { return state != ServerState::kGone; }

  friend bool operator==(const ServerStatus&, const ServerStatus&) = default;
};

/// The server with that id; if it is not among them, one that is kGone.
[[nodiscard]] ServerStatus status_in(std::vector<ServerStatus> servers, const std::string& id);

/// One page of a cloud's list of servers.
struct ServerPage {
  std::vector<ServerStatus> servers;
  std::string next_token;  ///< names the next page; empty: it was the last
};

/// The servers of all pages, oldest first. `page_at` is given the token of a page, an empty one for
/// the first. Fails as `page_at` does, or with kRate if the list does not end.
[[nodiscard]] Answer<std::vector<ServerStatus>> list_pages(
    const std::function<Answer<ServerPage>(const std::string& token)>& page_at);
/// Sorts servers by their time since billing began, the longest first.
void sort_oldest_first(std::vector<ServerStatus>& servers);

/// The servers that exist for a request, and an error if they are fewer than requested. With kRate
/// it is unknown whether the others were started; repeating the same request, or list(), shows it.
/// After any other error the others were not started and will not be.
struct RequestOutcome {
  RequestOutcome() = default;
  RequestOutcome(ProviderError why) : error(std::move(why)) {}
  RequestOutcome(std::vector<ServerStatus> all, std::optional<ProviderError> why)
      : servers(std::move(all)), error(std::move(why)) {}

  std::vector<ServerStatus> servers;
  std::optional<ProviderError> error;
};

/// Properties in which providers differ.
struct Capabilities {
  std::uint32_t count_max = 1;  ///< servers in one request
  bool survives_us = false;     ///< list() finds servers of an earlier process of this job
};

/// One line of `mayfly cloud doctor`.
struct Finding {
  bool ok = false;
  std::string text;  ///< what was checked, and what is missing

  friend bool operator==(const Finding&, const Finding&) = default;
};

class Provider {
 public:
  virtual ~Provider() = default;

  /// Requests servers. Idempotent by request id: repeating a request, after a lost answer or a
  /// partial success, starts only the missing servers and returns all of them.
  [[nodiscard]] virtual RequestOutcome request(const ServerRequest& request) = 0;
  /// Ends a server. Succeeds if the server has already ended or is unknown.
  [[nodiscard]] virtual std::optional<ProviderError> release(const std::string& id) = 0;
  /// The state of one server; an unknown server is kGone.
  [[nodiscard]] virtual Answer<ServerStatus> status(const std::string& id) = 0;
  /// Every server with this job's label that the provider still knows, in order of start if it
  /// knows the order.
  [[nodiscard]] virtual Answer<std::vector<ServerStatus>> list() = 0;
  /// How many servers of the last list() the provider wants back; the job chooses which ones.
  /// Servers that are ending already are included.
  [[nodiscard]] virtual std::uint32_t wanted_back() const { return 0; }
  [[nodiscard]] virtual Capabilities capabilities() const = 0;

  /// The text that request() would send, for --cloud-dry-run. Sends nothing.
  [[nodiscard]] virtual std::string preview(const ServerRequest& request) const = 0;
  /// Checks programs, credentials, quota and images without creating anything.
  [[nodiscard]] virtual std::vector<Finding> examine() = 0;
};

/// The UUID (version 4, lower case) with that number in the sequence of `random`. Sequences of
/// different keys have no ids in common, so each start of a coordinator uses a new key.
[[nodiscard]] std::string make_request_id(const CounterRandom& random, std::uint64_t number);

}  // namespace mayfly::cloud_hooks
