#pragma once

// HTTP/1.1 over TCP or TLS, with one connection per request unless its limits have keep_open. It is
// designed for rare and important requests: certificates are always verified, every phase has a
// time-out, and the size of answers is limited.

#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "cloud_hooks/http/http_sender.hpp"
#include "cloud_hooks/http/message.hpp"

namespace mayfly::cloud_hooks {

// The choice of a proxy for a request, by the environment variables that curl and Python use. Pure:
// the environment is an argument. Any thread.

struct Proxy {
  std::string host;
  std::uint16_t port = 0;
  std::string authorization;  ///< value of Proxy-Authorization; empty = none. Never printed
};

class ProxyRules {
 public:
  /// Uses no proxy.
  ProxyRules() = default;

  /// https_proxy, HTTPS_PROXY, http_proxy (not HTTP_PROXY, which a CGI program's client can set),
  /// all_proxy, ALL_PROXY, no_proxy, NO_PROXY; `get` returns an empty text for a variable that is
  /// not set. kInvalidInput if a proxy is not of the form [http://][user[:password]@]host:port.
  [[nodiscard]] static Result<ProxyRules> from_environment(
      const std::function<std::string(const std::string&)>& get);

  /// The proxy for a request; nothing = send it directly. no_proxy is a list of names, which
  /// include their subdomains, or "*".
  [[nodiscard]] std::optional<Proxy> proxy_for(const Url& url) const;

 private:
  std::optional<Proxy> for_tls_;
  std::optional<Proxy> for_plain_;
  std::vector<std::string> direct_;
};

/// The value of a variable of this process; empty if it is not set.
[[nodiscard]] std::string environment_variable(const std::string& name);

struct HttpClientOptions {
  ProxyRules proxies;
  /// PEM file of the authorities to trust; empty: the system's, or those that SSL_CERT_FILE and
  /// SSL_CERT_DIR name.
  std::string ca_file;
};

class HttpClient final : public HttpSender {
 public:
  explicit HttpClient(HttpClientOptions options = {});
  ~HttpClient() override;

  [[nodiscard]] Result<HttpResponse> send(const HttpRequest& request,
                                          const HttpLimits& limits) override;
  bool pause(Duration length) override;
  void abort() override;

 private:
  class Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace mayfly::cloud_hooks
