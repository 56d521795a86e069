#include "observe/server.hpp"

#include <algorithm>
#include <array>
#include <boost/asio/io_context.hpp>
#include <boost/asio/ip/tcp.hpp>
#include <boost/asio/post.hpp>
#include <boost/asio/signal_set.hpp>
#include <boost/asio/steady_timer.hpp>
#include <boost/asio/write.hpp>
#include <boost/beast/core/flat_buffer.hpp>
#include <boost/beast/http.hpp>
#include <charconv>
#include <csignal>
#include <map>
#include <optional>

#include "base/asio/accept_loop.hpp"
#include "base/asio/sockets.hpp"
#include "base/net/accept.hpp"
#include "base/net/sockets.hpp"
#include "observe/core/metrics_text.hpp"
#include "observe/page_text.hpp"
#include "observe/process_metrics.hpp"
#include "observe/reply.hpp"
#include "observe/served_run.hpp"

namespace mayfly::observe {
namespace {

namespace asio = boost::asio;
namespace http = boost::beast::http;
using asio::ip::tcp;
using boost::system::error_code;

constexpr std::size_t kHeadBytesMax = 16 * 1024;
constexpr Duration kClosingMax = seconds(2);
constexpr Duration kFetchingMax = milliseconds(500);  // for a page that was notified of a change

std::string string_of(boost::beast::string_view view) {
  return {view.data(), view.size()};
}

std::uint64_t number_in(const std::string& text) {
  std::uint64_t value = 0;
  std::from_chars(text.data(), text.data() + text.size(), value);
  return value;
}

class Connection;

/// The functions of the server that a connection uses.
class ConnectionOwner {
 public:
  virtual ~ConnectionOwner() = default;
  virtual Reply reply(const Query& query, const std::string& address) = 0;
  /// The event with the present versions of the runs; empty if `last_id` names the same versions.
  virtual std::string changes_since(const std::string& last_id) = 0;
  virtual void turned_away(const std::string& who, const std::string& why) = 0;
  [[nodiscard]] virtual const ServerLimits& limits() const = 0;
};

/// One connection: a request, and its answer or a stream of events. Shared by the server and by the
/// operations that Asio has in flight, which outlive close().
class Connection : public std::enable_shared_from_this<Connection> {
 public:
  enum class Stage { kRequest, kAnswer, kStream, kClosing, kClosed };

  Connection(asio::io_context& io, UniqueFd fd, ConnectionOwner& owner)
      : who_(peer_name(fd.get())),
        address_(bound_endpoint(fd.get()).host),
        socket_(io),
        buffer_(kHeadBytesMax),
        owner_(owner) {
    adopt(socket_, std::move(fd));
    parser_.header_limit(kHeadBytesMax);
    parser_.body_limit(0);
    deadline_ = monotonic_now() + owner.limits().request_max;
  }

  void start() {
    http::async_read_header(socket_, buffer_, parser_,
                            [self = shared_from_this()](const error_code& error, std::size_t) {
                              self->on_request(error);
                            });
  }

  [[nodiscard]] Stage stage() const { return stage_; }
  [[nodiscard]] std::size_t bytes() const { return head_.size() + body_.size(); }
  /// Whether this is a stream without an event that is still to be sent.
  [[nodiscard]] bool rests() const { return stage_ == Stage::kStream && !writing_; }
  [[nodiscard]] bool is_late(Instant now) const { return !rests() && deadline_ <= now; }

  /// Closes the connection at once.
  void drop(const std::string& why) {
    if (stage_ == Stage::kRequest) {
      owner_.turned_away(who_, why);
    }
    close();
  }

  /// Sends the changes to a stream. While an earlier event is being sent, only the newest one
  /// waits, so that a page that does not read needs no further memory.
  void push(bool sign_of_life) {
    if (stage_ != Stage::kStream) {
      return;
    }
    if (writing_) {
      waits_ = waits_ || !sign_of_life;
      return;
    }
    std::string event = owner_.changes_since(sign_of_life ? "" : last_id_);
    if (!event.empty()) {
      const std::size_t begin = event.find("id: ") + 4;
      last_id_ = event.substr(begin, event.find('\n') - begin);
      send("", std::move(event));
    }
  }

 private:
  void on_request(const error_code& error) {
    if (stage_ != Stage::kRequest) {
      return;
    }
    if (error) {
      drop("no request: " + error.message());
      return;
    }
    const auto& request = parser_.get();
    const Query query{string_of(request.method_string()),
                      string_of(request.target()),
                      string_of(request[http::field::host]),
                      string_of(request[http::field::origin]),
                      string_of(request[http::field::authorization]),
                      string_of(request[http::field::cookie]),
                      string_of(request["Last-Event-ID"]),
                      string_of(request[http::field::accept])};
    Reply reply = owner_.reply(query, address_);
    if (reply.status == 403 || reply.status == 421) {
      owner_.turned_away(who_, "status " + std::to_string(reply.status));
    }
    stage_ = reply.is_stream ? Stage::kStream : Stage::kAnswer;
    last_id_ = query.last_event_id;
    if (reply.is_stream) {
      watch_for_end();
    }
    waits_ = reply.is_stream;
    std::string head = head_of(reply);
    send(std::move(head), query.method == "HEAD" ? "" : std::move(reply.body));
  }

