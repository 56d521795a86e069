#include <charconv>

#include "cli/commands.hpp"
#include "cli/operator_link.hpp"
#include "cli/status_table.hpp"
#include "engine/run/record_json.hpp"

namespace mayfly::cli {
namespace {

Result<Duration> seconds_of(const ParsedArguments& arguments, const std::string& name,
                            const std::string& usual) {
  const std::string text = arguments.option(name, usual);
  double wanted = 0;
  const auto [end, failure] = std::from_chars(text.data(), text.data() + text.size(), wanted);
  if (failure != std::errc{} || end != text.data() + text.size() || !(wanted > 0) ||
      !(wanted <= 86400)) {
    return Error{Errc::kInvalidInput, "--" + name + " expects seconds above 0, got '" + text + "'"};
  }
  return std::chrono::duration_cast<Duration>(std::chrono::duration<double>(wanted));
}

/// Sends the verb. Returns the reply's text, or an Error if there was no reply or it is a refusal.
Result<std::string> ask(const std::string& verb, const std::string& argument,
                        const OperatorLink& link, const ParsedArguments& arguments,
                        const Context& context) {
  const Result<Duration> timeout = seconds_of(arguments, "timeout", "5");
  if (!timeout.ok()) {
    return timeout.error();
  }
  const Result<elastic::CommandReply> reply = context.services.send_command(
      link.endpoint, link.token, elastic::Command{verb, argument}, timeout.value());
  if (!reply.ok()) {
    return Error{Errc::kRefused, verb + ": " + reply.error().detail};
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

/// The status as a table, or with --json as the coordinator sent it.
Result<std::string> shown_status(const OperatorLink& link, const ParsedArguments& arguments,
                                 const Context& context) {
  Result<std::string> text = ask("status", "", link, arguments, context);
  if (!text.ok()) {
    return text;
  }
  return arguments.has("json") ? text.value() + "\n" : status_table(text.value());
}

/// Repeats a first query that succeeded until no coordinator answers any more: the job has ended.
int watch(const OperatorLink& link, const ParsedArguments& arguments, Context& context) {
  const Result<Duration> interval = seconds_of(arguments, "interval", "1");
  if (!interval.ok()) {
    return context.complain(interval.error());
  }
  while (true) {
    context.out.flush();
    context.services.pause(interval.value());
    const Result<std::string> text = shown_status(link, arguments, context);
    if (!text.ok()) {
      context.out << "the job has ended\n";
      return kExitDone;
    }
    // A terminal shows each status in the place of the one before, other outputs one after another.
    const bool in_place = context.out_is_terminal && !arguments.has("json");
    context.out << (in_place ? "\x1b[H\x1b[2J" : arguments.has("json") ? "" : "\n") << text.value();
  }
}

}  // namespace

int status(const ParsedArguments& arguments, Context& context) {
  const Result<OperatorLink> link = operator_link("status", arguments, {});
  if (!link.ok()) {
    return context.complain(link.error());
  }
  const Result<std::string> text = shown_status(link.value(), arguments, context);
  if (!text.ok()) {
    return context.complain(text.error());
  }
  context.out << text.value();
  return arguments.has("watch") ? watch(link.value(), arguments, context) : kExitDone;
}

int scale(const ParsedArguments& arguments, Context& context) {
  return order("scale", {"WORKERS"}, arguments, context);
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
