#include "cloud_hooks/exec/exec_provider.hpp"

#include <algorithm>
#include <boost/json.hpp>
#include <cmath>

#include "base/process/program.hpp"

namespace mayfly::cloud_hooks::exec {
namespace {

namespace json = boost::json;

constexpr int kVersion = 1;
// Bounds for the answer of a program that may be wrong, far above the numbers of any job.
constexpr std::size_t kServersMax = 10'000;
constexpr std::size_t kIdCharactersMax = 128;  // the limit of a worker's Hello
constexpr std::size_t kTextCharactersMax = 1000;
constexpr double kSecondsMax = 1e9;

json::object start_of(const std::string& job, const std::string& op) {
  return {{"version", kVersion}, {"op", op}, {"job", job}};
}

/// Thrown inside this file only; parse_answer turns it into an Error.
struct Malformed {
  std::string what;
};

const json::value* member(const json::object& object, const char* name) {
  const json::value* value = object.if_contains(name);
  return value == nullptr || value->is_null() ? nullptr : value;
}

std::string text_of(const json::object& object, const char* name, std::size_t most) {
  const json::value* value = member(object, name);
  if (value == nullptr) {
    return "";
  }
  if (!value->is_string() || value->get_string().size() > most) {
    throw Malformed{std::string("'") + name + "' is not a text of at most " + std::to_string(most) +
                    " characters"};
  }
  std::string text(value->get_string());
  std::replace_if(
      text.begin(), text.end(), [](unsigned char c) { return c < 0x20 || c == 0x7f; }, ' ');
  return text;
}

std::optional<double> number_of(const json::object& object, const char* name) {
  const json::value* value = member(object, name);
  if (value == nullptr) {
    return std::nullopt;
  }
  const double number = value->is_number() ? value->to_number<double>() : -1;
  if (!(number >= 0 && number <= kSecondsMax)) {
    throw Malformed{std::string("'") + name + "' is not a number from 0 to 1e9"};
  }
  return number;
}

std::optional<Duration> seconds_of(const json::object& object, const char* name) {
  const std::optional<double> number = number_of(object, name);
  return number ? std::optional(Duration(static_cast<std::int64_t>(*number * 1e9))) : std::nullopt;
}

const json::object& object_of(const json::value& value, const char* what) {
  if (!value.is_object()) {
    throw Malformed{std::string(what) + " is not an object"};
  }
  return value.get_object();
}

const json::array& array_of(const json::object& object, const char* name) {
  static const json::array kNone;
  const json::value* value = member(object, name);
  if (value == nullptr) {
    return kNone;
  }
  if (!value->is_array() || value->get_array().size() > kServersMax) {
    throw Malformed{std::string("'") + name + "' is not a list of at most " +
                    std::to_string(kServersMax)};
  }
  return value->get_array();
}

ServerStatus server_of(const json::object& object) {
  ServerStatus server;
  server.id = text_of(object, "id", kIdCharactersMax);
  if (server.id.empty()) {
    throw Malformed{"a server without 'id'"};
  }
  const std::string state = text_of(object, "state", kIdCharactersMax);
  const std::optional<ServerState> known = server_state_of(state);
  if (!known) {
    throw Malformed{"state '" + state + "' is not one of starting, running, stopping, gone"};
  }
  server.state = *known;
  server.request_id = text_of(object, "request_id", kIdCharactersMax);
  server.offer.machine_type = text_of(object, "machine_type", kIdCharactersMax);
  server.offer.zone = text_of(object, "zone", kIdCharactersMax);
  const std::string market = text_of(object, "market", kIdCharactersMax);
  server.offer.market = market_of(market).value_or(Market::kSpot);
  if (!market.empty() && !market_of(market)) {
    throw Malformed{"market '" + market + "' is neither spot nor on_demand"};
  }
  server.uptime = seconds_of(object, "uptime_s");
  server.price_per_hour = number_of(object, "price_per_hour");
  server.detail = text_of(object, "detail", kTextCharactersMax);
  return server;
}

ProviderError error_of(const json::object& object) {
  ProviderError error;
  const std::string kind = text_of(object, "kind", kIdCharactersMax);
  const std::optional<ProviderErrorKind> known = error_kind_of(kind);
  if (!known) {
    throw Malformed{"error kind '" + kind + "' is not one of capacity, quota, auth, rate, config"};
  }
  error.kind = *known;
  error.detail = text_of(object, "detail", kTextCharactersMax);
  for (const json::value& zone : array_of(object, "zones_available")) {
    if (!zone.is_string() || zone.get_string().size() > kIdCharactersMax) {
      throw Malformed{"'zones_available' is not a list of names"};
    }
    error.zones_available.emplace_back(zone.get_string());
  }
  error.retry_after = seconds_of(object, "retry_after_s");
  return error;
}

ExecAnswer answer_of(const json::value& value) {
  const json::object& object = object_of(value, "the answer");
  ExecAnswer answer;
  for (const json::value& server : array_of(object, "servers")) {
    answer.servers.push_back(server_of(object_of(server, "a server")));
  }
  for (const json::value& one : array_of(object, "findings")) {
    const json::object& finding = object_of(one, "a finding");
    const json::value* ok = member(finding, "ok");
    if (ok == nullptr || !ok->is_bool()) {
      throw Malformed{"a finding without 'ok'"};
    }
    answer.findings.push_back({ok->get_bool(), text_of(finding, "text", kTextCharactersMax)});
  }
  const double wanted_back = number_of(object, "give_up").value_or(0);
  if (wanted_back > kServersMax || wanted_back != std::floor(wanted_back)) {
    throw Malformed{"'give_up' is not a whole number of at most " + std::to_string(kServersMax)};
  }
  answer.wanted_back = static_cast<std::uint32_t>(wanted_back);
  if (const json::value* error = member(object, "error")) {
    answer.error = error_of(object_of(*error, "'error'"));
  }
  return answer;
}

}  // namespace

std::string request_text(const std::string& job, const ServerRequest& request) {
  json::object object = start_of(job, "request");
  object["request_id"] = request.request_id;
  object["count"] = request.count;
  object["machine_type"] = request.offer.machine_type;
  object["zone"] = request.offer.zone;
  object["market"] = to_string(request.offer.market);
  object["lifetime_max_s"] = std::llround(to_seconds(request.lifetime_max));
  json::object labels;
  for (const auto& [name, value] : request.labels) {
    labels[name] = value;
  }
  object["labels"] = std::move(labels);
  object["startup_text"] = request.startup_text;
  return json::serialize(object) + "\n";
}

std::string server_text(const std::string& job, const std::string& op, const std::string& server) {
  json::object object = start_of(job, op);
  object["server"] = server;
  return json::serialize(object) + "\n";
}

std::string plain_text(const std::string& job, const std::string& op) {
  return json::serialize(start_of(job, op)) + "\n";
}

Result<ExecAnswer> parse_answer(const std::string& text) {
  json::error_code failure;
  json::parse_options options;
  options.max_depth = 8;
  const json::value value = json::parse(text, failure, {}, options);
  if (failure) {
    return Error{Errc::kCorrupt, "not JSON: " + failure.message()};
  }
  try {
    return answer_of(value);
  } catch (const Malformed& malformed) {
    return Error{Errc::kCorrupt, malformed.what};
  }
}

}  // namespace mayfly::cloud_hooks::exec