  void send(std::string head, std::string body) {
    head_ = std::move(head);
    body_ = std::move(body);
    sent_ = 0;
    writing_ = true;
    send_more();
  }

  void send_more() {
    deadline_ = monotonic_now() + owner_.limits().stall_max;
    const std::array<asio::const_buffer, 2> parts = {
        asio::buffer(head_) + sent_, asio::buffer(body_) + (sent_ - std::min(sent_, head_.size()))};
    socket_.async_write_some(parts,
                             [self = shared_from_this()](const error_code& error, std::size_t n) {
                               self->sent(error, n);
                             });
  }

  void sent(const error_code& error, std::size_t count) {
    if (stage_ != Stage::kAnswer && stage_ != Stage::kStream) {
      return;
    }
    sent_ += count;
    if (error) {
      return close();
    }
    if (sent_ < bytes()) {
      return send_more();
    }
    writing_ = false;
    head_ = body_ = std::string();
    if (stage_ == Stage::kStream) {
      if (std::exchange(waits_, false)) {
        push(false);
      }
      return;
    }
    // Closing with unread input would reset the connection, and the end of the answer could be
    // lost.
    stage_ = Stage::kClosing;
    deadline_ = monotonic_now() + kClosingMax;
    error_code ignored;
    socket_.shutdown(tcp::socket::shutdown_send, ignored);
    watch_for_end();
  }

  void watch_for_end() {
    socket_.async_read_some(asio::buffer(rest_),
                            [self = shared_from_this()](const error_code& error, std::size_t) {
                              if (error || self->stage_ == Stage::kClosed) {
                                self->close();
                              } else {
                                self->watch_for_end();
                              }
                            });
  }

  void close() {
    stage_ = Stage::kClosed;
    error_code ignored;
    socket_.close(ignored);
  }

  const std::string who_;
  const std::string address_;
  tcp::socket socket_;
  boost::beast::flat_buffer buffer_;
  http::request_parser<http::empty_body> parser_;
  ConnectionOwner& owner_;
  Stage stage_ = Stage::kRequest;
  Instant deadline_{};  // of the present stage
  std::string head_;
  std::string body_;
  std::size_t sent_ = 0;
  bool writing_ = false;
  bool waits_ = false;  // an event waits until the one before is sent
  std::string last_id_;
  std::array<char, 512> rest_{};
};

class PageServer final : public Server, private ConnectionOwner {
 public:
  explicit PageServer(ServerOptions options)
      : gate_(std::move(options.gate)),
        limits_(options.limits),
        instance_(random_key().substr(0, 16)),
        accept_loop_(io_, std::move(options.listener), rejection_log_,
                     [this](UniqueFd fd) { greet(std::move(fd)); }),
        poll_timer_(io_),
        signals_(io_) {
    for (std::unique_ptr<RunFollower>& run : options.runs) {
      runs_.emplace_back(std::move(run));
    }
    accept_loop_.start();
    poll_later();
  }

  void run(bool until_signal) override {
    if (until_signal) {
      signals_.add(SIGINT);
      signals_.add(SIGTERM);
      signals_.async_wait([this](const error_code& error, int) {
        if (!error) {
          io_.stop();
        }
      });
    }
    io_.run();
  }

  void stop() override { io_.stop(); }

  void finish(Duration most) override {
    asio::post(io_, [this, most] { ends_ = monotonic_now() + most; });
  }

 private:
  Reply reply(const Query& query, const std::string& address) override {
    if (const int status = refusal(gate_, query, address); status != 0) {
      return refusal_reply(status);
    }
    const std::string path(path_of(query.target));
    Reply reply;
    if (path == "/") {
      reply.type = "text/html; charset=utf-8";
      reply.body = kPage;
      return reply;
    }
    if (path == "/session") {
      reply.status = 204;
      reply.headers = "Set-Cookie: " + gate_.cookie_name() + "=" + gate_.key +
                      "; HttpOnly; SameSite=Strict; Path=/\r\n";
      return reply;
    }
    if (path == "/events") {
      const auto viewers = std::count_if(
          connections_.begin(), connections_.end(),
          [](const auto& one) { return one.second->stage() == Connection::Stage::kStream; });
      if (static_cast<std::size_t>(viewers) >= limits_.viewers_max) {
        return refusal_reply(503);
      }
      reply.type = "text/event-stream";
      reply.is_stream = true;
      return reply;
    }
    return path == "/metrics" ? metrics(query.accept) : numbers(path, query.target);
  }

  [[nodiscard]] Reply metrics(const std::string& accept) const {
    std::vector<std::pair<std::string, const RunFold*>> runs;
    for (const ServedRun& run : runs_) {
      runs.emplace_back(run.name(), &run.fold());
    }
    const MetricsFormat format = metrics_format_for(accept);
    Reply reply;
    reply.type = content_type_of(format);
    reply.body = metrics_text(runs, process_metrics(), format);
    return reply;
  }

