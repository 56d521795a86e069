#include "cloud_hooks/http/http_client.hpp"

#include <fmt/format.h>
#include <netdb.h>
#include <openssl/err.h>
#include <openssl/ssl.h>

#include <algorithm>
#include <atomic>
#include <boost/asio/connect.hpp>
#include <boost/asio/io_context.hpp>
#include <boost/asio/ip/tcp.hpp>
#include <boost/asio/post.hpp>
#include <boost/asio/ssl.hpp>
#include <boost/asio/ssl/impl/src.hpp>  // compiled here alone: BOOST_ASIO_SEPARATE_COMPILATION
#include <boost/beast/core/flat_buffer.hpp>
#include <boost/beast/http.hpp>
#include <condition_variable>
#include <cstdlib>
#include <future>
#include <mutex>
#include <thread>

#include "base/net/addresses.hpp"
#include "base/try_assign.hpp"
#include "cloud_hooks/http/http_sender.hpp"

namespace mayfly::cloud_hooks {
namespace {

namespace asio = boost::asio;
namespace http = boost::beast::http;
using asio::ip::tcp;
using boost::system::error_code;

constexpr std::uint32_t kHeaderBytesMax = 64 * 1024;  // several times what any cloud sends

bool is_clean(std::string_view text) {
  return std::none_of(text.begin(), text.end(), [](char c) {
    return static_cast<unsigned char>(c) < ' ' || static_cast<unsigned char>(c) == 0x7f;
  });
}

bool is_writable(const HttpRequest& request) {
  return is_clean(request.method) && is_clean(request.url.target) && !request.method.empty() &&
         std::all_of(request.headers.begin(), request.headers.end(), [](const auto& header) {
           return !header.first.empty() && is_clean(header.first) && is_clean(header.second);
         });
}

/// The numeric addresses of `host`. kPeerLost if there is none, kDeadline, or kAborted as soon as
/// `aborted` returns true. getaddrinfo() cannot be interrupted, so it runs on a thread that is
/// abandoned if it takes too long.
Result<std::vector<std::string>> look_up(const std::string& host, Instant deadline,
                                         const std::function<bool()>& aborted) {
  using Addresses = Result<std::vector<std::string>>;
  if (is_numeric_address(host)) {
    return std::vector<std::string>{host};
  }
  // Shared with the thread, which may outlive this call.
  const auto promised = std::make_shared<std::promise<Addresses>>();
  std::future<Addresses> answer = promised->get_future();
  std::thread([host, promised] {
    promised->set_value(resolve_host(host, AI_ADDRCONFIG));
  }).detach();
  while (answer.wait_for(milliseconds(20)) != std::future_status::ready) {  // checks for abort()
    if (aborted()) {
      return Error{Errc::kAborted, host + ": the call was cancelled"};
    }
    if (monotonic_now() >= deadline) {
      return Error{Errc::kDeadline, host + ": no answer in time while looking up its name"};
    }
  }
  Addresses addresses = answer.get();
  return addresses.ok() ? std::move(addresses)
                        : Addresses(Error{Errc::kPeerLost, addresses.error().detail});
}

/// The code of an error, which decides the reaction.
Errc code_of(const error_code& error) {
  if (error == asio::error::timed_out) {
    return Errc::kDeadline;
  }
  if (error.category() == asio::error::get_ssl_category()) {
    return ERR_GET_REASON(static_cast<unsigned long>(error.value())) ==
                   SSL_R_CERTIFICATE_VERIFY_FAILED
               ? Errc::kRefused
               : Errc::kPeerLost;
  }
  if (error.category() == http::make_error_code(http::error::bad_version).category()) {
    return error == http::error::end_of_stream || error == http::error::partial_message
               ? Errc::kPeerLost
               : Errc::kCorrupt;
  }
  return Errc::kPeerLost;
}

}  // namespace

class HttpClient::Impl {
 public:
  explicit Impl(HttpClientOptions options) : options_(std::move(options)), socket_(context_) {}

  Result<HttpResponse> send(const HttpRequest& request, const HttpLimits& limits) {
    host_ = request.url.host_header();
    limits_ = limits;
    if (!is_writable(request)) {
      return failure(Errc::kInvalidInput, "a header or the target has control characters in it");
    }
    const std::optional<Proxy> proxy =
        limits.direct ? std::nullopt : options_.proxies.proxy_for(request.url);
    may_keep_ = limits.keep_open && !request.url.tls && !proxy;
    Result<HttpResponse> answer = may_keep_ ? exchange_again(request) : exchange(request, proxy);
    if (!answer.ok() || open_to_.empty()) {
      disconnect();
    }
    if (aborted_) {
      return failure(Errc::kAborted, "the call was cancelled");
    }
    return answer;
  }

