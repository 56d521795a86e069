// PMI-1: lines of "cmd=NAME KEY=VALUE ...", each request is answered by one line.

#include <fmt/format.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <cstring>
#include <optional>
#include <span>
#include <utility>

#include "base/bytes.hpp"
#include "base/net/sockets.hpp"
#include "base/try_assign.hpp"
#include "engine/launch/rank_channel.hpp"

namespace mayfly::engine {
namespace {

constexpr std::size_t kLineBytesMax = 4096;
// Digits (hexadecimal) of one value; every launcher accepts 256 and more.
constexpr std::size_t kPieceDigits = 200;
// For an answer that depends only on the launcher.
constexpr Duration kAnswerTimeout = seconds(30);
// For an answer that waits for the other ranks.
constexpr Duration kRanksTimeout = seconds(600);

Error broken(const std::string& what) {
  return {Errc::kIo, "the launcher's PMI connection: " + what};
}

/// The value of `name` in a line like "a=1 b=2"; empty if it is not there.
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
  Result<std::string> read_line(Instant deadline);

  UniqueFd launcher_;
  std::string read_;  // but not used yet
  std::string space_;
};

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
    const int left_ms = poll_timeout_ms(deadline);
    if (left_ms == 0) {
      return Error{Errc::kDeadline, "not all ranks of the launcher have started"};
    }
    pollfd entry{launcher_.get(), POLLIN, 0};
    (void)::poll(&entry, 1, left_ms);
    std::array<char, 1024> bytes{};
    const Moved moved = receive_some(launcher_.get(), bytes.data(), bytes.size());
    if (moved.closed) {
      return broken("closed");
    }
    read_.append(bytes.data(), moved.bytes);
  }
}

Result<std::string> PmiChannel::ask(const std::string& question, const std::string& answer,
                                    Instant deadline) {
  const std::string sent = "cmd=" + question + "\n";
  if (const Result<void> done = send_exactly(launcher_.get(), std::as_bytes(std::span(sent)),
                                             monotonic_now() + kAnswerTimeout);
      !done.ok()) {
    return broken(done.error().detail);
  }
  TRY_ASSIGN(std::string line, read_line(deadline));
  const std::string code = field(line, "rc");
  if (field(line, "cmd") != answer || (!code.empty() && code != "0")) {
    return broken(fmt::format("'{}' in answer to '{}'", line, question));
  }
  return line;
}

Result<void> PmiChannel::begin() {
  TRY(ask("init pmi_version=1 pmi_subversion=1", "response_to_init"));
  TRY_ASSIGN(const std::string named, ask("get_my_kvsname", "my_kvsname"));
  space_ = field(named, "kvsname");
  return {};
}

Result<void> PmiChannel::put(const std::string& key, const std::string& text) {
  TRY(ask(fmt::format("put kvsname={} key={} value={}", space_, key, text), "put_result"));
  return {};
}

Result<std::string> PmiChannel::get(const std::string& key) {
  TRY_ASSIGN(const std::string found,
             ask(fmt::format("get kvsname={} key={}", space_, key), "get_result"));
  return field(found, "value");
}

Result<void> PmiChannel::meet(Instant deadline) {
  TRY(ask("barrier_in", "barrier_out", deadline));
  return {};
}

/// Without this call the launcher may treat the rank as dead.
void PmiChannel::end() {
  (void)ask("finalize", "finalize_ack");
  launcher_.reset();
}

Result<void> PmiChannel::publish(const std::string& text) {
  if (text.size() > kChannelTextMax) {
    return Error{Errc::kInvalidInput, "the name of the run directory is too long"};
  }
  const std::string digits = to_hex(std::as_bytes(std::span(text)));
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
  TRY(begin());
  TRY(meet(deadline));
  const Result<std::string> count = get("mayfly-pieces");
  std::string digits;
  const std::size_t pieces = count.ok() ? std::strtoul(count.value().c_str(), nullptr, 10) : 0;
  for (std::size_t i = 0; i < std::min(pieces, kChannelTextMax); ++i) {
    TRY_ASSIGN(const std::string piece, get(fmt::format("mayfly-{}", i)));
    digits += piece;
  }
  end();
  const std::optional<Bytes> bytes = from_hex(digits);
  if (count.ok() && !bytes) {
    return broken("a value that no rank of Mayfly has written");
  }
  return count.ok() ? std::string(reinterpret_cast<const char*>(bytes->data()), bytes->size())
                    : count;
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
