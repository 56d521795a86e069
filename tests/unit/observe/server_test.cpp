#include "observe/server.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstring>
#include <fstream>
#include <thread>

#include "base/net/sockets.hpp"
#include "observe/page_text.hpp"
#include "observe/served_run.hpp"
#include "tests/unit/observe/run_folder.hpp"

namespace mayfly::observe {
namespace {

using testing::HasSubstr;
using testing::StartsWith;

constexpr Duration kPatience = seconds(20);

class Served {
 public:
  explicit Served(ServerLimits limits = {}) {
    folder_.add_steps(1, 10);
    ServerOptions options;
    options.listener = listen_tcp({kLoopbackHost, 0}).value();
    endpoint_ = bound_endpoint(options.listener.get());
    options.gate = {"0123", endpoint_.port, {}};
    options.runs.push_back(RunFollower::open(folder_.path()).value());
    options.limits = limits;
    server_ = Server::make(std::move(options));
    thread_ = std::thread([this] { server_->run(false); });
  }
  ~Served() {
    server_->stop();
    thread_.join();
  }
  Served(const Served&) = delete;
  Served& operator=(const Served&) = delete;

  [[nodiscard]] UniqueFd connect() const {
    return connect_tcp(endpoint_, monotonic_now() + kPatience).value();
  }

  /// Sends a request with the key, and returns its connection.
  [[nodiscard]] UniqueFd ask(const std::string& target, const std::string& more = "") const {
    UniqueFd fd = connect();
    const std::string text = "GET " + target + " HTTP/1.1\r\nHost: " + to_string(endpoint_) +
                             "\r\nAuthorization: Bearer 0123\r\n" + more + "\r\n";
    EXPECT_TRUE(
        send_exactly(fd.get(), std::as_bytes(std::span(text)), monotonic_now() + kPatience).ok());
    return fd;
  }

  [[nodiscard]] std::string get(const std::string& target, const std::string& more = "") const {
    return read_until(ask(target, more), "");
  }

  /// Reads up to these bytes, or to the end of the connection.
  static std::string read_until(const UniqueFd& fd, const std::string& mark) {
    std::string text;
    const Instant deadline = monotonic_now() + kPatience;
    std::byte byte{};
    while (receive_exactly(fd.get(), std::span(&byte, 1), deadline).ok()) {
      text += static_cast<char>(byte);
      if (!mark.empty() && text.ends_with(mark)) {
        break;
      }
    }
    return text;
  }

  /// Reads a stream up to the end of the first event with the word; keep-alive messages may precede
  /// it. Returns nothing if the connection ends before.
  static std::string event_with(const UniqueFd& fd, const std::string& word) {
    std::string all;
    while (all.find(word) == std::string::npos) {
      const std::string event = read_until(fd, "\n\n");
      if (event.empty()) {
        return {};
      }
      all += event;
    }
    return all;
  }

  [[nodiscard]] const RunFolder& folder() const { return folder_; }
  [[nodiscard]] const Endpoint& endpoint() const { return endpoint_; }

