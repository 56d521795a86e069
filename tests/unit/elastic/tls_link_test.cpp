#include "elastic/net/tls_link.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <poll.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <string>
#include <thread>

#include "base/net/sockets.hpp"
#include "elastic/net/handshake.hpp"
#include "elastic/net/job_token.hpp"

// A forked child has none of its parent's threads, so the leak sanitizer would report their memory
// there. Its run-time library calls this function at the end of a process.
static bool g_is_forked_child = false;
extern "C" int __lsan_is_turned_off();
extern "C" int __lsan_is_turned_off() {
  return g_is_forked_child ? 1 : 0;
}

namespace mayfly::elastic {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

constexpr Duration kHang = seconds(30);

Instant hang_bound() {
  return monotonic_now() + kHang;
}

/// Two connected TCP sockets on loopback.
struct Cable {
  UniqueFd connected;
  UniqueFd accepted;
};

Cable make_cable() {
  const UniqueFd listener = listen_tcp({"127.0.0.1", 0}).value();
  Cable cable;
  cable.connected =
      connect_tcp({"127.0.0.1", bound_endpoint(listener.get()).port}, hang_bound()).value();
  pollfd waiting{listener.get(), POLLIN, 0};
  ::poll(&waiting, 1, static_cast<int>(to_ms(kHang)));
  cable.accepted = accept_one(listener.get());
  return cable;
}

Bytes to_bytes(const std::string& text) {
  const auto span = std::as_bytes(std::span(text));
  return {span.begin(), span.end()};
}

std::string text_of(ByteSpan bytes) {
  return {reinterpret_cast<const char*>(bytes.data()), bytes.size()};
}

Bytes some_bytes(std::size_t size) {
  Bytes bytes(size);
  for (std::size_t i = 0; i < size; ++i) {
    bytes[i] = static_cast<std::byte>((i * 2'654'435'761U) >> 13);
  }
  return bytes;
}

/// Reads until the end of file.
Bytes read_all(int fd) {
  Bytes all;
  std::array<std::byte, 4096> block;
  while (true) {
    pollfd waiting{fd, POLLIN, 0};
    if (::poll(&waiting, 1, static_cast<int>(to_ms(kHang))) != 1) {
      ADD_FAILURE() << "nothing came";
      return all;
    }
    const ssize_t got = ::recv(fd, block.data(), block.size(), 0);
    if (got <= 0) {
      return all;
    }
    all.insert(all.end(), block.begin(), block.begin() + got);
  }
}

/// An attacker between client and server that passes on what each sends, and may change it.
class MiddleMan {
 public:
  MiddleMan() : to_client_(make_cable()), to_server_(make_cable()) {}
  ~MiddleMan() {
    ::shutdown(to_client_.accepted.get(), SHUT_RDWR);
    ::shutdown(to_server_.connected.get(), SHUT_RDWR);
    for (std::thread& thread : threads_) {
      thread.join();
    }
  }
  UniqueFd client_end() { return std::move(to_client_.connected); }
  UniqueFd server_end() { return std::move(to_server_.accepted); }
  /// Starts to pass bytes on, and flips a bit of the client's byte number `changes_after`.
  void start(std::size_t changes_after = SIZE_MAX) {
    threads_[0] = std::thread([this, changes_after] {
      pass(to_client_.accepted.get(), to_server_.connected.get(), changes_after, heard_);
    });
    threads_[1] = std::thread([this] {
      Bytes ignored;
      pass(to_server_.connected.get(), to_client_.accepted.get(), SIZE_MAX, ignored);
    });
  }
  /// All bytes of the client. To be called after both sides have ended.
  const Bytes& heard() const { return heard_; }

 private:
  static void pass(int from, int to, std::size_t changes_after, Bytes& heard) {
    std::array<std::byte, 4096> block;
    while (true) {
      pollfd waiting{from, POLLIN, 0};
      ::poll(&waiting, 1, -1);
      const ssize_t got = ::recv(from, block.data(), block.size(), 0);
      if (got <= 0) {
        ::shutdown(to, SHUT_WR);
        return;
      }
      const auto size = static_cast<std::size_t>(got);
      if (changes_after >= heard.size() && changes_after < heard.size() + size) {
        block[changes_after - heard.size()] ^= std::byte{1};
      }
      heard.insert(heard.end(), block.begin(), block.begin() + got);
      (void)send_exactly(to, ByteSpan(block).first(size), hang_bound());
    }
  }

  Cable to_client_;
  Cable to_server_;
  Bytes heard_;
  std::array<std::thread, 2> threads_;
};

TEST(TlsLink, CarriesBytesBothWaysAndTheEndOfEach) {
  const Bytes token = make_token(true);
  Cable cable = make_cable();
  SecureSocket client = secure_client(std::move(cable.connected), token);
  SecureSocket server = secure_server(std::move(cable.accepted), token);
  ASSERT_TRUE(client.link->wait_until_open(hang_bound()).ok());
  ASSERT_TRUE(server.link->wait_until_open(hang_bound()).ok());
  const Bytes many = some_bytes(5'000'000);
  std::thread writer([&] {
    EXPECT_TRUE(send_exactly(client.fd.get(), many, hang_bound()).ok());
    ::shutdown(client.fd.get(), SHUT_WR);
  });
  EXPECT_EQ(read_all(server.fd.get()), many);
  writer.join();
  ASSERT_TRUE(send_exactly(server.fd.get(), to_bytes("answer"), hang_bound()).ok());
  server.fd.reset();
  EXPECT_EQ(text_of(read_all(client.fd.get())), "answer");
  EXPECT_EQ(client.link->failure(), "");
}

TEST(TlsLink, KnowsWhenThePeersMachineHasEverything) {
  const Bytes token = make_token(true);
  Cable cable = make_cable();
  const SecureSocket client = secure_client(std::move(cable.connected), token);
  const SecureSocket server = secure_server(std::move(cable.accepted), token);
  EXPECT_FALSE(client.link->has_acknowledged(1));
  ASSERT_TRUE(send_exactly(client.fd.get(), to_bytes("12345"), hang_bound()).ok());
  const Instant until = hang_bound();
  while (!client.link->has_acknowledged(5) && monotonic_now() < until) {
    std::this_thread::sleep_for(milliseconds(1));
  }
  EXPECT_TRUE(client.link->has_acknowledged(5));
  EXPECT_FALSE(client.link->has_acknowledged(6));
}

TEST(TlsLink, AnotherTokenIsRefusedOnBothSides) {
  Cable cable = make_cable();
  const SecureSocket client = secure_client(std::move(cable.connected), make_token(true));
  const SecureSocket server = secure_server(std::move(cable.accepted), make_token(true));
  const Result<void> refused = client.link->wait_until_open(hang_bound());
  ASSERT_FALSE(refused.ok());
  EXPECT_EQ(refused.error().code, Errc::kRefused) << refused.error().detail;
  EXPECT_THAT(refused.error().detail, HasSubstr("wrong token"));
  EXPECT_THAT(server.link->wait_until_open(hang_bound()).error().detail, HasSubstr("wrong token"));
  EXPECT_EQ(read_all(server.fd.get()), Bytes());
}

TEST(TlsLink, APeerThatSpeaksInPlainIsNamedAsThat) {
  Cable cable = make_cable();
  const SecureSocket server = secure_server(std::move(cable.accepted), make_token(true));
  ASSERT_TRUE(
      send_exactly(cable.connected.get(), to_bytes("GET / HTTP/1.0\r\n"), hang_bound()).ok());
  EXPECT_FALSE(server.link->wait_until_open(hang_bound()).ok());
  EXPECT_THAT(server.link->failure(), HasSubstr("does not use TLS"));
}

TEST(TlsLink, APeerThatWaitsForUsIsToldWhy) {
  Cable cable = make_cable();
  const SecureSocket server =
      secure_server(std::move(cable.accepted), make_token(true), to_bytes("speak TLS"));
  EXPECT_EQ(text_of(read_all(cable.connected.get())), "speak TLS");
  EXPECT_THAT(server.link->failure(), HasSubstr("does not use TLS"));
}

TEST(TlsLink, APeerThatStopsInTheHandshakeDoesNotKeepAnAbandonedConnection) {
  Cable cable = make_cable();
  SecureSocket server =
      secure_server(std::move(cable.accepted), make_token(true), to_bytes("speak TLS"));
  ASSERT_TRUE(send_exactly(server.fd.get(), to_bytes("challenge"), hang_bound()).ok());
  const Bytes begin_of_record{std::byte{0x16}};
  ASSERT_TRUE(send_exactly(cable.connected.get(), begin_of_record, hang_bound()).ok());
  pollfd unread{server.fd.get(), POLLIN, 0};
  EXPECT_EQ(::poll(&unread, 1, 100), 0);
  server.link->abandon();
  server.fd.reset();
  EXPECT_EQ(read_all(cable.connected.get()), Bytes());
}

TEST(TlsLink, WhoListensInBetweenReadsNothing) {
  const Bytes token = make_token(true);
  MiddleMan man;
  {
    SecureSocket client = secure_client(man.client_end(), token);
    SecureSocket server = secure_server(man.server_end(), token);
    man.start();
    ASSERT_TRUE(send_exactly(client.fd.get(), to_bytes("the weights"), hang_bound()).ok());
    ::shutdown(client.fd.get(), SHUT_WR);
    EXPECT_EQ(text_of(read_all(server.fd.get())), "the weights");
    server.fd.reset();
    EXPECT_EQ(read_all(client.fd.get()), Bytes());
  }
  EXPECT_THAT(text_of(man.heard()), Not(HasSubstr("the weights")));
  EXPECT_THAT(text_of(man.heard()), Not(HasSubstr(text_of(ByteSpan(token).first(8)))));
}

TEST(TlsLink, AChangedByteEndsTheConnectionBeforeAnybodyReadsIt) {
  const Bytes token = make_token(true);
  const Bytes many = some_bytes(200'000);
  for (const std::size_t place : {50'000UL, 150'000UL}) {
    MiddleMan man;
    SecureSocket client = secure_client(man.client_end(), token);
    SecureSocket server = secure_server(man.server_end(), token);
    man.start(place);
    std::thread writer([&] { (void)send_exactly(client.fd.get(), many, hang_bound()); });
    const Bytes got = read_all(server.fd.get());
    EXPECT_LT(got.size(), many.size());
    EXPECT_TRUE(std::equal(got.begin(), got.end(), many.begin()));
    EXPECT_THAT(server.link->failure(), HasSubstr("changed on the way"));
    server.fd.reset();
    writer.join();
  }
}

TEST(TlsLink, WhatOneConnectionCarriedIsWorthNothingOnAnother) {
  const Bytes token = make_token(true);
  MiddleMan man;
  {
    SecureSocket client = secure_client(man.client_end(), token);
    SecureSocket server = secure_server(man.server_end(), token);
    man.start();
    ASSERT_TRUE(send_exactly(client.fd.get(), to_bytes("stop the job"), hang_bound()).ok());
    ::shutdown(client.fd.get(), SHUT_WR);
    EXPECT_EQ(text_of(read_all(server.fd.get())), "stop the job");
    server.fd.reset();
    (void)read_all(client.fd.get());
  }
  Cable cable = make_cable();
  const SecureSocket again = secure_server(std::move(cable.accepted), token);
  ASSERT_TRUE(send_exactly(cable.connected.get(), man.heard(), hang_bound()).ok());
  EXPECT_FALSE(again.link->wait_until_open(hang_bound()).ok());
  EXPECT_EQ(read_all(again.fd.get()), Bytes());
}

/// The error of an attempt to join with the token `ours`. The coordinator has the token `theirs`
/// and closes the connection after the TLS handshake.
Error failed_admission(ByteSpan ours, ByteSpan theirs) {
  const UniqueFd listener = listen_tcp({"127.0.0.1", 0}).value();
  const std::string endpoint = "127.0.0.1:" + std::to_string(bound_endpoint(listener.get()).port);
  std::thread coordinator([&] {
    pollfd waiting{listener.get(), POLLIN, 0};
    ::poll(&waiting, 1, static_cast<int>(to_ms(kHang)));
    const SecureSocket server = secure_server(accept_one(listener.get()), theirs);
    (void)server.link->wait_until_open(hang_bound());
  });
  const Result<Answer> answer = ask_for_admission(endpoint, ours, Hello{}, hang_bound());
  coordinator.join();
  return answer.ok() ? Error{Errc::kUnsupported, "admitted"} : answer.error();
}

TEST(TlsLink, AfterATokenHasWorkedAFailedHandshakeIsTheNetworksFault) {
  const Bytes token = make_token(true);
  const Bytes other = make_token(true);
  EXPECT_EQ(failed_admission(token, other).code, Errc::kRefused);
  EXPECT_EQ(failed_admission(token, token).code, Errc::kPeerLost);
  EXPECT_EQ(failed_admission(token, other).code, Errc::kPeerLost);
}

TEST(TlsLink, LastWordsLeaveAProcessThatEnds) {
#if defined(__SANITIZE_THREAD__)
  GTEST_SKIP() << "the thread sanitizer ends a child of several threads that starts one";
#endif
  const Bytes token = make_token(true);
  Cable of_parent = make_cable();  // its thread does not exist in the child
  const SecureSocket one = secure_client(std::move(of_parent.connected), token);
  const SecureSocket other = secure_server(std::move(of_parent.accepted), token);
  ASSERT_TRUE(one.link->wait_until_open(hang_bound()).ok());
  ASSERT_TRUE(other.link->wait_until_open(hang_bound()).ok());
  Cable cable = make_cable();
  const pid_t child = ::fork();
  if (child == 0) {
    g_is_forked_child = true;
    SecureSocket server = secure_server(std::move(cable.accepted), token);
    (void)send_exactly(server.fd.get(), some_bytes(100'000), hang_bound());
    server.fd.reset();
    std::exit(0);
  }
  cable.accepted.reset();
  const SecureSocket parent = secure_client(std::move(cable.connected), token);
  EXPECT_EQ(read_all(parent.fd.get()), some_bytes(100'000));
  int status = -1;
  ::waitpid(child, &status, 0);
  EXPECT_EQ(status, 0);
}

}  // namespace
}  // namespace mayfly::elastic
