#include "cli/operator_commands.hpp"

#include <fmt/format.h>
#include <boost/json.hpp>
#include <filesystem>
#include <optional>
#include <utility>
#include <vector>

#include "base/file.hpp"
#include "base/parse.hpp"
#include "base/try_assign.hpp"
#include "cli/cli.hpp"
#include "cli/remaining_time.hpp"
#include "elastic/net/job_token.hpp"
#include "engine/run/record_json.hpp"
#include "engine/run/run_directory.hpp"

namespace mayfly::cli {
namespace {

constexpr std::size_t kEndpointBytesMax = 512;
constexpr Duration kSilenceMost = seconds(60);  // until the next coordinator answers, or the
                                                // summary exists

Error usage(const std::string& text) {
  return {Errc::kInvalidInput, text};
}

namespace json = boost::json;

/// That of the run directory, or the one that its job was started with.
std::string token_file_of(const std::string& run_dir) {
  std::string own = run_dir + "/token";
  std::error_code failure;
  if (std::filesystem::exists(own, failure)) {
    return own;
  }
  const Result<engine::JobConfig> config = engine::config_of_run(run_dir);
  return config.ok() && !config.value().token_file.empty() ? config.value().token_file : own;
}

std::string shown(const json::value& value) {
  if (value.is_string()) {
    return std::string(value.as_string());
  }
  if (value.is_double()) {
    return fmt::format("{:.6g}", value.as_double());
  }
  return value.is_null() ? "-" : json::serialize(value);
}

bool is_table(const json::value& value) {
  return value.is_array() && !value.as_array().empty() && value.as_array().front().is_object();
}

/// Rows of equal length, columns as wide as their widest cell.
std::string aligned(const std::vector<std::vector<std::string>>& rows) {
  std::vector<std::size_t> widths(rows.front().size());
  for (const auto& row : rows) {
    for (std::size_t i = 0; i < row.size(); ++i) {
      widths[i] = std::max(widths[i], row[i].size());
    }
  }
  std::string out;
  for (const auto& row : rows) {
    std::string line = " ";
    for (std::size_t i = 0; i < row.size(); ++i) {
      line += fmt::format(" {:<{}}", row[i], widths[i]);
    }
    line.erase(line.find_last_not_of(' ') + 1);
    out += line + "\n";
  }
  return out;
}

/// Columns are the fields of the first object.
std::string table(const json::array& objects) {
  std::vector<std::vector<std::string>> rows(1);
  for (const auto& field : objects.front().as_object()) {
    rows[0].emplace_back(field.key());
  }
  for (const json::value& object : objects) {
    std::vector<std::string> row;
    for (const std::string& column : rows[0]) {
      const json::value* cell =
          object.is_object() ? object.as_object().if_contains(column) : nullptr;
      row.push_back(cell == nullptr ? "-" : shown(*cell));
    }
    rows.push_back(std::move(row));
  }
  return aligned(rows);
}

Result<Duration> seconds_of(const ParsedArguments& arguments, const std::string& name,
                            const std::string& usual) {
  const std::string text = arguments.option(name, usual);
  const auto wanted = number_in(text, 0.0, 86400.0);
  if (!wanted || *wanted == 0) {
    return Error{Errc::kInvalidInput, "--" + name + " expects seconds above 0, got '" + text + "'"};
  }
  return std::chrono::duration_cast<Duration>(std::chrono::duration<double>(*wanted));
}

/// Sends the verb. Returns the reply's text, or an Error if there was no reply or a refusal.
Result<std::string> ask(const std::string& verb, const std::string& argument,
                        const OperatorLink& link, const ParsedArguments& arguments,
                        const Context& context) {
  TRY_ASSIGN(const Duration timeout, seconds_of(arguments, "timeout", "5"));
  const Result<elastic::CommandReply> reply = context.services.send_command(
      link.endpoint, link.token, elastic::Command{verb, argument}, timeout);
  if (!reply.ok()) {
    const std::string advice =
        link.run_dir.empty() ? "; its coordinator has ended, or cannot be reached from here"
                             : "; if the coordinator of " + link.run_dir +
                                   " was killed, docs/runs.md explains how to continue the run";
    return Error{Errc::kRefused, verb + ": " + reply.error().detail + advice};
  }
  if (!reply.value().ok) {
    return Error{Errc::kRefused, verb + ": " + reply.value().text};
  }
  return reply.value().text;
}

int order(const std::string& verb, const std::vector<std::string>& rest_names,
          const ParsedArguments& arguments, Context& context) {
  const Result<OperatorLink> link = operator_link(verb, arguments, rest_names);
  if (!link.ok()) {
    return context.complain(link.error());
  }
  const std::string argument = link.value().rest.empty() ? "" : link.value().rest.front();
  const bool is_number = argument.find_first_not_of("0123456789") == std::string::npos;
  if (!rest_names.empty() && (argument.empty() || !is_number)) {
    return context.complain(
        verb + ": " + rest_names.front() + " expects a whole number, got '" + argument + "'",
        kExitUsage);
  }
  const Result<std::string> text = ask(verb, argument, link.value(), arguments, context);
  if (!text.ok()) {
    return context.complain(text.error());
  }
  if (arguments.has("json")) {
    context.out << engine::json_text({{"ok", true}, {"text", text.value()}}) << "\n";
  } else {
    context.out << text.value() << "\n";
  }
  return kExitDone;
}

/// Asks for the status repeatedly. Predicts the rest of the job from its run directory: the one on
/// the command line, or, on the coordinator's host, the one in the coordinator's answer.
class StatusReader {
 public:
  StatusReader(OperatorLink link, const ParsedArguments& arguments, const Context& context)
      : link_(std::move(link)), arguments_(arguments), context_(context) {}