 private:
  RunFolder folder_;
  Endpoint endpoint_;
  std::unique_ptr<Server> server_;
  std::thread thread_;
};

TEST(DashboardServer, AnswersWithItsPolicy) {
  const Served served;
  const std::string page = served.get("/");
  EXPECT_THAT(page, StartsWith("HTTP/1.1 200"));
  for (const char* header : {"Content-Security-Policy: default-src 'none'; script-src 'sha256-",
                             "frame-ancestors 'none'", "X-Content-Type-Options: nosniff",
                             "Referrer-Policy: no-referrer", "Cache-Control: no-store"}) {
    EXPECT_THAT(page, HasSubstr(header));
  }
  EXPECT_THAT(page, HasSubstr("Content-Length: " + std::to_string(kPage.size()) + "\r\n"));
  EXPECT_TRUE(page.ends_with(kPage));
  const std::string state = served.get("/api/state?run=0");
  EXPECT_THAT(state, StartsWith("HTTP/1.1 200"));
  EXPECT_THAT(state, HasSubstr("\"rows\":10"));
}

TEST(DashboardServer, RefusesOthers) {
  const Served served;
  const auto status = [&](const std::string& text) {
    const UniqueFd fd = served.connect();
    EXPECT_TRUE(
        send_exactly(fd.get(), std::as_bytes(std::span(text)), monotonic_now() + kPatience).ok());
    return Served::read_until(fd, "\r\n");
  };
  const std::string host = "Host: " + to_string(served.endpoint()) + "\r\n";
  const std::string key = "Authorization: Bearer 0123\r\n";
  EXPECT_THAT(status("GET /api/state HTTP/1.1\r\n" + host + "\r\n"), HasSubstr(" 403 "));
  EXPECT_THAT(status("GET /api/state HTTP/1.1\r\nHost: evil.example:80\r\n" + key + "\r\n"),
              HasSubstr(" 421 "));
  EXPECT_THAT(
      status("GET /api/state HTTP/1.1\r\n" + host + key + "Origin: http://evil.example\r\n\r\n"),
      HasSubstr(" 403 "));
  EXPECT_THAT(status("POST /api/state HTTP/1.1\r\n" + host + key + "\r\n"), HasSubstr(" 405 "));
  EXPECT_THAT(status("GET /api/state?run=7 HTTP/1.1\r\n" + host + key + "\r\n"),
              HasSubstr(" 404 "));
  EXPECT_THAT(status("GET /../../etc/passwd HTTP/1.1\r\n" + host + key + "\r\n"),
              HasSubstr(" 404 "));
  EXPECT_THAT(status("POST /session HTTP/1.1\r\n" + host + key + "Origin: http://" +
                     to_string(served.endpoint()) + "\r\n\r\n"),
              HasSubstr(" 204 "));
}

TEST(DashboardServer, AStreamTellsWhatIsNewAndGoesOnWhereItWas) {
  const Served served;
  const UniqueFd first = served.ask("/events");
  const std::string begin = Served::event_with(first, "data: ");
  EXPECT_THAT(begin, HasSubstr("text/event-stream"));
  EXPECT_THAT(begin, HasSubstr("data: {\"instance\""));
  served.folder().add_steps(11, 12);
  const std::string next = Served::event_with(first, "\"version\":2");
  const std::size_t at = next.rfind("id: ") + 4;
  const std::string id = next.substr(at, next.find('\n', at) - at);
  // A viewer that reconnects with this id gets its next event when there is news.
  const UniqueFd second = served.ask("/events", "Last-Event-ID: " + id + "\r\n");
  Served::read_until(second, "\r\n\r\n");
  served.folder().add_steps(13, 13);
  EXPECT_NE(Served::event_with(second, "\"version\":3"), "");
}

TEST(DashboardServer, LimitsViewersAndClosesTheOldestWhoSaysNothing) {
  ServerLimits limits;
  limits.viewers_max = 2;
  limits.connections_max = 8;
  const Served served(limits);
  std::vector<UniqueFd> viewers;
  for (int i = 0; i < 2; ++i) {
    viewers.push_back(served.ask("/events"));
    EXPECT_NE(Served::event_with(viewers.back(), "\"version\":1"), "");
  }
  EXPECT_THAT(served.get("/events"), HasSubstr(" 503 "));
  std::vector<UniqueFd> silent;
  for (int i = 0; i < 200; ++i) {
    silent.push_back(served.connect());
  }
  EXPECT_THAT(served.get("/api/state?run=0"), StartsWith("HTTP/1.1 200"));
  served.folder().add_steps(11, 11);
  EXPECT_NE(Served::event_with(viewers[0], "\"version\":2"), "");
}

TEST(DashboardServer, ClosesWhoSendsNoRequest) {
  ServerLimits limits;
  limits.request_max = milliseconds(50);
  const Served served(limits);
  EXPECT_EQ(Served::read_until(served.connect(), ""), "");
}

/// The header of an answer of ServedRun::series.
std::string header_of(const std::string& bytes) {
  std::uint32_t length = 0;
  std::memcpy(&length, bytes.data(), sizeof length);
  EXPECT_EQ((length + sizeof length) % 8, 0U);
  return bytes.substr(sizeof length, length);
}

TEST(ServedRun, SendsWhatAPageLacks) {
  const RunFolder folder;
  folder.add_steps(1, 10);
  ServedRun run(RunFollower::open(folder.path()).value());
  EXPECT_THAT(header_of(run.series(0, 0)), HasSubstr("\"first\":0,\"count\":10"));
  EXPECT_FALSE(run.poll());
  folder.add_steps(11, 13);
  EXPECT_TRUE(run.poll());
  EXPECT_THAT(header_of(run.series(1, 0)), HasSubstr("\"version\":2,\"level\":0,\"first\":10,"
                                                     "\"count\":3"));
  EXPECT_THAT(header_of(run.series(1, 3)), HasSubstr("\"first\":0,\"count\":13"));
  EXPECT_THAT(header_of(run.series(9, 0)), HasSubstr("\"first\":0,\"count\":13"));
  folder.add_steps(6, 8);  // the job has gone back to an earlier step
  EXPECT_TRUE(run.poll());
  EXPECT_THAT(header_of(run.series(1, 0)), HasSubstr("\"count\":"));
  EXPECT_THAT(header_of(run.series(2, 0)), HasSubstr("\"undone_count\":8"));
  EXPECT_EQ(run.version(), 3U);
  const std::string detail = run.detail(2, 4);
  EXPECT_THAT(header_of(detail), HasSubstr("\"level\":0,\"count\":5"));
  EXPECT_THAT(header_of(run.detail(1'000'000, 5)), HasSubstr("\"count\":0"));
}

TEST(ServedRun, ThatHasEndedIsNewsThoughNoRecordCame) {
  const RunFolder folder;
  folder.add_steps(1, 3);
  ServedRun run(RunFollower::open(folder.path()).value());
  const std::string before = run.position();
  std::ofstream(folder.path() + "/summary.json") << R"({"outcome": "done"})";
  EXPECT_TRUE(run.poll());
  EXPECT_NE(run.position(), before);
}

}  // namespace
}  // namespace mayfly::observe