  Reply numbers(const std::string& path, const std::string& target) {
    std::size_t pending = 0;
    for (const auto& [id, connection] : connections_) {
      pending += connection->bytes();
    }
    if (pending > limits_.answer_bytes_max) {
      return refusal_reply(503);
    }
    const std::uint64_t run = number_in(parameter(target, "run"));
    if (run >= runs_.size()) {
      return refusal_reply(404);
    }
    Reply reply;
    if (path == "/api/state") {
      reply.type = "application/json";
      reply.body = runs_[run].state();
    } else if (path == "/api/series") {
      const bool same = parameter(target, "instance") == instance_;
      reply.type = "application/octet-stream";
      reply.body = runs_[run].series(same ? number_in(parameter(target, "version")) : 0,
                                     number_in(parameter(target, "level")));
    } else if (path == "/api/detail") {
      reply.type = "application/octet-stream";
      reply.body = runs_[run].detail(number_in(parameter(target, "first")),
                                     number_in(parameter(target, "count")));
    } else {
      return refusal_reply(404);
    }
    return reply;
  }

  /// "retry" makes the page connect again soon after the server was restarted.
  std::string changes_since(const std::string& last_id) override {
    std::string id;
    std::string runs;
    for (ServedRun& run : runs_) {
      id += (id.empty() ? "" : ",") + run.position();
      runs += std::string(runs.empty() ? "" : ",") +
              "{\"version\":" + std::to_string(run.version()) +
              ",\"facts\":" + std::to_string(run.facts_version()) + "}";
    }
    if (id == last_id) {
      return {};
    }
    return "retry: 500\nid: " + id + "\ndata: {\"instance\":\"" + instance_ +
           "\",\"now\":" + std::to_string(wall_clock_seconds()) + ",\"runs\":[" + runs + "]}\n\n";
  }

  void turned_away(const std::string& who, const std::string& why) override {
    rejection_log_.turned_away(who, why);
  }

  [[nodiscard]] const ServerLimits& limits() const override { return limits_; }

  void greet(UniqueFd fd) {
    drop_closed();
    if (connections_.size() >= limits_.connections_max) {
      // The oldest connection that is no open page: it waits for a request, or has got an answer.
      const auto oldest = std::find_if(connections_.begin(), connections_.end(), [](auto& one) {
        return one.second->stage() != Connection::Stage::kStream;
      });
      if (oldest == connections_.end()) {
        return;
      }
      oldest->second->drop("too many connections");
      connections_.erase(oldest);
    }
    auto connection =
        std::make_shared<Connection>(io_, std::move(fd), static_cast<ConnectionOwner&>(*this));
    connections_.emplace(next_id_++, connection);
    connection->start();
  }

  /// Reading the files of a very long run takes a while; most of the time is left for answers.
  void poll_later() {
    poll_timer_.expires_after(std::max(limits_.poll_interval, 5 * last_poll_took_));
    poll_timer_.async_wait([this](const error_code&) {
      const Instant now = monotonic_now();
      bool any = false;
      for (ServedRun& run : runs_) {
        any = run.poll() || any;
      }
      last_poll_took_ = monotonic_now() - now;
      const bool sign_of_life = !any && now - last_push_ >= limits_.alive_interval;
      if (any || sign_of_life) {
        last_push_ = now;
      }
      for (auto& [id, connection] : connections_) {
        if (connection->stage() != Connection::Stage::kClosed && connection->is_late(now)) {
          connection->drop("no request in time");
        } else if (any || sign_of_life) {
          connection->push(sign_of_life);
        }
      }
      drop_closed();
      if (any) {
        last_change_ = now;
      }
      if (ends_ && (*ends_ <= now || all_pages_are_current(now))) {
        return io_.stop();
      }
      poll_later();
    });
  }

  /// Whether no page is open, or every open page was notified of the last change and had time to
  /// fetch it.
  [[nodiscard]] bool all_pages_are_current(Instant now) const {
    const bool all_rest = std::all_of(connections_.begin(), connections_.end(),
                                      [](const auto& one) { return one.second->rests(); });
    return connections_.empty() || (all_rest && now - last_change_ >= kFetchingMax);
  }

  void drop_closed() {
    std::erase_if(connections_, [](const auto& one) {
      return one.second->stage() == Connection::Stage::kClosed;
    });
  }

  Gate gate_;
  ServerLimits limits_;
  std::string instance_;  // versions of another instance are not comparable
  std::vector<ServedRun> runs_;
  asio::io_context io_{1};
  RejectionLog rejection_log_{"dashboard"};
  AcceptLoop accept_loop_;
  asio::steady_timer poll_timer_;
  asio::signal_set signals_;
  std::map<std::uint64_t, std::shared_ptr<Connection>> connections_;  // by age
  std::uint64_t next_id_ = 0;
  Instant last_push_{};
  Instant last_change_{};
  std::optional<Instant> ends_;
  Duration last_poll_took_{};
};

}  // namespace

std::unique_ptr<Server> Server::make(ServerOptions options) {
  return std::make_unique<PageServer>(std::move(options));
}

}  // namespace mayfly::observe
