#include "tests/integration/cloud_net/fake_cloud.hpp"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <boost/json.hpp>

#include "base/check.hpp"
#include "cloud_hooks/http/http_client.hpp"

namespace mayfly::cloud_hooks {

FakeCloud& FakeCloud::get() {
  static FakeCloud cloud;
  return cloud;
}

FakeCloud::FakeCloud() {
  std::array<int, 2> in{};
  std::array<int, 2> out{};
  ENSURE(pipe2(in.data(), O_CLOEXEC) == 0 && pipe2(out.data(), O_CLOEXEC) == 0, "descriptors left");
  pid_ = fork();
  if (pid_ == 0) {
    dup2(in[0], STDIN_FILENO);
    dup2(out[1], STDOUT_FILENO);
    execl(PYTHON_PROGRAM, PYTHON_PROGRAM, FAKE_CLOUD_PROGRAM, nullptr);
    _exit(127);
  }
  close(in[0]);
  close(out[1]);
  input_ = in[1];
  char c = 0;
  while (read(out[0], &c, 1) == 1 && c != '\n') {
    addresses_ += c;
  }
  close(out[0]);
  ENSURE(addresses_.starts_with("{"), "the fake cloud starts; it needs python3 and openssl");
}

FakeCloud::~FakeCloud() {
  close(input_);
  waitpid(pid_, nullptr, 0);
}

std::string FakeCloud::operator[](std::string_view name) const {
  const boost::json::value parsed = boost::json::parse(addresses_);
  return std::string(parsed.as_object().at(name).as_string());
}

std::string FakeCloud::control(const std::string& name, const std::string& json) {
  HttpClient client;
  const Result<HttpResponse> answer =
      client.send({"POST", parse_url((*this)["control"] + "/" + name).value(), {}, json}, {});
  ENSURE(answer.ok() && answer.value().status == 200, "the control answers");
  return answer.value().body;
}

int FakeCloud::requests(std::string_view service, std::string_view operation) {
  int count = 0;
  const boost::json::value all = boost::json::parse(control("requests"));
  for (const boost::json::value& request : all.as_array()) {
    const boost::json::object& fields = request.as_object();
    const bool counts = fields.at("service").as_string() == service &&
                        (operation == "*" || fields.at("operation").as_string() == operation);
    count += counts ? static_cast<int>(fields.at("times").as_int64()) : 0;
  }
  return count;
}

}  // namespace mayfly::cloud_hooks