namespace mayfly::cloud_hooks {
namespace {

using exec::ExecAnswer;

/// The kind of error by the exit codes of sysexits.h and of the shell: 126 cannot be executed, 127
/// was not found.
ProviderErrorKind kind_of_exit_code(int code) {
  switch (code) {
    case 69: return ProviderErrorKind::kCapacity;  // EX_UNAVAILABLE
    case 77: return ProviderErrorKind::kAuth;      // EX_NOPERM
    case 78:                                       // EX_CONFIG
    case 126:
    case 127: return ProviderErrorKind::kConfig;
    default: return ProviderErrorKind::kRate;  // it may have created servers: repeat the request
  }
}

class ExecProvider final : public Provider {
 public:
  explicit ExecProvider(ExecProviderOptions options) : options_(std::move(options)) {}

  RequestOutcome request(const ServerRequest& request) override {
    ExecAnswer answer = ask(exec::request_text(options_.job, request));
    if (answer.servers.size() > request.count) {
      return {std::move(answer.servers),
              ProviderError{ProviderErrorKind::kConfig,
                            "the program names more servers than were requested"}};
    }
    for (ServerStatus& server : answer.servers) {
      server.request_id = request.request_id;
      server.offer = request.offer;
    }
    return {std::move(answer.servers), std::move(answer.error)};
  }