  bool pause(Duration length) {
    std::unique_lock lock(mutex_);
    return !pause_ended_.wait_for(lock, length, [this] { return aborted_.load(); });
  }

  void abort() {
    {
      const std::lock_guard lock(mutex_);
      aborted_ = true;
    }
    pause_ended_.notify_all();
    // Handlers run only inside step(), which looks at aborted_ before it begins to wait.
    asio::post(context_, [this] {
      error_code ignored;
      socket_.close(ignored);
    });
  }

 private:
  [[nodiscard]] Error failure(Errc code, std::string_view what) const {
    return Error{code, fmt::format("{}: {}", host_, what)};
  }

  [[nodiscard]] Error failure(const error_code& error, std::string_view phase) const {
    const Errc code = code_of(error);
    return failure(code, code == Errc::kDeadline
                             ? fmt::format("no answer in time while {}", phase)
                             : fmt::format("{} while {}", error.message(), phase));
  }

  /// Runs one asynchronous operation until it is done or the deadline has passed; then the socket
  /// is closed, which ends the operation too.
  template <typename Start>
  error_code step(Instant deadline, Start start) {
    if (aborted_) {
      return asio::error::operation_aborted;
    }
    std::optional<error_code> result;
    start([&result](const error_code& error, auto&&...) { result = error; });
    context_.restart();
    while (!result && monotonic_now() < deadline) {
      context_.run_one_for(deadline - monotonic_now());
    }
    if (result) {
      return *result;
    }
    error_code ignored;
    socket_.close(ignored);
    while (!result) {
      context_.restart();
      context_.run_one();
    }
    return asio::error::timed_out;
  }

  /// TLS 1.2 and newer only: RFC 8996 forbids the older versions.
  bool load_trust() {
    asio::ssl::context tls(asio::ssl::context::tls_client);
    tls.set_options(asio::ssl::context::default_workarounds | asio::ssl::context::no_tlsv1 |
                    asio::ssl::context::no_tlsv1_1);
    tls.set_verify_mode(asio::ssl::verify_peer);
    error_code error;
    if (options_.ca_file.empty()) {
      tls.set_default_verify_paths(error);
    } else {
      tls.load_verify_file(options_.ca_file, error);
    }
    if (!error) {
      tls_ = std::move(tls);
    }
    return !error;
  }

  void disconnect() {
    open_to_.clear();
    error_code ignored;
    socket_.close(ignored);
  }

  /// Whether the connection of the previous request may be used again. It may not if unexpected
  /// bytes are waiting, because they would be taken for the next answer.
  [[nodiscard]] bool is_open_to_host() {
    error_code error;
    return !open_to_.empty() && open_to_ == host_ && socket_.available(error) == 0 && !error;
  }

  Result<HttpResponse> exchange_again(const HttpRequest& request) {
    if (is_open_to_host()) {
      Result<HttpResponse> answer = converse(socket_, request, std::nullopt);
      if (answer.ok() || answer.error().code != Errc::kPeerLost) {
        return answer;
      }  // else the server has closed it meanwhile, which it may do
    }
    return exchange(request, std::nullopt);
  }

  [[nodiscard]] Instant connect_deadline() const { return monotonic_now() + limits_.connect_max; }

  Result<HttpResponse> exchange(const HttpRequest& request, const std::optional<Proxy>& proxy) {
    disconnect();
    TRY(connect(proxy ? proxy->host : request.url.host, proxy ? proxy->port : request.url.port));
    if (!request.url.tls) {
      return converse(socket_, request, proxy);
    }
    if (proxy) {
      TRY(tunnel(request.url, *proxy));
    }
    if (!tls_ && !load_trust()) {
      return failure(Errc::kInvalidInput, "the certificates to trust cannot be read");
    }
    asio::ssl::stream<tcp::socket&> stream(socket_, *tls_);
    stream.set_verify_callback(asio::ssl::host_name_verification(request.url.host));
    // An address is not a server name (RFC 6066); setting one anyway confuses servers.
    error_code not_an_address;
    asio::ip::make_address(request.url.host, not_an_address);
    if (not_an_address) {
      SSL_set_tlsext_host_name(stream.native_handle(), request.url.host.c_str());
    }
    const error_code error = step(connect_deadline(), [&](auto done) {
      stream.async_handshake(asio::ssl::stream_base::client, done);
    });
    if (error) {
      return failure(error, "negotiating TLS");
    }
    return converse(stream, request, std::nullopt);
  }

