// PMI-1: lines of "cmd=NAME KEY=VALUE ...", a question each and one line in answer.

#include <fmt/format.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <charconv>
#include <cstring>
#include <utility>

#include "engine/launch/rank_channel.hpp"

namespace mayfly::engine {
namespace {

constexpr std::size_t kLineBytesMax = 4096;
// Of a value, in hexadecimal digits; every launcher takes 256 and more.
constexpr std::size_t kPieceDigits = 200;
// Of an answer that the launcher gives by itself.
constexpr Duration kAnswerTimeout = seconds(30);
// Of one that waits for the other ranks.
constexpr Duration kRanksTimeout = seconds(600);

Error broken(const std::string& what) {
  return {Errc::kIo, "the launcher's PMI connection: " + what};
}

std::string to_digits(const std::string& text) {
  std::string digits;
  for (const char c : text) {
    digits += fmt::format("{:02x}", static_cast<unsigned char>(c));
  }
  return digits;
}

Result<std::string> from_digits(const std::string& digits) {
  std::string text;
  for (std::size_t i = 0; i + 1 < digits.size(); i += 2) {
    unsigned byte = 0;
    const char* end = digits.data() + i + 2;
    if (std::from_chars(digits.data() + i, end, byte, 16).ptr != end) {
      return broken("a value that no rank of Mayfly has written");
    }
    text += static_cast<char>(byte);
  }
  return text;
}

/// Of "a=1 b=2"; empty if `name` is not among them.
std::string field(const std::string& line, const std::string& name) {
  const std::string words = " " + line;
  const std::size_t at = words.find(" " + name + "=");
  if (at == std::string::npos) {
    return "";
  }
  const std::size_t begin = at + name.size() + 2;
  return words.substr(begin, words.find(' ', begin) - begin);
}

class PmiChannel final : public RankChannel {
 public:
  explicit PmiChannel(UniqueFd launcher) : launcher_(std::move(launcher)) {}

  Result<void> publish(const std::string& text) override;
  Result<std::string> receive(Instant deadline) override;

 private:
  Result<void> begin();
  Result<void> put(const std::string& key, const std::string& text);
  Result<std::string> get(const std::string& key);
  Result<void> meet(Instant deadline);
  void end();
  Result<std::string> ask(const std::string& question, const std::string& answer, Instant deadline);
  Result<std::string> ask(const std::string& question, const std::string& answer) {
    return ask(question, answer, monotonic_now() + kAnswerTimeout);
  }
  Result<void> send(const std::string& line);
  Result<std::string> read_line(Instant deadline);

