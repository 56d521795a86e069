#include "observe/reply.hpp"

#include <boost/beast/http/status.hpp>
#include <ostream>  // which Boost's status texts need and do not include

#include "observe/page_text.hpp"

namespace mayfly::observe {

namespace http = boost::beast::http;

std::string head_of(const Reply& reply) {
  const auto words = http::obsolete_reason(static_cast<http::status>(reply.status));
  std::string head = "HTTP/1.1 " + std::to_string(reply.status) + " " +
                     std::string(words.data(), words.size()) + "\r\nConnection: close\r\n" +
                     "Content-Type: " + reply.type + "\r\n" +
                     "Cache-Control: no-store\r\nX-Content-Type-Options: nosniff\r\n"
                     "Referrer-Policy: no-referrer\r\nCross-Origin-Resource-Policy: same-origin\r\n"
                     "Content-Security-Policy: default-src 'none'; script-src " +
                     std::string(kScriptHash) + "; style-src " + std::string(kStyleHash) +
                     "; connect-src 'self'; img-src data:; frame-ancestors 'none'; "
                     "base-uri 'none'; form-action 'none'\r\n" +
                     reply.headers;
  if (!reply.is_stream) {
    head += "Content-Length: " + std::to_string(reply.body.size()) + "\r\n";
  }
  return head + "\r\n";
}

Reply refusal_reply(int status) {
  Reply reply;
  reply.status = status;
  reply.body = status == 421   ? "this page is not served under that host name\n"
               : status == 403 ? "the address that `mayfly dashboard` prints has the key\n"
               : status == 404 ? "there is no such page\n"
               : status == 405 ? "only GET and HEAD are allowed\n"
                               : "too many viewers; try again\n";
  if (status == 503) {
    reply.headers = "Retry-After: 1\r\n";
  }
  return reply;
}

}  // namespace mayfly::observe
