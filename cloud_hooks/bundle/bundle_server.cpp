#include "cloud_hooks/bundle/bundle_server.hpp"

#include <fmt/format.h>
#include <openssl/crypto.h>
#include <pthread.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <boost/asio/io_context.hpp>
#include <boost/asio/ip/tcp.hpp>
#include <boost/asio/steady_timer.hpp>
#include <boost/asio/write.hpp>
#include <boost/beast/core/flat_buffer.hpp>
#include <boost/beast/http.hpp>
#include <cerrno>
#include <map>
#include <optional>
#include <string_view>
#include <thread>
#include <vector>

#include "base/asio/accept_loop.hpp"
#include "base/asio/sockets.hpp"
#include "base/net/accept.hpp"
#include "base/parse.hpp"
#include "cloud_hooks/http/message.hpp"

namespace mayfly::cloud_hooks {
namespace {

struct Part {
  std::uint64_t first = 0;
  std::uint64_t bytes = 0;  // 0: the range has no bytes of the file
};

const char* reason_of(int status) {
  switch (status) {
    case 200: return "OK";
    case 206: return "Partial Content";
    case 403: return "Forbidden";
    case 404: return "Not Found";
    case 405: return "Method Not Allowed";
    case 416: return "Range Not Satisfiable";
    default: return "Service Unavailable";
  }
}

/// A reply without a body of its own; `more`: further header lines, each with its end.
BundleReply bare(int status, const std::string& more = {}) {
  BundleReply reply;
  reply.status = status;
  reply.head = fmt::format("HTTP/1.1 {} {}\r\n{}Content-Length: 0\r\nConnection: close\r\n\r\n",
                           status, reason_of(status), more);
  return reply;
}

bool shows_access(std::string_view authorization, const std::string& access) {
  constexpr std::string_view kScheme = "Bearer ";
  if (!authorization.starts_with(kScheme)) {
    return false;
  }
  authorization.remove_prefix(kScheme.size());
  return authorization.size() == access.size() &&
         CRYPTO_memcmp(authorization.data(), access.data(), access.size()) == 0;
}

/// The range of `size` bytes that a Range header selects; none if the header must be ignored.
std::optional<Part> part_of(std::string_view range, std::uint64_t size) {
  constexpr std::string_view kUnit = "bytes=";
  const std::size_t dash = range.find('-');
  if (!range.starts_with(kUnit) || dash == std::string_view::npos || dash < kUnit.size()) {
    return std::nullopt;
  }
  const std::string_view from = range.substr(kUnit.size(), dash - kUnit.size());
  const std::string_view to = range.substr(dash + 1);
  const std::optional<std::uint64_t> last = number_in<std::uint64_t>(to);
  if (!last && !to.empty()) {
    return std::nullopt;
  }
  if (from.empty()) {  // a number of bytes from the end
    if (!last) {
      return std::nullopt;
    }
    const std::uint64_t bytes = std::min(*last, size);
    return Part{size - bytes, bytes};
  }
  const std::optional<std::uint64_t> first = number_in<std::uint64_t>(from);
  if (!first || (last && *last < *first)) {
    return std::nullopt;
  }
  if (*first >= size) {
    return Part{};
  }
  return Part{*first, std::min(last.value_or(size - 1), size - 1) - *first + 1};
}

namespace asio = boost::asio;
namespace http = boost::beast::http;
using asio::ip::tcp;
using boost::system::error_code;

constexpr std::string_view kFailed = "/failed?";
constexpr std::size_t kHeadBytesMax = 8 * 1024;
constexpr std::size_t kReplyBlockBytes = 64 * 1024;
constexpr Duration kClosingMax = seconds(2);
constexpr auto kSweepInterval = std::chrono::milliseconds(100);

std::string text_of(boost::beast::string_view view) {
  return {view.data(), view.size()};
}

class Session;

/// The functions of the server that a session uses.
class SessionOwner {
 public:
  virtual ~SessionOwner() = default;
  virtual BundleReply reply(const BundleQuery& query) = 0;
  /// Reads bytes of a served file from `at` on, and returns their number; 0 if reading fails.
  virtual std::size_t read(BundleReply::Body body, std::uint64_t at, std::size_t bytes_max,
                           char* into) = 0;
  virtual void turned_away(const Session& session, const std::string& why) = 0;
  [[nodiscard]] virtual const BundleLimits& limits() const = 0;
};

/// One connection: a request, an answer, the end. Shared by the server and by the operations that
/// Asio has in flight, which outlive close().
class Session : public std::enable_shared_from_this<Session> {
 public:
  enum class Stage { kUnauthenticated, kAnswer, kClosing, kClosed };

  Session(asio::io_context& io, UniqueFd fd, SessionOwner& owner)
      : who_(peer_name(fd.get())), socket_(io), buffer_(kHeadBytesMax), owner_(owner) {
    adopt(socket_, std::move(fd));
    parser_.header_limit(kHeadBytesMax);
    parser_.body_limit(kFailureBytesMax);
    deadline_ = monotonic_now() + owner.limits().request_max;
  }