  /// The status as a table, or with --json as the coordinator sent it, with the prediction of the
  /// rest.
  Result<std::string> read() {
    TRY_ASSIGN(std::string text, ask("status", "", link_, arguments_, context_));
    json::error_code failure;
    json::value parsed = json::parse(text, failure);
    const bool as_json = arguments_.has("json");
    if (!failure && parsed.is_object()) {
      json::object& status = parsed.get_object();
      const std::size_t fields = status.size();
      TRY(open_records(status));
      rest_->add_to(status, !as_json);
      text = status.size() > fields ? engine::json_text(parsed) : text;
    }
    return as_json ? text + "\n" : status_table(text);
  }

  /// Whether the job has ended, by its run directory, if that is known.
  [[nodiscard]] bool job_has_ended() const {
    std::error_code failure;
    return !run_dir_.empty() && std::filesystem::exists(run_dir_ + "/summary.json", failure);
  }

  /// The next coordinator may listen elsewhere.
  void find_coordinator() {
    const Result<std::string> endpoint =
        run_dir_.empty() ? Result<std::string>(link_.endpoint) : endpoint_of_run(run_dir_);
    link_.endpoint = endpoint.ok() ? endpoint.value() : link_.endpoint;
  }

 private:
  Result<void> open_records(const json::object& status) {
    if (rest_) {
      return {};
    }
    const json::value* named = status.if_contains("run_dir");
    if (run_dir_.empty() && named != nullptr && named->is_string()) {
      const std::string theirs(named->get_string());
      const Result<std::string> endpoint = endpoint_of_run(theirs);
      run_dir_ = endpoint.ok() && endpoint.value() == link_.endpoint ? theirs : "";
    }
    TRY_ASSIGN(rest_, RemainingTime::open(run_dir_, arguments_.option("plan")));
    return {};
  }

