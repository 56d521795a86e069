#include "benchmarks/ranks/rank_team.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "base/parse.hpp"
#include "base/try_assign.hpp"

namespace mayfly::bench {
namespace {

constexpr Duration kStartTimeout = seconds(60);
constexpr Duration kCellTimeout = seconds(120);
constexpr Duration kEndTimeout = seconds(3);
constexpr Duration kLookInterval = milliseconds(200);
constexpr std::uint64_t kGroupKey = 0x6d6179666c79;

Error said(const std::string& line) {
  const std::vector<std::string> words = words_of(line);
  if (words.size() < 2 || words[0] != "failed") {
    return {Errc::kCorrupt, "a rank said something unexpected: " + line.substr(0, 200)};
  }
  for (const Errc code : {Errc::kUnsupported, Errc::kDiverged}) {
    if (words[1] == to_string(code)) {
      return {code, rest_of_line(line, 2)};
    }
  }
  return {Errc::kPeerLost, rest_of_line(line, 2)};
}

}  // namespace

RankTeam::RankTeam(ControlHub& hub, Contestant contestant, std::uint32_t ranks)
    : hub_(hub), contestant_(std::move(contestant)), ranks_(ranks), connections_(ranks, 0) {}

RankTeam::~RankTeam() {
  (void)tell_all("quit");
  const Instant deadline = monotonic_now() + kEndTimeout;
  for (ChildProcess& process : processes_) {
    if (!process.wait_until(deadline)) {
      process.kill();
    }
  }
  for (const std::size_t connection : connections_) {
    hub_.close(connection);
  }
}

Error RankTeam::named(Error error) const {
  error.detail = contestant_.name + ": " + error.detail;
  return error;
}

Result<void> RankTeam::start() {
  Result<void> started = spawn();
  if (started.ok()) {
    started = meet(monotonic_now() + kStartTimeout);
  }
  return started.ok() ? std::move(started) : named(started.error());
}

Result<void> RankTeam::spawn() {
  std::vector<std::string> words = contestant_.command;
  words.insert(words.end(), {"--control", hub_.path(), "--name", contestant_.name});
  const std::string log = hub_.folder() + "/" + contestant_.name + ".log";
  for (std::uint32_t i = 0; i < (contestant_.launcher ? 1 : ranks_); ++i) {
    TRY_ASSIGN(ChildProcess process, ChildProcess::start(words, contestant_.environment, log));
    processes_.push_back(std::move(process));
  }
  return {};
}

Result<void> RankTeam::meet(Instant deadline) {
  while (std::count(connections_.begin(), connections_.end(), 0U) > 0) {
    TRY_ASSIGN(ControlHub::Message message, hear(deadline));
    TRY(adopt(message));
  }
  for (std::uint32_t rank = 0; rank < ranks_; ++rank) {
    const std::string barrier = fmt::format("{}/{}.barrier", hub_.folder(), contestant_.name);
    TRY(hub_.send(connections_[rank], fmt::format("join {} {} {}", rank, ranks_, barrier)));
  }
  TRY_ASSIGN(std::vector<std::string> addresses, hear_all("address", deadline));
  std::string peers = fmt::format("peers {}", kGroupKey);
  for (const std::string& address : addresses) {
    peers += " " + address;
  }
  TRY(tell_all(peers));
  const Result<std::vector<std::string>> ready = hear_all("ready", deadline);
  return ready.ok() ? Result<void>() : Result<void>(ready.error());
}

Result<void> RankTeam::adopt(const ControlHub::Message& message) {
  const std::vector<std::string> words = words_of(message.line);
  if (!message.gone && words.size() == 3 && words[0] == "hello" && words[1] == contestant_.name) {
    std::size_t place = 0;
    const std::string& fixed = words[2];
    if (fixed == "-1") {
      place = static_cast<std::size_t>(std::find(connections_.begin(), connections_.end(), 0U) -
                                       connections_.begin());
    } else {
      place = number_in<std::size_t>(fixed).value_or(ranks_);
    }
    if (place >= ranks_ || connections_[place] != 0) {
      return Error{Errc::kCorrupt, "two processes claim one rank, or too many came"};
    }
    connections_[place] = message.connection;
    return {};
  }
  const bool ours =
      std::find(connections_.begin(), connections_.end(), message.connection) != connections_.end();
  if (ours && !message.gone) {
    return said(message.line);
  }
  return ours ? Result<void>(Error{Errc::kPeerLost, "a rank process ended"}) : Result<void>();
}

Result<ControlHub::Message> RankTeam::hear(Instant deadline) {
  while (true) {
    Result<ControlHub::Message> message =
        hub_.next(std::min(deadline, monotonic_now() + kLookInterval));
    if (message.ok() || message.error().code != Errc::kDeadline) {
      return message;
    }
    const bool ended = std::any_of(processes_.begin(), processes_.end(),
                                   [](ChildProcess& process) { return process.ended(); });
    const std::string log = hub_.folder() + "/" + contestant_.name + ".log";
    if (ended) {
      return Error{Errc::kPeerLost, "a process ended: " + last_line_of_log(log)};
    }
    if (monotonic_now() >= deadline) {
      return Error{Errc::kDeadline, "no answer in time: " + last_line_of_log(log)};
    }
  }
}

Result<std::vector<std::string>> RankTeam::hear_all(const std::string& verb, Instant deadline) {
  std::vector<std::string> answers(ranks_);
  std::uint32_t missing = ranks_;
  while (missing > 0) {
    TRY_ASSIGN(const ControlHub::Message message, hear(deadline));
    const auto found = std::find(connections_.begin(), connections_.end(), message.connection);
    if (found == connections_.end()) {
      continue;  // a message of a contestant that has failed
    }
    if (message.gone) {
      return Error{Errc::kPeerLost,
                   "a rank process ended: " +
                       last_line_of_log(hub_.folder() + "/" + contestant_.name + ".log")};
    }
    const std::string& line = message.line;
    if (line != verb && !line.starts_with(verb + " ")) {
      return said(line);
    }
    answers[static_cast<std::size_t>(found - connections_.begin())] = rest_of_line(line, 1);
    --missing;
  }
  return answers;
}

Result<void> RankTeam::tell_all(const std::string& line) {
  for (const std::size_t connection : connections_) {
    TRY(hub_.send(connection, line));
  }
  return {};
}

Result<std::vector<double>> RankTeam::measure(const CellOrder& order) {
  if (Result<void> told = tell_all(
          fmt::format("cell {} {} {} {}", order.bytes, order.type, order.iterations, order.salt));
      !told.ok()) {
    return named(told.error());
  }
  const Result<std::vector<std::string>> answers =
      hear_all("times", monotonic_now() + kCellTimeout);
  if (!answers.ok()) {
    return named(answers.error());
  }
  std::vector<double> slowest(order.iterations, 0);
  for (const std::string& answer : answers.value()) {
    const std::vector<std::string> times = words_of(answer);
    if (times.size() != slowest.size()) {
      return named({Errc::kCorrupt, "a rank measured another number of times"});
    }
    for (std::size_t i = 0; i < times.size(); ++i) {
      slowest[i] = std::max(slowest[i], std::strtod(times[i].c_str(), nullptr) / 1e9);
    }
  }
  return slowest;
}

}  // namespace mayfly::bench