  void start() {
    http::async_read(socket_, buffer_, parser_,
                     [self = shared_from_this()](const error_code& error, std::size_t) {
                       self->on_request(error);
                     });
  }

  /// Closes the connection at once; `why` is logged if it was not authenticated yet.
  void drop(const std::string& why) {
    if (stage_ == Stage::kUnauthenticated) {
      owner_.turned_away(*this, why);
    }
    close();
  }

  [[nodiscard]] Stage stage() const { return stage_; }
  /// Whether the session sends the large file. Its client knows the token, and the download takes a
  /// while.
  [[nodiscard]] bool is_download() const {
    return stage_ == Stage::kAnswer && reply_.body == BundleReply::Body::kBundle;
  }
  [[nodiscard]] Instant deadline() const { return deadline_; }
  [[nodiscard]] const std::string& who() const { return who_; }

 private:
  void on_request(const error_code& error) {
    if (stage_ != Stage::kUnauthenticated) {
      return;
    }
    if (error) {
      drop("no request: " + error.message());
      return;
    }
    const auto& request = parser_.get();
    BundleQuery query{text_of(request.method_string()), text_of(request.target()),
                      text_of(request[http::field::authorization]),
                      text_of(request[http::field::range]), request.body()};
    reply_ = owner_.reply(query);
    if (reply_.status == 403) {
      owner_.turned_away(*this, "it does not have the token");
    }
    stage_ = Stage::kAnswer;
    ends_ = monotonic_now() + owner_.limits().download_max;
    send(asio::buffer(reply_.head));
  }

  void send(asio::const_buffer bytes) {
    deadline_ = std::min(ends_, monotonic_now() + owner_.limits().stall_max);
    asio::async_write(
        socket_, bytes,
        [self = shared_from_this()](const error_code& error, std::size_t) { self->sent(error); });
  }

  void sent(const error_code& error) {
    if (stage_ != Stage::kAnswer) {
      return;
    }
    if (error) {
      close();
    } else if (reply_.body == BundleReply::Body::kNone || sent_ == reply_.bytes) {
      end_output();
    } else {
      send_block();
    }
  }

  void send_block() {
    block_.resize(kReplyBlockBytes);
    const auto wanted =
        static_cast<std::size_t>(std::min<std::uint64_t>(kReplyBlockBytes, reply_.bytes - sent_));
    const std::size_t count = owner_.read(reply_.body, reply_.first + sent_, wanted, block_.data());
    if (count == 0) {
      close();  // the client notices the error because it received fewer bytes than announced
      return;
    }
    sent_ += count;
    send(asio::buffer(block_.data(), count));
  }

  /// Closing with unread input would reset the connection, and the end of the answer could be lost.
  void end_output() {
    stage_ = Stage::kClosing;
    deadline_ = monotonic_now() + kClosingMax;
    block_.clear();
    block_.shrink_to_fit();
    error_code ignored;
    socket_.shutdown(tcp::socket::shutdown_send, ignored);
    read_to_end();
  }

  void read_to_end() {
    socket_.async_read_some(asio::buffer(rest_),
                            [self = shared_from_this()](const error_code& error, std::size_t) {
                              if (error || self->stage_ != Stage::kClosing) {
                                self->close();
                              } else {
                                self->read_to_end();
                              }
                            });
  }

  void close() {
    stage_ = Stage::kClosed;
    error_code ignored;
    socket_.close(ignored);
  }

  const std::string who_;
  tcp::socket socket_;
  boost::beast::flat_buffer buffer_;
  http::request_parser<http::string_body> parser_;
  SessionOwner& owner_;
  Stage stage_ = Stage::kUnauthenticated;
  Instant deadline_{};  // of the present stage
  Instant ends_{};      // of the whole download
  BundleReply reply_;
  std::uint64_t sent_ = 0;
  std::vector<char> block_;
  std::array<char, 512> rest_{};
};

class Server final : public BundleServer, private SessionOwner {
 public:
  explicit Server(BundleServerOptions options)
      : options_(std::move(options)),
        accept_loop_(io_, std::move(options_.listener), rejection_log_,
                     [this](UniqueFd fd) { open_session(std::move(fd)); }),
        sweep_timer_(io_) {
    accept_loop_.start();
    sweep_later();
    thread_ = std::thread([this] {
      ::pthread_setname_np(::pthread_self(), "bundle");
      io_.run();
    });
  }
  ~Server() override {
    io_.stop();
    thread_.join();
  }

 private:
  BundleReply reply(const BundleQuery& query) override {
    const BundleReply reply =
        reply_to(query, options_.access, {options_.start_text.size(), options_.bundle.bytes});
    if (!reply.failed_server.empty() && options_.on_failed) {
      options_.on_failed(reply.failed_server, query.body);
    }
    const bool is_large = reply.body == BundleReply::Body::kBundle;
    return is_large && downloads() >= options_.limits.downloads_max ? busy_reply() : reply;
  }

