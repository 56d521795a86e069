// The downloads of new servers over real sockets: with and without the token, by clients that close
// early, are slow, or are malicious.

#include "cloud_hooks/bundle/bundle_server.hpp"

#include <arpa/inet.h>
#include <gtest/gtest.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <thread>

#include "base/check.hpp"
#include "base/file.hpp"
#include "base/log.hpp"
#include "cloud_hooks/http/message.hpp"

namespace mayfly::cloud_hooks {
namespace {

constexpr const char* kToken = "00ff";
constexpr std::size_t kBundleBytes = std::size_t{24} << 20;  // more than socket buffers hold
constexpr Duration kHangBound = seconds(30);

/// A client's connection, with a small receive buffer. It waits up to 30 seconds for an answer.
class Caller {
 public:
  explicit Caller(std::uint16_t port) : fd_(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0)) {
    const timeval patience{30, 0};
    ::setsockopt(fd_.get(), SOL_SOCKET, SO_RCVTIMEO, &patience, sizeof patience);
    const int small = 4096;
    ::setsockopt(fd_.get(), SOL_SOCKET, SO_RCVBUF, &small, sizeof small);
    sockaddr_in address{};
    address.sin_family = AF_INET;
    address.sin_port = htons(port);
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    ENSURE(::connect(fd_.get(), reinterpret_cast<sockaddr*>(&address), sizeof address) == 0,
           "the server listens");
  }
  void say(const std::string& text) {
    (void)!::send(fd_.get(), text.data(), text.size(), MSG_NOSIGNAL);
  }
  /// Reads everything until the server closes the connection.
  std::string rest() {
    std::string text;
    std::vector<char> block(1 << 16);
    while (true) {
      const ssize_t count = ::recv(fd_.get(), block.data(), block.size(), 0);
      if (count <= 0) {
        return text;
      }
      text.append(block.data(), static_cast<std::size_t>(count));
    }
  }

 private:
  UniqueFd fd_;
};

std::string body_of(const std::string& answer) {
  const std::size_t end = answer.find("\r\n\r\n");
  return end == std::string::npos ? "(no answer)" : answer.substr(end + 4);
}

class BundleServerTest : public testing::Test {
 protected:
  BundleServerTest()
      : folder_(std::filesystem::temp_directory_path() /
                ("mayfly_bundle_" + std::to_string(::getpid()))) {
    std::filesystem::create_directories(folder_);
    for (std::size_t i = 0; i < kBundleBytes / 8; ++i) {
      bytes_ += std::to_string(10'000'000 + i);
    }
    std::ofstream(path()) << bytes_;
  }
  ~BundleServerTest() override {
    server_.reset();
    std::filesystem::remove_all(folder_);
  }

  [[nodiscard]] std::string path() const { return folder_ / "bundle.tar.gz"; }