  /// Tries each address of the host, with an equal share of the time that is left.
  Result<void> connect(const std::string& host, std::uint16_t port) {
    const Result<std::vector<std::string>> addresses =
        look_up(host, connect_deadline(), [this] { return aborted_.load(); });
    if (!addresses.ok()) {
      return addresses.error();
    }
    const Instant deadline = connect_deadline();
    error_code error = asio::error::host_not_found;
    std::size_t left = addresses.value().size();
    for (const std::string& address : addresses.value()) {
      const Instant now = monotonic_now();
      const Duration share = (deadline - now) / static_cast<std::int64_t>(left--);
      const asio::ip::address numeric = asio::ip::make_address(address, error);
      if (error) {
        continue;
      }
      error_code ignored;
      socket_.close(ignored);
      error = step(now + share,
                   [&](auto done) { socket_.async_connect(tcp::endpoint(numeric, port), done); });
      if (!error) {
        socket_.set_option(tcp::no_delay(true), ignored);
        return {};
      }
    }
    return failure(error, "connecting");
  }

  /// Asks the proxy for a connection to the host behind it (RFC 9110, 9.3.6).
  Result<void> tunnel(const Url& url, const Proxy& proxy) {
    const std::string target = fmt::format(
        "{}:{}", url.host.find(':') == std::string::npos ? url.host : "[" + url.host + "]",
        url.port);
    http::request<http::empty_body> ask(http::verb::connect, target, 11);
    ask.set(http::field::host, target);
    if (!proxy.authorization.empty()) {
      ask.set(http::field::proxy_authorization, proxy.authorization);
    }
    error_code error =
        step(connect_deadline(), [&](auto done) { http::async_write(socket_, ask, done); });
    http::response_parser<http::empty_body> parser;
    parser.skip(true);
    parser.header_limit(kHeaderBytesMax);
    boost::beast::flat_buffer buffer(kHeaderBytesMax);
    if (!error) {
      error = step(connect_deadline(),
                   [&](auto done) { http::async_read_header(socket_, buffer, parser, done); });
    }
    if (error) {
      return failure(error, "connecting through the proxy");
    }
    if (const unsigned status = parser.get().result_int(); status / 100 != 2) {
      return failure(Errc::kRefused, fmt::format("the proxy answered {}", status));
    }
    return {};
  }

  template <typename Stream>
  Result<HttpResponse> converse(Stream& stream, const HttpRequest& request,
                                const std::optional<Proxy>& proxy) {
    http::request<http::string_body> message;
    message.method_string(request.method);
    message.version(11);
    message.target(proxy ? request.url.text() : request.url.target);
    message.set(http::field::host, host_);
    for (const auto& [name, value] : request.headers) {
      message.insert(name, value);
    }
    if (proxy && !proxy->authorization.empty()) {
      message.set(http::field::proxy_authorization, proxy->authorization);
    }
    message.keep_alive(may_keep_);
    message.body() = request.body;
    message.prepare_payload();
    error_code error =
        step(connect_deadline(), [&](auto done) { http::async_write(stream, message, done); });
    if (error) {
      return failure(error, "sending the request");
    }
    http::response_parser<http::string_body> parser;
    parser.header_limit(kHeaderBytesMax);
    parser.body_limit(limits_.body_bytes_max);
    boost::beast::flat_buffer buffer(std::size_t{2} * kHeaderBytesMax);
    error = step(monotonic_now() + limits_.answer_max,
                 [&](auto done) { http::async_read(stream, buffer, parser, done); });
    if (error) {
      return failure(error, "reading the answer");
    }
    const bool stays_open = may_keep_ && parser.get().keep_alive() && buffer.size() == 0;
    open_to_ = stays_open ? host_ : std::string();
    HttpResponse answer;
    answer.status = static_cast<int>(parser.get().result_int());
    for (const auto& field : parser.get()) {
      answer.headers.emplace_back(std::string(field.name_string()), std::string(field.value()));
    }
    answer.body = std::move(parser.get().body());
    return answer;
  }

