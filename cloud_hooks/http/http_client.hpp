#pragma once

// HTTP/1.1 over TCP or TLS, with one connection per request unless its limits have keep_open. It is
// designed for rare and important requests: certificates are always verified, every phase has a
// time-out, and the size of answers is limited.

#include <memory>
#include <string>

#include "cloud_hooks/http/http_sender.hpp"
#include "cloud_hooks/http/proxy.hpp"

namespace mayfly::cloud_hooks {

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
