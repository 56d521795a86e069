#include "benchmarks/ranks/control_hub.hpp"

#include <poll.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>
#include <algorithm>
#include <array>
#include <cerrno>
#include <csignal>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <utility>

#include "base/bytes.hpp"
#include "base/try_assign.hpp"

namespace mayfly::bench {
namespace {

volatile std::sig_atomic_t interrupted = 0;

void note_signal(int) {
  interrupted = 1;
}

void catch_signals(void (*handler)(int)) {
  struct sigaction action {};
  action.sa_handler = handler;  // without SA_RESTART: a blocked poll() returns
  ::sigaction(SIGINT, &action, nullptr);
  ::sigaction(SIGTERM, &action, nullptr);
}

/// The time-out for poll(): at most a second, so that a signal just before the call is noticed.
int slice_until(Instant deadline) {
  const std::int64_t ns = (deadline - monotonic_now()).count();
  return static_cast<int>(std::clamp<std::int64_t>((ns + 999'999) / 1'000'000, 0, 1000));
}

Error last_error(const std::string& what) {
  return {Errc::kIo, what + ": " + std::strerror(errno)};
}

}  // namespace

Result<std::unique_ptr<ControlHub>> ControlHub::open() {
  std::error_code ignored;
  std::string folder =
      (std::filesystem::temp_directory_path(ignored) / "mayfly-bench-XXXXXX").string();
  if (::mkdtemp(folder.data()) == nullptr) {
    return last_error("cannot make the scratch folder " + folder);
  }
  UniqueFd listener(::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
  std::unique_ptr<ControlHub> hub(new ControlHub(std::move(folder), std::move(listener)));
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  const std::string path = hub->path();
  if (path.size() >= sizeof address.sun_path) {
    return Error{Errc::kInvalidInput,
                 "the folder for temporary files has too long a name for a socket: " + path};
  }
  std::memcpy(address.sun_path, path.c_str(), path.size() + 1);
  if (::bind(hub->listener_.get(), reinterpret_cast<const sockaddr*>(&address), sizeof address) !=
          0 ||
      ::listen(hub->listener_.get(), SOMAXCONN) != 0) {
    return last_error("cannot listen on " + path);
  }
  return hub;
}

ControlHub::ControlHub(std::string folder, UniqueFd listener)
    : folder_(std::move(folder)), listener_(std::move(listener)) {
  interrupted = 0;
  catch_signals(note_signal);
}

ControlHub::~ControlHub() {
  catch_signals(SIG_DFL);
  std::error_code ignored;
  std::filesystem::remove_all(folder_, ignored);
}

Result<ControlHub::Message> ControlHub::next(Instant deadline) {
  while (messages_.empty()) {
    if (interrupted != 0) {
      return Error{Errc::kAborted, "interrupted"};
    }
    TRY(poll_once(deadline));
    if (messages_.empty() && monotonic_now() >= deadline) {
      return Error{Errc::kDeadline, "no answer in time"};
    }
  }
  Message message = std::move(messages_.front());
  messages_.pop_front();
  return message;
}

Result<void> ControlHub::poll_once(Instant deadline) {
  std::vector<pollfd> ready{{.fd = listener_.get(), .events = POLLIN, .revents = 0}};
  std::vector<std::size_t> ids{0};
  for (const auto& [id, connection] : connections_) {
    ready.push_back({.fd = connection.fd.get(), .events = POLLIN, .revents = 0});
    ids.push_back(id);
  }
  if (::poll(ready.data(), ready.size(), slice_until(deadline)) < 0 && errno != EINTR) {
    return last_error("cannot wait for the ranks");
  }
  if ((ready[0].revents & POLLIN) != 0) {
    accept_all();
  }
  for (std::size_t i = 1; i < ready.size(); ++i) {
    if (ready[i].revents != 0) {
      read_from(ids[i]);
    }
  }
  return {};
}

void ControlHub::accept_all() {
  while (true) {
    UniqueFd fd(::accept4(listener_.get(), nullptr, nullptr, SOCK_CLOEXEC));
    if (!fd.valid()) {
      return;
    }
    connections_[next_id_++].fd = std::move(fd);
  }
}

void ControlHub::read_from(std::size_t id) {
  const auto found = connections_.find(id);
  if (found == connections_.end()) {
    return;
  }
  std::array<char, 65536> chunk;  // NOLINT: filled by recv
  const ssize_t got = ::recv(found->second.fd.get(), chunk.data(), chunk.size(), MSG_DONTWAIT);
  if (got < 0 && (errno == EINTR || errno == EAGAIN)) {
    return;
  }
  if (got <= 0) {
    const bool is_store = found->second.store.has_value();
    connections_.erase(found);
    if (!is_store) {
      messages_.push_back({id, "", true});
    }
    return;
  }
  found->second.buffer.append({chunk.data(), static_cast<std::size_t>(got)});
  while (std::optional<std::string> line = found->second.buffer.next()) {
    take_line(id, *std::move(line));
  }
}

void ControlHub::take_line(std::size_t id, std::string line) {
  Connection& connection = connections_.at(id);
  if (connection.store.has_value()) {
    serve_store(id, line);
  } else if (line.starts_with("store ")) {
    connection.store = rest_of_line(line, 1);
  } else {
    messages_.push_back({id, std::move(line), false});
  }
}

void ControlHub::serve_store(std::size_t id, const std::string& line) {
  const std::vector<std::string> words = words_of(line);
  Store& store = stores_[*connections_.at(id).store];
  const auto answer = [&](std::size_t to, const std::string& key) {
    (void)send(to, "value " + key + " " + store.values[key]);  // the connection may have ended
  };
  if (words.size() == 2 && words[0] == "get") {
    if (store.values.contains(words[1])) {
      answer(id, words[1]);
    } else {
      store.waiting.emplace(words[1], id);
    }
  } else if (words.size() >= 2 && words[0] == "set") {
    store.values[words[1]] = words.size() > 2 ? words[2] : "";
    const auto [begin, end] = store.waiting.equal_range(words[1]);
    for (auto waiting = begin; waiting != end; ++waiting) {
      answer(waiting->second, words[1]);
    }
    store.waiting.erase(begin, end);
  }
}

Result<void> ControlHub::send(std::size_t connection, const std::string& line) {
  const auto found = connections_.find(connection);
  const std::string text = line + "\n";
  // Orders are short and ranks read them at once, so a full buffer means that the rank hangs.
  if (found == connections_.end() ||
      ::send(found->second.fd.get(), text.data(), text.size(), MSG_NOSIGNAL | MSG_DONTWAIT) !=
          static_cast<ssize_t>(text.size())) {
    return Error{Errc::kPeerLost, "a rank process is gone"};
  }
  return {};
}

void ControlHub::close(std::size_t connection) {
  connections_.erase(connection);
  std::erase_if(messages_, [connection](const Message& m) { return m.connection == connection; });
}

Result<std::unique_ptr<ControlStore>> ControlStore::connect(const std::string& path,
                                                            const std::string& name) {
  TRY_ASSIGN(LineSocket socket, LineSocket::connect(path));
  TRY(socket.send("store " + name));
  return std::unique_ptr<ControlStore>(new ControlStore(std::move(socket)));
}

Result<void> ControlStore::set(const std::string& key, ByteSpan value) {
  const std::lock_guard lock(mutex_);
  return socket_.send("set " + key + " " + to_hex(value));
}

Result<Bytes> ControlStore::get(const std::string& key, Instant deadline) {
  const std::lock_guard lock(mutex_);
  if (asked_ != key) {
    TRY(socket_.send("get " + key));
    asked_ = key;
  }
  while (true) {
    TRY_ASSIGN(std::string answer, socket_.receive(deadline));
    // Answers to earlier requests that were given up are skipped.
    const std::vector<std::string> words = words_of(answer);
    if (words.size() >= 2 && words[0] == "value" && words[1] == key) {
      asked_.clear();
      std::optional<Bytes> value = from_hex(words.size() > 2 ? words[2] : "");
      if (!value) {
        return Error{Errc::kCorrupt, "the store's answer is not hexadecimal: " + answer};
      }
      return *std::move(value);
    }
  }
}

}  // namespace mayfly::bench