  const HttpClientOptions options_;
  std::string host_;       // of the request in progress, for errors
  HttpLimits limits_;      // of the request in progress
  bool may_keep_ = false;  // of the request in progress: its connection may stay open
  std::string open_to_;    // where the socket is connected to between requests; empty = nowhere
  asio::io_context context_;
  std::optional<asio::ssl::context> tls_;  // made on first use: loading certificates takes long
  tcp::socket socket_;
  std::mutex mutex_;
  std::condition_variable pause_ended_;
  std::atomic<bool> aborted_ = false;  // written under mutex_
};

HttpClient::HttpClient(HttpClientOptions options)
    : impl_(std::make_unique<Impl>(std::move(options))) {}

HttpClient::~HttpClient() = default;

Result<HttpResponse> HttpClient::send(const HttpRequest& request, const HttpLimits& limits) {
  return impl_->send(request, limits);
}

bool HttpClient::pause(Duration length) {
  return impl_->pause(length);
}

void HttpClient::abort() {
  impl_->abort();
}

namespace {

Result<std::optional<Proxy>> parse_proxy(const std::string& name, std::string_view text) {
  if (text.empty()) {
    return std::optional<Proxy>();
  }
  if (text.starts_with("http://")) {
    text.remove_prefix(7);
  }
  const bool other_scheme = text.find("://") != std::string_view::npos;
  Proxy proxy;
  if (const std::size_t at = text.rfind('@'); at != std::string_view::npos) {
    proxy.authorization = "Basic " + base64_encode(percent_decode(text.substr(0, at)));
    text.remove_prefix(at + 1);
  }
  const Result<Url> url = parse_url("http://" + std::string(text));
  if (other_scheme || !url.ok() || url.value().target != "/") {
    return Error{Errc::kInvalidInput,
                 name + " is not of the form [http://][user[:password]@]host:port"};
  }
  proxy.host = url.value().host;
  proxy.port = url.value().port;
  return std::optional(proxy);
}

/// True if `name` is `host` or a domain above it.
bool covers(const std::string& name, const std::string& host) {
  return name == "*" || name == host ||
         (host.size() > name.size() && host.ends_with(name) &&
          host[host.size() - name.size() - 1] == '.');
}

std::vector<std::string> names_in(const std::string& list) {
  std::vector<std::string> names;
  for (std::string& name : words_in(list)) {
    std::transform(name.begin(), name.end(), name.begin(), [](char c) {
      return c >= 'A' && c <= 'Z' ? static_cast<char>(c - 'A' + 'a') : c;
    });
    name.erase(0, name.find_first_not_of('.'));  // ".example.com" means example.com as well
    if (!name.empty()) {
      names.push_back(std::move(name));
    }
  }
  return names;
}

}  // namespace

Result<ProxyRules> ProxyRules::from_environment(
    const std::function<std::string(const std::string&)>& get) {
  const auto first_set = [&](std::initializer_list<const char*> names) {
    for (const char* name : names) {
      if (std::string text = get(name); !text.empty()) {
        return std::pair<std::string, std::string>(name, std::move(text));
      }
    }
    return std::pair<std::string, std::string>();
  };
  ProxyRules rules;
  for (const auto& [setting, into] :
       {std::pair(first_set({"https_proxy", "HTTPS_PROXY", "all_proxy", "ALL_PROXY"}),
                  &rules.for_tls_),
        std::pair(first_set({"http_proxy", "all_proxy", "ALL_PROXY"}), &rules.for_plain_)}) {
    TRY_ASSIGN(*into, parse_proxy(setting.first, setting.second));
  }
  rules.direct_ = names_in(first_set({"no_proxy", "NO_PROXY"}).second);
  return rules;
}

std::optional<Proxy> ProxyRules::proxy_for(const Url& url) const {
  const bool direct = std::any_of(direct_.begin(), direct_.end(), [&](const std::string& name) {
    return covers(name, url.host) || name == url.host_header();
  });
  return direct ? std::nullopt : url.tls ? for_tls_ : for_plain_;
}

std::string environment_variable(const std::string& name) {
  const char* const value = std::getenv(name.c_str());
  return value == nullptr ? "" : value;
}

}  // namespace mayfly::cloud_hooks