  UniqueFd launcher_;
  std::string read_;  // and not used yet
  std::string space_;
};

Result<void> PmiChannel::send(const std::string& line) {
  std::string left = line + "\n";
  while (!left.empty()) {
    const ssize_t n = ::send(launcher_.get(), left.data(), left.size(), MSG_NOSIGNAL);
    if (n > 0) {
      left.erase(0, static_cast<std::size_t>(n));
    } else if (errno == EAGAIN) {
      pollfd entry{launcher_.get(), POLLOUT, 0};
      (void)::poll(&entry, 1, 1000);
    } else if (errno != EINTR) {
      return broken(std::strerror(errno));
    }
  }
  return {};
}

Result<std::string> PmiChannel::read_line(Instant deadline) {
  while (true) {
    if (const std::size_t end = read_.find('\n'); end != std::string::npos) {
      std::string line = read_.substr(0, end);
      read_.erase(0, end + 1);
      return line;
    }
    if (read_.size() > kLineBytesMax) {
      return broken("a line without an end");
    }
    const Duration left = deadline - monotonic_now();
    if (left <= Duration::zero()) {
      return Error{Errc::kDeadline, "not all ranks of the launcher came to their start"};
    }
    pollfd entry{launcher_.get(), POLLIN, 0};
    const auto ms = std::min<std::int64_t>(left / milliseconds(1) + 1, 60'000);
    if (::poll(&entry, 1, static_cast<int>(ms)) <= 0) {
      continue;
    }
    char bytes[1024];
    const ssize_t n = ::read(launcher_.get(), bytes, sizeof bytes);
    if (n == 0) {
      return broken("closed");
    }
    if (n > 0) {
      read_.append(bytes, static_cast<std::size_t>(n));
    } else if (errno != EINTR && errno != EAGAIN) {
      return broken(std::strerror(errno));
    }
  }
}

Result<std::string> PmiChannel::ask(const std::string& question, const std::string& answer,
                                    Instant deadline) {
  TRY(send("cmd=" + question));
  Result<std::string> line = read_line(deadline);
  if (!line.ok()) {
    return line;
  }
  const std::string code = field(line.value(), "rc");
  if (field(line.value(), "cmd") != answer || (!code.empty() && code != "0")) {
    return broken(fmt::format("'{}' in answer to '{}'", line.value(), question));
  }
  return line;
}

Result<void> PmiChannel::begin() {
  if (const auto said = ask("init pmi_version=1 pmi_subversion=1", "response_to_init");
      !said.ok()) {
    return said.error();
  }
  const Result<std::string> named = ask("get_my_kvsname", "my_kvsname");
  if (!named.ok()) {
    return named.error();
  }
  space_ = field(named.value(), "kvsname");
  return {};
}

Result<void> PmiChannel::put(const std::string& key, const std::string& text) {
  const auto done =
      ask(fmt::format("put kvsname={} key={} value={}", space_, key, text), "put_result");
  return done.ok() ? Result<void>() : Result<void>(done.error());
}

Result<std::string> PmiChannel::get(const std::string& key) {
  const auto found = ask(fmt::format("get kvsname={} key={}", space_, key), "get_result");
  return found.ok() ? Result<std::string>(field(found.value(), "value")) : found;
}

Result<void> PmiChannel::meet(Instant deadline) {
  const auto met = ask("barrier_in", "barrier_out", deadline);
  return met.ok() ? Result<void>() : Result<void>(met.error());
}

/// Whoever leaves without it may be taken for one that died.
void PmiChannel::end() {
  (void)ask("finalize", "finalize_ack");
  launcher_.reset();
}

Result<void> PmiChannel::publish(const std::string& text) {
  if (text.size() > kChannelTextMax) {
    return Error{Errc::kInvalidInput, "the name of the run directory is too long"};
  }
  const std::string digits = to_digits(text);
  Result<void> done = begin();
  std::size_t pieces = 0;
  for (std::size_t at = 0; done.ok() && at < digits.size(); at += kPieceDigits) {
    done = put(fmt::format("mayfly-{}", pieces++), digits.substr(at, kPieceDigits));
  }
  done = done.ok() ? put("mayfly-pieces", std::to_string(pieces)) : done;
  done = done.ok() ? meet(monotonic_now() + kRanksTimeout) : done;
  end();
  return done;
}

Result<std::string> PmiChannel::receive(Instant deadline) {
  Result<void> done = begin();
  done = done.ok() ? meet(deadline) : done;
  if (!done.ok()) {
    return std::move(done).error();
  }
  const Result<std::string> count = get("mayfly-pieces");
  std::string digits;
  const std::size_t pieces = count.ok() ? std::strtoul(count.value().c_str(), nullptr, 10) : 0;
  for (std::size_t i = 0; i < std::min(pieces, kChannelTextMax); ++i) {
    const Result<std::string> piece = get(fmt::format("mayfly-{}", i));
    if (!piece.ok()) {
      return piece;
    }
    digits += piece.value();
  }
  end();
  return count.ok() ? from_digits(digits) : count;
}

}  // namespace

std::unique_ptr<RankChannel> make_pmi_channel(UniqueFd launcher) {
  return std::make_unique<PmiChannel>(std::move(launcher));
}

std::unique_ptr<RankChannel> open_rank_channel(const Variables& variables) {
  if (const char* text = variables("PMI_FD"); text != nullptr) {
    int fd = -1;
    const char* end = text + std::strlen(text);
    sockaddr_storage peer{};
    socklen_t size = sizeof peer;
    const bool is_number = std::from_chars(text, end, fd).ptr == end && fd > STDERR_FILENO;
    if (is_number && ::getpeername(fd, reinterpret_cast<sockaddr*>(&peer), &size) == 0) {
      return make_pmi_channel(UniqueFd(fd));
    }
  }
  if (variables("PMIX_RANK") != nullptr && variables("PMIX_NAMESPACE") != nullptr) {
    Result<std::unique_ptr<RankChannel>> pmix = open_pmix_channel();
    return pmix.ok() ? std::move(pmix).value() : nullptr;
  }
  return nullptr;
}

}  // namespace mayfly::engine