  std::size_t read(BundleReply::Body body, std::uint64_t at, std::size_t bytes_max,
                   char* into) override {
    if (body == BundleReply::Body::kStart) {
      return options_.start_text.copy(into, bytes_max, at);
    }
    ssize_t count = -1;
    do {
      count = ::pread(options_.bundle.fd.get(), into, bytes_max, static_cast<off_t>(at));
    } while (count < 0 && errno == EINTR);
    return count < 0 ? 0 : static_cast<std::size_t>(count);
  }

  void turned_away(const Session& session, const std::string& why) override {
    rejection_log_.turned_away(session.who(), why);
  }

  [[nodiscard]] const BundleLimits& limits() const override { return options_.limits; }

  void open_session(UniqueFd fd) {
    drop_closed();
    if (sessions_.size() - downloads() >= options_.limits.unauthenticated_max) {
      const auto oldest = std::find_if(sessions_.begin(), sessions_.end(), [](const auto& entry) {
        return !entry.second->is_download();
      });
      oldest->second->drop("too many connections without a request");
    }
    auto session = std::make_shared<Session>(io_, std::move(fd), static_cast<SessionOwner&>(*this));
    sessions_.emplace(next_id_++, session);
    session->start();
  }

  [[nodiscard]] std::size_t downloads() const {
    return static_cast<std::size_t>(
        std::count_if(sessions_.begin(), sessions_.end(),
                      [](const auto& entry) { return entry.second->is_download(); }));
  }

  void sweep_later() {
    sweep_timer_.expires_after(kSweepInterval);
    sweep_timer_.async_wait([this](const error_code&) {
      const Instant now = monotonic_now();
      for (auto& [id, session] : sessions_) {
        if (session->stage() != Session::Stage::kClosed && session->deadline() <= now) {
          session->drop("no request in time");
        }
      }
      drop_closed();
      sweep_later();
    });
  }

  void drop_closed() {
    std::erase_if(sessions_, [](const auto& entry) {
      return entry.second->stage() == Session::Stage::kClosed;
    });
  }

  BundleServerOptions options_;
  asio::io_context io_{1};
  RejectionLog rejection_log_{"bundle port"};
  AcceptLoop accept_loop_;
  asio::steady_timer sweep_timer_;
  std::map<std::uint64_t, std::shared_ptr<Session>> sessions_;  // in the order in which they came
  std::uint64_t next_id_ = 0;
  std::thread thread_;
};

}  // namespace

std::string bundle_access(const std::string& token) {
  return to_hex(sha256("mayfly bundle\n" + token + "\n"));
}

BundleReply reply_to(const BundleQuery& query, const std::string& access,
                     const BundleSizes& sizes) {
  if (!shows_access(query.authorization, access)) {
    return bare(403);
  }
  if (const std::string_view target = query.target; target.starts_with(kFailed)) {
    BundleReply reply = bare(query.method == "POST" ? 200 : 405);
    reply.failed_server = query.method == "POST" ? target.substr(kFailed.size()) : "";
    return reply;
  }
  const bool is_start = query.target == "/start";
  if (!is_start && query.target != "/bundle") {
    return bare(404);
  }
  if (query.method != "GET" && query.method != "HEAD") {
    return bare(405, "Allow: GET, HEAD\r\n");
  }
  const std::uint64_t size = is_start ? sizes.start : sizes.bundle;
  const std::optional<Part> part =
      query.method == "GET" ? part_of(query.range, size) : std::nullopt;
  if (part && part->bytes == 0) {
    return bare(416, fmt::format("Content-Range: bytes */{}\r\n", size));
  }
  BundleReply reply;
  reply.status = part ? 206 : 200;
  reply.body = is_start ? BundleReply::Body::kStart : BundleReply::Body::kBundle;
  reply.first = part ? part->first : 0;
  reply.bytes = part ? part->bytes : size;
  const std::string place = part ? fmt::format("Content-Range: bytes {}-{}/{}\r\n", reply.first,
                                               reply.first + reply.bytes - 1, size)
                                 : std::string();
  reply.head = fmt::format(
      "HTTP/1.1 {} {}\r\nContent-Type: application/octet-stream\r\nAccept-Ranges: bytes\r\n"
      "{}Content-Length: {}\r\nConnection: close\r\n\r\n",
      reply.status, reason_of(reply.status), place, reply.bytes);
  if (query.method == "HEAD") {
    reply.body = BundleReply::Body::kNone;
    reply.bytes = 0;
  }
  return reply;
}

BundleReply busy_reply() {
  return bare(503, "Retry-After: 1\r\n");
}

std::unique_ptr<BundleServer> BundleServer::start(BundleServerOptions options) {
  return std::make_unique<Server>(std::move(options));
}

}  // namespace mayfly::cloud_hooks
