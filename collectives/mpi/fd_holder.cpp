#include "collectives/mpi/fd_holder.hpp"

#include <arpa/inet.h>
#include <fcntl.h>
#include <fmt/format.h>
#include <linux/close_range.h>
#include <netinet/in.h>
#include <poll.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cerrno>
#include <climits>
#include <csignal>
#include <filesystem>
#include <span>
#include <string>
#include <system_error>
#include <utility>
#include <vector>

#include "base/file.hpp"
#include "base/net/sockets.hpp"
#include "base/parse.hpp"
#include "base/process/ancestors.hpp"
#include "base/system_error.hpp"

namespace mayfly::collectives {
namespace {

/// A TCP socket of this process.
struct TcpSocket {
  int fd = -1;
  ino_t inode = 0;
  std::uint16_t port = 0;  // of this end
  bool listens = false;
};

int option_of(int fd, int option) {
  int found = -1;
  socklen_t size = sizeof found;
  return ::getsockopt(fd, SOL_SOCKET, option, &found, &size) == 0 ? found : -1;
}

std::uint16_t port_of(const sockaddr_storage& address) {
  return ntohs(address.ss_family == AF_INET6
                   ? reinterpret_cast<const sockaddr_in6&>(address).sin6_port
                   : reinterpret_cast<const sockaddr_in&>(address).sin_port);
}

/// True if the descriptor is a TCP socket that listens or is connected.
bool describe(int fd, TcpSocket& found) {
  const int domain = option_of(fd, SO_DOMAIN);
  if ((domain != AF_INET && domain != AF_INET6) || option_of(fd, SO_TYPE) != SOCK_STREAM) {
    return false;
  }
  struct stat status {};
  sockaddr_storage address{};
  socklen_t size = sizeof address;
  if (::fstat(fd, &status) != 0 ||
      ::getsockname(fd, reinterpret_cast<sockaddr*>(&address), &size) != 0) {
    return false;
  }
  found = {fd, status.st_ino, port_of(address), option_of(fd, SO_ACCEPTCONN) == 1};
  size = sizeof address;
  return found.listens || ::getpeername(fd, reinterpret_cast<sockaddr*>(&address), &size) == 0;
}

std::vector<TcpSocket> tcp_sockets() {
  std::vector<TcpSocket> all;
  for (const std::string& name : names_in("/proc/self/fd")) {
    TcpSocket socket;
    if (const auto fd = number_in<int>(name); fd && describe(*fd, socket)) {
      all.push_back(socket);
    }
  }
  return all;
}

/// The process that has started this rank: mpirun, or its daemon on this machine. Between them
/// there may be a script, which ends with the rank.
pid_t find_launcher() {
  for (const int ancestor : ancestors_of(::getpid())) {
    std::error_code hidden;
    const std::string program =
        std::filesystem::read_symlink(fmt::format("/proc/{}/exe", ancestor), hidden).filename();
    for (const char* launcher : {"orterun", "orted", "mpirun", "mpiexec"}) {
      if (program.starts_with(launcher)) {
        return ancestor;
      }
    }
  }
  return ::getppid();
}

/// The child. It was forked from a process with threads, so it must neither allocate nor lock.
[[noreturn]] void hold_sockets(int commands, pid_t launcher) {
  for (const int ignored : {SIGINT, SIGTERM, SIGHUP, SIGQUIT, SIGUSR1, SIGUSR2, SIGPIPE, SIGTSTP}) {
    ::signal(ignored, SIG_IGN);
  }
  ::prctl(PR_SET_NAME, "mayfly-fds");
  constexpr int kOnly = 0;  // the only descriptor that stays open
  ::dup2(commands, kOnly);
  ::close_range(kOnly + 1, UINT_MAX, 0);
  while (::kill(launcher, 0) == 0) {
    pollfd arrived{.fd = kOnly, .events = POLLIN, .revents = 0};
    constexpr int kLookAfterLauncherMs = 200;
    if (::poll(&arrived, 1, kLookAfterLauncherMs) <= 0) {
      continue;
    }
    char byte = 0;
    iovec data{.iov_base = &byte, .iov_len = 1};
    alignas(cmsghdr) char control[CMSG_SPACE(sizeof(int))];
    msghdr message{};
    message.msg_iov = &data;
    message.msg_iovlen = 1;
    message.msg_control = control;
    message.msg_controllen = sizeof control;
    if (::recvmsg(kOnly, &message, 0) == 0) {  // the worker has ended; its sockets stay open
      constexpr timespec kPause{.tv_sec = 0, .tv_nsec = 200'000'000};
      ::nanosleep(&kPause, nullptr);
    }
  }
  ::_exit(0);
}

}  // namespace

Result<std::unique_ptr<FdHolder>> FdHolder::start() {
  int ends[2] = {-1, -1};
  if (::socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends) != 0) {
    return system_error("no socket pair", errno);
  }
  UniqueFd ours(ends[0]);
  const UniqueFd theirs(ends[1]);
  const pid_t launcher = find_launcher();
  const pid_t child = ::fork();
  if (child < 0) {
    return system_error("cannot fork", errno);
  }
  if (child == 0) {
    hold_sockets(theirs.get(), launcher);
  }
  return std::unique_ptr<FdHolder>(new FdHolder(std::move(ours)));
}

FdHolder::FdHolder(UniqueFd child) : child_(std::move(child)) {
  for (const TcpSocket& socket : tcp_sockets()) {
    if (socket.listens) {
      older_ports_.insert(socket.port);
    }
  }
}

void FdHolder::note_ports() {
  for (const TcpSocket& socket : tcp_sockets()) {
    if (socket.listens && !older_ports_.contains(socket.port)) {
      ports_.insert(socket.port);
    }
  }
}

void FdHolder::begin() {
  for (const TcpSocket& socket : tcp_sockets()) {
    if (!ports_.contains(socket.port)) {
      known_.insert(socket.inode);
    }
  }
}

void FdHolder::keep_new() {
  for (const TcpSocket& socket : tcp_sockets()) {
    if (!socket.listens && known_.insert(socket.inode).second) {
      send(socket.fd);
    }
  }
}

void FdHolder::send(int socket) {
  const std::byte byte{};
  // If there is no child process, the connections are just not kept open.
  (void)send_with_descriptor(child_.get(), std::span(&byte, 1), socket);
}

}  // namespace mayfly::collectives
