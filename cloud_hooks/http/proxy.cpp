#include "cloud_hooks/http/proxy.hpp"

#include <algorithm>
#include <cstdlib>

#include "base/try_assign.hpp"
#include "cloud_hooks/http/http_sender.hpp"

namespace mayfly::cloud_hooks {
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