  OperatorLink link_;
  std::string run_dir_ = link_.run_dir;
  const ParsedArguments& arguments_;
  const Context& context_;
  std::optional<RemainingTime> rest_;
};

/// Repeats a first query that succeeded until the job has ended, no coordinator has answered for
/// kSilenceMost, or the output is closed. The first query without an answer is reported, because an
/// answer may be missing for long, and the last status would be taken for the present one.
int watch(StatusReader& reader, const ParsedArguments& arguments, Context& context) {
  const Result<Duration> interval = seconds_of(arguments, "interval", "1");
  if (!interval.ok()) {
    return context.complain(interval.error());
  }
  Instant answered = context.services.now();
  bool is_silent = false;
  while (context.out.flush()) {
    context.services.pause(interval.value());
    const Result<std::string> text = reader.read();
    if (!text.ok()) {
      if (reader.job_has_ended()) {
        context.out << "the job has ended\n";
        return kExitDone;
      }
      if (context.services.now() - answered >= kSilenceMost) {
        return context.complain(text.error());
      }
      if (!std::exchange(is_silent, true)) {
        context.complain(fmt::format("{}; asking again for {} s", text.error().detail,
                                     kSilenceMost / seconds(1)),
                         kExitFailed);
      }
      reader.find_coordinator();
      continue;
    }
    answered = context.services.now();
    is_silent = false;
    // On a terminal each status replaces the one before; other outputs receive one after another.
    const bool in_place = context.out_is_terminal && !arguments.has("json");
    context.out << (in_place ? "\x1b[H\x1b[2J" : arguments.has("json") ? "" : "\n") << text.value();
  }
  return kExitFailed;  // standard output is closed or full
}

}  // namespace

Result<std::string> endpoint_of_run(const std::string& run_dir) {
  Result<std::string> text = read_text_file(run_dir + "/coordinator", kEndpointBytesMax);
  std::error_code failure;
  if (const std::string summary = run_dir + "/summary.json";
      !text.ok() && std::filesystem::exists(summary, failure)) {
    return Error{text.error().code,
                 "the job in " + run_dir + " has ended; " + summary + " describes the outcome"};
  }
  if (!text.ok()) {
    return Error{text.error().code, "no running job in " + run_dir + ": " + text.error().detail};
  }
  std::string endpoint = text.value();
  endpoint.erase(endpoint.find_last_not_of(" \r\n") + 1);
  if (endpoint.find(':') == std::string::npos) {
    return Error{Errc::kCorrupt, run_dir + "/coordinator does not contain HOST:PORT"};
  }
  return endpoint;
}

Result<OperatorLink> operator_link(const std::string& command, const ParsedArguments& arguments,
                                   const std::vector<std::string>& rest_names) {
  OperatorLink link;
  link.rest = arguments.positionals;
  std::string run_dir = arguments.option("run-dir");
  if (run_dir.empty()) {
    if (link.rest.empty()) {
      return usage(command + " needs RUN_DIR, or ENDPOINT (host:port) and --token-file FILE");
    }
    std::error_code failure;
    const bool is_run_dir = std::filesystem::is_directory(link.rest.front(), failure);
    (is_run_dir ? run_dir : link.endpoint) = link.rest.front();
    link.rest.erase(link.rest.begin());
  }
  if (!run_dir.empty()) {
    TRY_ASSIGN(std::string endpoint, endpoint_of_run(run_dir));
    link.endpoint = std::move(endpoint);
    link.run_dir = run_dir;
  }
  if (link.rest.size() < rest_names.size()) {
    return usage(command + " needs " + rest_names[link.rest.size()]);
  }
  if (link.rest.size() > rest_names.size()) {
    return usage(command + ": unexpected argument '" + link.rest[rest_names.size()] + "'");
  }
  const std::string token_file =
      arguments.option("token-file", run_dir.empty() ? "" : token_file_of(run_dir));
  if (token_file.empty()) {
    return usage(link.endpoint.find(':') == std::string::npos
                     ? link.endpoint +
                           " is not a run directory, nor the address (host:port) of a "
                           "coordinator"
                     : command + " " + link.endpoint + " needs --token-file FILE");
  }
  Result<Bytes> token = elastic::read_token_file(token_file);
  if (!token.ok()) {
    std::error_code failure;
    const bool is_there = std::filesystem::exists(token_file, failure);
    return usage(token.error().detail +
                 (is_there ? "" : "; --token-file names the token that the job was started with"));
  }
  link.token = std::move(token).value();
  return link;
}

Result<std::string> status_table(std::string_view text) {
  json::error_code failure;
  const json::value parsed = json::parse(json::string_view(text.data(), text.size()), failure);
  if (failure || !parsed.is_object()) {
    return Error{Errc::kCorrupt, "the coordinator's answer is not a JSON object"};
  }
  std::string plain;
  std::string tables;
  for (const auto& field : parsed.as_object()) {
    const std::string name(field.key());
    if (is_table(field.value())) {
      tables += name + "\n" + table(field.value().as_array());
    } else {
      plain += fmt::format("{:<18}{}\n", name, shown(field.value()));
    }
  }
  return plain + tables;
}

int status(const ParsedArguments& arguments, Context& context) {
  const Result<OperatorLink> link = operator_link("status", arguments, {});
  if (!link.ok()) {
    return context.complain(link.error());
  }
  StatusReader reader(link.value(), arguments, context);
  const Result<std::string> text = reader.read();
  if (!text.ok()) {
    return context.complain(text.error());
  }
  context.out << text.value();
  return arguments.has("watch") ? watch(reader, arguments, context) : kExitDone;
}

int scale(const ParsedArguments& arguments, Context& context) {
  return order("scale", {"WORKERS"}, arguments, context);
}
int give_up(const ParsedArguments& arguments, Context& context) {
  return order("give-up", {"SERVERS"}, arguments, context);
}
int drain(const ParsedArguments& arguments, Context& context) {
  return order("drain", {"MEMBER"}, arguments, context);
}
int pause(const ParsedArguments& arguments, Context& context) {
  return order("pause", {}, arguments, context);
}
int resume(const ParsedArguments& arguments, Context& context) {
  return order("resume", {}, arguments, context);
}
int stop(const ParsedArguments& arguments, Context& context) {
  return order("stop", {}, arguments, context);
}

}  // namespace mayfly::cli