  void start(const BundleLimits& limits = {}) {
    UniqueFd listener(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
    sockaddr_in address{};
    address.sin_family = AF_INET;
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    socklen_t size = sizeof address;
    ENSURE(::bind(listener.get(), reinterpret_cast<sockaddr*>(&address), size) == 0 &&
               ::listen(listener.get(), 128) == 0 &&
               ::getsockname(listener.get(), reinterpret_cast<sockaddr*>(&address), &size) == 0,
           "a port is free");
    port_ = ntohs(address.sin_port);
    server_ = BundleServer::start({std::move(listener), bundle_access(kToken), "echo started\n",
                                   open_bundle(path()).value(), limits,
                                   [this](const std::string& server, const std::string& output) {
                                     failed_ = server + ": " + output;
                                   }});
  }

  static std::string request(const std::string& target, const std::string& more = {}) {
    return "GET " + target + " HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer " +
           bundle_access(kToken) + "\r\n" + more + "\r\n";
  }
  std::string ask(const std::string& text) {
    Caller caller(port_);
    caller.say(text);
    return caller.rest();
  }

  std::filesystem::path folder_;
  std::string bytes_;
  std::uint16_t port_ = 0;
  std::string failed_;  // written by the server before it answers
  std::unique_ptr<BundleServer> server_;
};

TEST_F(BundleServerTest, HearsWhatAFailedWorkerPrinted) {
  start();
  const std::string head = "POST /failed?m-1 HTTP/1.1\r\nHost: x\r\nContent-Length: ";
  const std::string access = "\r\nAuthorization: Bearer " + bundle_access(kToken) + "\r\n\r\n";
  EXPECT_EQ(ask(head + "100000" + access + std::string(100'000, 'x')), "") << "too much";
  EXPECT_TRUE(ask(head + "3\r\n\r\nout").starts_with("HTTP/1.1 403"));
  EXPECT_EQ(failed_, "");
  EXPECT_TRUE(ask(head + "8" + access + "no torch").starts_with("HTTP/1.1 200"));
  EXPECT_EQ(failed_, "m-1: no torch");
}

TEST_F(BundleServerTest, ServesStartScriptAndBundleToWhoKnowsTheToken) {
  start();
  EXPECT_EQ(body_of(ask(request("/start"))), "echo started\n");
  EXPECT_TRUE(body_of(ask(request("/bundle"))) == bytes_);
}

TEST_F(BundleServerTest, ADownloadGoesOnWhereItBroke) {
  start();
  const std::size_t half = bytes_.size() / 2;
  const std::string rest =
      ask(request("/bundle", "Range: bytes=" + std::to_string(half) + "-\r\n"));
  EXPECT_TRUE(rest.starts_with("HTTP/1.1 206"));
  EXPECT_TRUE(body_of(rest) == bytes_.substr(half));
}

TEST_F(BundleServerTest, WhoDoesNotKnowTheTokenGetsNothingAndALineInTheLog) {
  const std::string log_path = folder_ / "log";
  log::open("test", log_path, log::Level::kError);
  start();
  for (const char* more : {"", "Authorization: Bearer 00ff\r\n", "Authorization: Basic 00ff\r\n"}) {
    const std::string answer =
        ask(std::string("GET /start HTTP/1.1\r\nHost: x\r\n") + more + "\r\n");
    EXPECT_TRUE(answer.starts_with("HTTP/1.1 403")) << answer;
    EXPECT_EQ(body_of(answer), "");
  }
  server_.reset();
  log::open("test", "", log::Level::kError);
  const std::string log = read_text_file(log_path, 10'000).value();
  EXPECT_NE(log.find("bundle port: turned 127.0.0.1:"), std::string::npos) << log;
  EXPECT_NE(log.find("does not have the token"), std::string::npos) << log;
  EXPECT_EQ(log.find(kToken), std::string::npos) << log;
}

TEST_F(BundleServerTest, ASlowReaderKeepsNobodyWaiting) {
  start();
  std::vector<std::unique_ptr<Caller>> slow;
  for (int i = 0; i < 8; ++i) {
    slow.push_back(std::make_unique<Caller>(port_));
    slow.back()->say(request("/bundle"));
  }
  for (int i = 0; i < 20; ++i) {
    EXPECT_EQ(body_of(ask(request("/start"))), "echo started\n");
  }
  EXPECT_TRUE(body_of(slow.front()->rest()) == bytes_) << "and it gets everything in the end";
}

TEST_F(BundleServerTest, WhoStopsReadingIsClosed) {
  BundleLimits limits;
  limits.stall_max = milliseconds(300);
  start(limits);
  Caller stalled(port_);
  stalled.say(request("/bundle"));
  const Instant begun = monotonic_now();
  while (monotonic_now() - begun < milliseconds(1500)) {  // longer than the server waits
    std::this_thread::yield();
  }
  EXPECT_LT(stalled.rest().size(), bytes_.size());
}

TEST_F(BundleServerTest, MoreDownloadsThanAllowedAreToldToComeBack) {
  BundleLimits limits;
  limits.downloads_max = 1;
  start(limits);
  Caller first(port_);
  first.say(request("/bundle"));
  // The server may read the first client's request after those of the loop.
  const Instant deadline = monotonic_now() + kHangBound;
  std::string answer;
  while (!answer.starts_with("HTTP/1.1 503") && monotonic_now() < deadline) {
    answer = ask(request("/bundle"));
  }
  EXPECT_NE(answer.find("Retry-After: 1\r\n"), std::string::npos);
  EXPECT_EQ(body_of(ask(request("/start"))), "echo started\n") << "small things are always served";
  EXPECT_TRUE(body_of(first.rest()) == bytes_);
}

TEST_F(BundleServerTest, SilentConnectionsMakeWayForNewOnes) {
  BundleLimits limits;
  limits.unauthenticated_max = 4;
  limits.request_max = seconds(60);
  start(limits);
  std::vector<std::unique_ptr<Caller>> silent;
  for (int i = 0; i < 40; ++i) {
    silent.push_back(std::make_unique<Caller>(port_));
  }
  EXPECT_EQ(body_of(ask(request("/start"))), "echo started\n");
  EXPECT_EQ(silent.front()->rest(), "") << "the oldest was closed";
}

TEST_F(BundleServerTest, WhatIsNoRequestIsClosed) {
  BundleLimits limits;
  limits.request_max = milliseconds(300);
  start(limits);
  EXPECT_EQ(ask(""), "") << "silence";
  EXPECT_EQ(ask("GET /start HTTP/1.1\r\nHost"), "") << "half a request";
  EXPECT_EQ(ask(std::string("\x16\x03\x01\x00\xff\x01", 6)), "") << "TLS";
  EXPECT_EQ(ask("GET /start HTTP/1.1\r\nX: " + std::string(100'000, 'x')), "") << "an endless head";
  EXPECT_EQ(ask(request("/start", "Content-Length: 99999999\r\n")), "") << "a body";
  EXPECT_EQ(body_of(ask(request("/start"))), "echo started\n") << "the next one is served";
}

TEST_F(BundleServerTest, AnotherFileOfThatNameIsNotServed) {
  start();
  std::filesystem::rename(path(), folder_ / "old");
  std::ofstream(path()) << "something else";
  EXPECT_TRUE(body_of(ask(request("/bundle"))) == bytes_);
}

TEST_F(BundleServerTest, AFileThatShrinksIsAnAnswerThatEndsEarly) {
  start();
  std::filesystem::resize_file(path(), 1000);
  EXPECT_EQ(body_of(ask(request("/bundle"))).size(), 1000u);
}

TEST_F(BundleServerTest, IsWhatTheShellMakesOfTheToken) {
  const std::string access_path = folder_ / "access";
  const std::string command = std::string("printf 'mayfly bundle\\n%s\\n' '") + kToken +
                              "' | sha256sum | cut -d' ' -f1 >'" + access_path + "'";
  ASSERT_EQ(std::system(command.c_str()), 0);
  EXPECT_EQ(read_text_file(access_path, 100).value(), bundle_access(kToken) + "\n");
}

TEST_F(BundleServerTest, ABundleIsAFileWithAHash) {
  const Result<BundleFile> bundle = open_bundle(path());
  ASSERT_TRUE(bundle.ok());
  EXPECT_EQ(bundle.value().bytes, bytes_.size());
  EXPECT_EQ(bundle.value().sha256, to_hex(sha256(bytes_)));
  EXPECT_EQ(open_bundle(folder_ / "none").error().code, Errc::kNotFound);
  EXPECT_EQ(open_bundle(folder_).error().code, Errc::kInvalidInput);
  std::ofstream(folder_ / "empty").close();
  EXPECT_EQ(open_bundle(folder_ / "empty").error().code, Errc::kInvalidInput);
}

}  // namespace
}  // namespace mayfly::cloud_hooks
