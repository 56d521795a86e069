#include "cloud_hooks/exec/exec_provider.hpp"

#include <algorithm>

#include "cloud_hooks/exec/exec_messages.hpp"
#include "cloud_hooks/program_runner.hpp"

namespace mayfly::cloud_hooks {
namespace {

using exec::ExecAnswer;

/// By the exit codes of sysexits.h and of the shell.
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
                            "the program names more servers than it was asked for",
                            {},
                            {}}};
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
    if (answer.error) {
      return *std::move(answer.error);
    }
    return std::move(answer.servers);
  }

  Capabilities capabilities() const override {
    Capabilities can;
    can.count_max = options_.count_max;
    can.survives_us = true;
    can.has_spot = true;
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
      return {{true, options_.argv[0] + " runs, and has no findings to tell"}};
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
    // A program that fails may still say why in so many words.
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
    answer.error = ProviderError{kind, std::move(detail), {}, {}};
    return answer;
  }

  const ExecProviderOptions options_;
};

}  // namespace

std::unique_ptr<Provider> make_exec_provider(ExecProviderOptions options) {
  return std::make_unique<ExecProvider>(std::move(options));
}

}  // namespace mayfly::cloud_hooks
