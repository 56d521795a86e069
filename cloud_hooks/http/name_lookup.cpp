#include "cloud_hooks/http/name_lookup.hpp"

#include <arpa/inet.h>
#include <netdb.h>
#include <sys/socket.h>

#include <algorithm>
#include <array>
#include <condition_variable>
#include <memory>
#include <mutex>
#include <thread>

namespace mayfly::cloud_hooks {
namespace {

/// Owned by the caller and by the thread that looks up, until the later of the two is done.
struct Lookup {
  std::mutex mutex;
  std::condition_variable done_changed;
  bool done = false;                   // guarded by mutex
  int error = 0;                       // guarded by mutex
  std::vector<std::string> addresses;  // guarded by mutex
};

bool is_numeric(const std::string& host) {
  std::array<unsigned char, sizeof(in6_addr)> buffer{};
  return inet_pton(AF_INET, host.c_str(), buffer.data()) == 1 ||
         inet_pton(AF_INET6, host.c_str(), buffer.data()) == 1;
}

std::vector<std::string> numeric_addresses(const addrinfo* list) {
  std::vector<std::string> addresses;
  for (; list != nullptr; list = list->ai_next) {
    std::array<char, NI_MAXHOST> text{};
    if (getnameinfo(list->ai_addr, list->ai_addrlen, text.data(), text.size(), nullptr, 0,
                    NI_NUMERICHOST) == 0 &&
        std::find(addresses.begin(), addresses.end(), text.data()) == addresses.end()) {
      addresses.emplace_back(text.data());
    }
  }
  return addresses;
}

void run(const std::string& host, Lookup& lookup) {
  addrinfo hints{};
  hints.ai_socktype = SOCK_STREAM;
  hints.ai_flags = AI_ADDRCONFIG;
  addrinfo* list = nullptr;
  const int error = getaddrinfo(host.c_str(), nullptr, &hints, &list);
  std::vector<std::string> addresses =
      error == 0 ? numeric_addresses(list) : std::vector<std::string>();
  if (list != nullptr) {
    freeaddrinfo(list);
  }
  const std::lock_guard lock(lookup.mutex);
  lookup.done = true;
  lookup.error = error;
  lookup.addresses = std::move(addresses);
  lookup.done_changed.notify_all();
}

}  // namespace

Result<std::vector<std::string>> look_up(const std::string& host, Instant deadline,
                                         const std::function<bool()>& aborted) {
  if (is_numeric(host)) {
    return std::vector<std::string>{host};
  }
  // Shared: the thread may outlive this call, see Lookup.
  const auto lookup = std::make_shared<Lookup>();
  std::thread([host, lookup] { run(host, *lookup); }).detach();
  std::unique_lock lock(lookup->mutex);
  while (!lookup->done) {
    if (aborted()) {
      return Error{Errc::kAborted, host + ": told to stop"};
    }
    if (monotonic_now() >= deadline) {
      return Error{Errc::kDeadline, host + ": no answer in time while looking up its name"};
    }
    lookup->done_changed.wait_for(lock, milliseconds(20));
  }
  if (lookup->error != 0 || lookup->addresses.empty()) {
    return Error{
        Errc::kPeerLost,
        host + ": " + (lookup->error != 0 ? gai_strerror(lookup->error) : "has no address")};
  }
  return lookup->addresses;
}

}  // namespace mayfly::cloud_hooks
