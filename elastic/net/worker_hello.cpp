#include "elastic/net/worker_hello.hpp"

namespace mayfly::elastic {

Hello worker_hello(const MemberClientOptions& options) {
  Hello hello;
  hello.address = options.address;
  hello.server = options.server;
  hello.fingerprint = options.fingerprint;
  return hello;
}

Hello first_hello(const MemberClientOptions& options) {
  Hello hello = worker_hello(options);
  if (options.former) {
    Member(*options.former).introduce(hello);
  }
  return hello;
}

std::string flight_path(const std::string& folder, MemberId self) {
  return folder.empty() ? "" : folder + "/flight-member-" + std::to_string(value(self)) + ".log";
}

}  // namespace mayfly::elastic