  std::optional<ProviderError> release(const std::string& id) override {
    return ask(exec::server_text(options_.job, "release", id)).error;
  }

  Answer<ServerStatus> status(const std::string& id) override {
    ExecAnswer answer = ask(exec::server_text(options_.job, "status", id));
    if (answer.error) {
      return *std::move(answer.error);
    }
    return status_in(std::move(answer.servers), id);
  }

  Answer<std::vector<ServerStatus>> list() override {
    ExecAnswer answer = ask(exec::plain_text(options_.job, "list"));
    wanted_back_ = answer.error ? 0 : answer.wanted_back;
    if (answer.error) {
      return *std::move(answer.error);
    }
    return std::move(answer.servers);
  }

  std::uint32_t wanted_back() const override { return wanted_back_; }

  Capabilities capabilities() const override {
    Capabilities can;
    can.count_max = options_.count_max;
    can.survives_us = true;
    return can;
  }

  std::string preview(const ServerRequest& request) const override {
    std::string command;
    for (const std::string& word : options_.argv) {
      command += word + " ";
    }
    return command + "<<< " + last_line(exec::request_text(options_.job, request));
  }

  std::vector<Finding> examine() override {
    ExecAnswer answer = ask(exec::plain_text(options_.job, "doctor"));
    if (answer.error) {
      return {{false, std::string(to_string(answer.error->kind)) + ": " + answer.error->detail}};
    }
    if (answer.findings.empty()) {
      return {{true, options_.argv[0] + " runs and reports no findings"}};
    }
    return std::move(answer.findings);
  }

 private:
  /// The program's answer, or an answer that contains only an error.
  [[nodiscard]] ExecAnswer ask(const std::string& text) const {
    ProgramCall call;
    call.argv = options_.argv;
    call.input = text;
    call.timeout = options_.timeout;
    const Result<ProgramResult> ran = run_program(call);
    if (!ran.ok()) {
      const bool lasting = ran.error().code != Errc::kIo;
      return failed(lasting ? ProviderErrorKind::kConfig : ProviderErrorKind::kRate,
                    ran.error().detail);
    }
    const ProgramResult& result = ran.value();
    const bool exited = result.end == ProgramResult::End::kExited;
    Result<ExecAnswer> answer = exec::parse_answer(result.output);
    // A program that fails may still print an answer with the reason.
    if (exited && answer.ok() && (result.code == 0 || answer.value().error)) {
      return std::move(answer).value();
    }
    if (!result.succeeded()) {
      return failed(exited ? kind_of_exit_code(result.code) : ProviderErrorKind::kRate,
                    options_.argv[0] + ": " + result.summary());
    }
    return failed(ProviderErrorKind::kRate,
                  options_.argv[0] + " gave no valid answer: " + answer.error().detail);
  }

  static ExecAnswer failed(ProviderErrorKind kind, std::string detail) {
    ExecAnswer answer;
    answer.error = ProviderError{kind, std::move(detail)};
    return answer;
  }

  const ExecProviderOptions options_;
  std::uint32_t wanted_back_ = 0;  // of the last list
};

}  // namespace

std::unique_ptr<Provider> make_exec_provider(ExecProviderOptions options) {
  return std::make_unique<ExecProvider>(std::move(options));
}

}  // namespace mayfly::cloud_hooks
