#include "tests/integration/cloud_net/sites.hpp"

#include <algorithm>

#include "cloud_hooks/ec2/ec2_provider.hpp"
#include "cloud_hooks/gce/gce_provider.hpp"
#include "cloud_hooks/http/http_client.hpp"
#include "tests/integration/cloud_net/fake_cloud.hpp"

namespace mayfly::cloud_hooks {
namespace {

class ImpatientClient final : public HttpSender {
 public:
  explicit ImpatientClient(Duration answer_max)
      : answer_max_(answer_max), client_({{}, FakeCloud::get()["ca_file"]}) {}

  Result<HttpResponse> send(const HttpRequest& request, const HttpLimits& limits) override {
    HttpLimits shorter = limits;
    shorter.answer_max = std::min(limits.answer_max, answer_max_);
    shorter.body_bytes_max = std::min<std::size_t>(limits.body_bytes_max, 1 << 20);
    return client_.send(request, shorter);
  }
  bool pause(Duration) override { return client_.pause(Duration(0)); }
  void abort() override { client_.abort(); }

 private:
  const Duration answer_max_;
  HttpClient client_;
};

std::int64_t epoch_now() {
  return static_cast<std::int64_t>(wall_clock_seconds());
}

std::unique_ptr<Provider> gce(const SiteOptions& site) {
  FakeCloud& cloud = FakeCloud::get();
  GceOptions options;
  options.job = site.job;
  options.project = cloud["project"];
  options.zone = "zone-a";
  options.endpoint = cloud["gce"];
  options.operation_wait_max = seconds(10);
  GoogleTokenOptions tokens;
  tokens.metadata_endpoint = cloud["metadata"];
  if (site.own_credentials) {
    tokens.key_file = cloud["key_file"];
  }
  return make_gce_provider(options, tokens, impatient_client(site.answer_max), epoch_now,
                           site.token)
      .value();
}

std::unique_ptr<Provider> ec2(const SiteOptions& site) {
  FakeCloud& cloud = FakeCloud::get();
  Ec2Options options;
  options.job = site.job;
  options.region = cloud["region"];
  options.image = "ami-1";
  options.machine_type = "small";
  options.security_groups = {"sg-1"};
  options.endpoint = cloud["ec2"];
  AwsCredentialOptions credentials;
  credentials.metadata_endpoint = cloud["metadata"];
  if (site.own_credentials) {
    credentials.fixed = {cloud["access_key"], cloud["secret_key"], ""};
  }
  return make_ec2_provider(options, credentials, impatient_client(site.answer_max), epoch_now,
                           nullptr, site.role)
      .value();
}

}  // namespace

const std::vector<Site>& sites() {
  static const std::vector<Site> all = {{"gce",
                                         "insert",
                                         "get",
                                         "list",
                                         "delete",
                                         "n1-standard-8",
                                         "google_token",
                                         {"ya29.", "PRIVATE KEY"},
                                         gce},
                                        {"ec2",
                                         "RunInstances",
                                         "DescribeInstances",
                                         "DescribeInstances",
                                         "TerminateInstances",
                                         "p3.2xlarge",
                                         "security-credentials",
                                         {"aws/secret", "role/secret", "role-session-token"},
                                         ec2}};
  return all;
}

std::unique_ptr<HttpSender> impatient_client(Duration answer_max) {
  return std::make_unique<ImpatientClient>(answer_max);
}

}  // namespace mayfly::cloud_hooks
