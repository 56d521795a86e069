#include "engine/cloud/cloud_provider.hpp"

#include <cctype>
#include <charconv>
#include <cstdlib>
#include <filesystem>
#include <map>

#include "base/digest.hpp"
#include "base/file.hpp"
#include "base/time.hpp"
#include "base/try_assign.hpp"
#include "cloud_hooks/ec2/ec2_provider.hpp"
#include "cloud_hooks/exec/exec_provider.hpp"
#include "cloud_hooks/gce/gce_provider.hpp"
#include "cloud_hooks/http/http_client.hpp"
#include "cloud_hooks/local_provider.hpp"
#include "cloud_hooks/slurm/slurm_provider.hpp"
#include "engine/cloud/hosts.hpp"
#include "engine/config/cloud_offers.hpp"

namespace mayfly::engine {
namespace {

using cloud_hooks::Provider;
using Made = Result<std::unique_ptr<Provider>>;

std::string logs_of(const JobConfig& config) {
  std::error_code absent;
  const std::string folder = std::filesystem::absolute(config.run_dir, absent).string() + "/logs";
  return config.run_dir.empty() || absent ? std::string() : folder;
}

Made make_exec(const JobConfig& config, const std::string& label) {
  Result<std::vector<std::string>> argv = split_words(config.cloud_command);
  if (!argv.ok()) {
    return Error{Errc::kInvalidInput, "cloud_command: " + argv.error().detail};
  }
  if (argv.value().empty()) {
    return Error{Errc::kInvalidInput, "cloud_provider exec needs cloud_command"};
  }
  cloud_hooks::ExecProviderOptions options;
  options.argv = std::move(argv).value();
  options.job = label;
  return cloud_hooks::make_exec_provider(std::move(options));
}

Made make_slurm(const JobConfig& config, const std::string& label) {
  Result<std::vector<std::string>> words = split_words(config.cloud_sbatch);
  if (!words.ok()) {
    return Error{Errc::kInvalidInput, "cloud_sbatch: " + words.error().detail};
  }
  cloud_hooks::SlurmProviderOptions options;
  options.job = label;
  options.log_dir = config.cloud_bundle.empty() ? logs_of(config) : "/tmp";  // of the node's own
  options.sbatch_words = std::move(words).value();
  return cloud_hooks::make_slurm_provider(std::move(options));
}

Made make_ssh(const JobConfig& config, const std::string& label,
              const std::shared_ptr<cloud_hooks::SshMemory>& memory) {
  Result<cloud_hooks::SshProviderOptions> options = ssh_options(config, label);
  if (!options.ok()) {
    return std::move(options).error();
  }
  options.value().log_dir = logs_of(config);
  return std::unique_ptr<Provider>(
      cloud_hooks::make_ssh_provider(std::move(options).value(), memory));
}

Made make_local(const JobConfig& config, std::vector<std::string> argv) {
  cloud_hooks::LocalProviderOptions options;
  options.argv = std::move(argv);
  options.log_dir = logs_of(config);
  return std::unique_ptr<Provider>(
      std::make_unique<cloud_hooks::LocalProvider>(std::move(options)));
}

std::string variable(const std::string& name) {
  const char* text = std::getenv(name.c_str());
  return text == nullptr ? "" : text;
}

std::int64_t unix_seconds() {
  return static_cast<std::int64_t>(wall_clock_seconds());
}

Result<std::unique_ptr<cloud_hooks::HttpSender>> make_sender() {
  cloud_hooks::HttpClientOptions options;
  Result<cloud_hooks::ProxyRules> proxies = cloud_hooks::ProxyRules::from_environment(variable);
  if (!proxies.ok()) {
    return proxies.error();
  }
  options.proxies = std::move(proxies).value();
  return std::unique_ptr<cloud_hooks::HttpSender>(
      std::make_unique<cloud_hooks::HttpClient>(std::move(options)));
}

/// The words KEY=VALUE of cloud_options, put where `places` says.
Result<void> take_options(const std::string& text,
                          const std::map<std::string, std::string*>& places) {
  const Result<std::vector<std::string>> words = split_words(text);
  if (!words.ok()) {
    return Error{Errc::kInvalidInput, "cloud_options: " + words.error().detail};
  }
  std::vector<std::string> known;
  for (const auto& [name, place] : places) {
    known.push_back(name);
  }
  for (const std::string& word : words.value()) {
    const std::size_t equals = word.find('=');
    const std::string name = word.substr(0, equals);
    const auto place = places.find(name);
    if (place == places.end() || equals == std::string::npos) {
      return Error{Errc::kInvalidInput,
                   "cloud_options: unknown word '" + word + "'" + suggestion(name, known)};
    }
    *place->second = word.substr(equals + 1);
  }
  return {};
}

/// What `mayfly cloud doctor` looks at, if it is told.
Result<std::vector<cloud_hooks::Offer>> offers_of(const JobConfig& config) {
  std::vector<cloud_hooks::Offer> offers;
  for (const std::string* setting : {&config.cloud_offers, &config.evaluator_offers}) {
    TRY_ASSIGN(const std::vector<cloud_hooks::OfferTerms> all, parse_offers(*setting));
    for (const cloud_hooks::OfferTerms& terms : all) {
      offers.push_back(terms.offer);
    }
  }
  return offers;
}

/// What the providers of one job know together.
struct Common {
  std::shared_ptr<cloud_hooks::SharedGoogleToken> token =
      std::make_shared<cloud_hooks::SharedGoogleToken>();
  std::shared_ptr<cloud_hooks::SharedAwsRole> role = std::make_shared<cloud_hooks::SharedAwsRole>();
  std::shared_ptr<cloud_hooks::Ec2Promises> promises = std::make_shared<cloud_hooks::Ec2Promises>();
  std::shared_ptr<cloud_hooks::SshMemory> hosts = cloud_hooks::make_ssh_memory();
};

Made make_gce(const JobConfig& config, const std::string& label, const Common& common) {
  cloud_hooks::GceOptions options;
  options.job = label;
  Result<std::vector<cloud_hooks::Offer>> offers = offers_of(config);
  if (!offers.ok()) {
    return offers.error();
  }
  options.offers = std::move(offers).value();
  std::string disk_gb;
  std::string external = "yes";
  const Result<void> taken =
      take_options(config.cloud_options, {{"project", &options.project},
                                          {"zone", &options.zone},
                                          {"image", &options.image},
                                          {"disk_gb", &disk_gb},
                                          {"network", &options.network},
                                          {"subnetwork", &options.subnetwork},
                                          {"external_address", &external},
                                          {"service_account", &options.service_account},
                                          {"endpoint", &options.endpoint}});
  if (!taken.ok()) {
    return taken.error();
  }
  const char* end = disk_gb.data() + disk_gb.size();
  const auto parsed = std::from_chars(disk_gb.data(), end, options.disk_gb);
  if (!disk_gb.empty() && (parsed.ec != std::errc{} || parsed.ptr != end)) {
    return Error{Errc::kInvalidInput, "cloud_options: disk_gb '" + disk_gb + "' is no number"};
  }
  if (external != "yes" && external != "no") {
    return Error{Errc::kInvalidInput, "cloud_options: external_address is yes or no"};
  }
  options.external_address = external == "yes";
  Result<std::unique_ptr<cloud_hooks::HttpSender>> sender = make_sender();
  if (!sender.ok()) {
    return sender.error();
  }
  return cloud_hooks::make_gce_provider(std::move(options),
                                        cloud_hooks::google_token_options(variable),
                                        std::move(sender).value(), unix_seconds, common.token);
}

Made make_ec2(const JobConfig& config, const std::string& label, const Common& common) {
  cloud_hooks::Ec2Options options;
  options.job = label;
  const Result<std::vector<cloud_hooks::Offer>> offers = offers_of(config);
  if (!offers.ok()) {
    return offers.error();
  }
  options.machine_type = offers.value().empty() ? "" : offers.value().front().machine_type;
  std::string group;
  const Result<void> taken =
      take_options(config.cloud_options, {{"region", &options.region},
                                          {"image", &options.image},
                                          {"subnet", &options.subnet},
                                          {"security_group", &group},
                                          {"key_name", &options.key_name},
                                          {"instance_profile", &options.instance_profile},
                                          {"endpoint", &options.endpoint}});
  if (!taken.ok()) {
    return taken.error();
  }
  if (!group.empty()) {
    options.security_groups.push_back(group);
  }
  Result<std::unique_ptr<cloud_hooks::HttpSender>> sender = make_sender();
  if (!sender.ok()) {
    return sender.error();
  }
  return cloud_hooks::make_ec2_provider(
      std::move(options), cloud_hooks::aws_credential_options(variable), std::move(sender).value(),
      unix_seconds, common.promises, common.role);
}

Made make_one(const JobConfig& config, const std::string& label,
              std::vector<std::string> local_argv, const Common& common) {
  if (config.cloud_provider == "local") {
    return make_local(config, std::move(local_argv));
  }
  if (config.cloud_provider == "ssh") {
    return make_ssh(config, label, common.hosts);
  }
  if (config.cloud_provider == "exec") {
    return make_exec(config, label);
  }
  if (config.cloud_provider == "slurm") {
    return make_slurm(config, label);
  }
  if (config.cloud_provider == "gce") {
    return make_gce(config, label, common);
  }
  if (config.cloud_provider == "ec2") {
    return make_ec2(config, label, common);
  }
  return Error{Errc::kInvalidInput, "there is no cloud provider '" + config.cloud_provider + "'"};
}

/// Hosts are shared by jobs of several coordinators, whose run directories may have the same name;
/// a job is known by its token, which stays when it is started again.
std::string token_mark(const JobConfig& config) {
  constexpr std::size_t kTokenBytesMax = 4096;
  constexpr std::size_t kDigits = 8;
  const std::string path =
      config.token_file.empty() ? config.run_dir + "/token" : config.token_file;
  const Result<std::string> token = read_text_file(path, kTokenBytesMax);
  if (!token.ok()) {
    return {};
  }
  const std::string digits = to_string(digest_of(std::as_bytes(std::span(token.value()))));
  return std::string("-").append(digits, 0, kDigits);
}

}  // namespace

std::string cloud_label(const JobConfig& config) {
  constexpr std::size_t kCharactersMax = 40;
  const bool is_for_hosts = config.cloud_provider == "ssh" && config.cloud_job.empty();
  const std::string mark = is_for_hosts ? token_mark(config) : "";
  std::string name = config.cloud_job;
  if (name.empty()) {
    name = std::filesystem::path(config.run_dir).lexically_normal().filename().string();
  }
  std::string label;
  for (const char c : name.substr(0, kCharactersMax - mark.size())) {
    const auto byte = static_cast<unsigned char>(c);
    label += std::isalnum(byte) != 0 ? static_cast<char>(std::tolower(byte)) : '-';
  }
  return label.empty() ? std::string("job").append(mark) : label.append(mark);
}

Made make_cloud_provider(const JobConfig& config, const std::string& label,
                         std::vector<std::string> local_argv) {
  return make_one(config, label, std::move(local_argv), {});
}

Result<std::vector<std::unique_ptr<Provider>>> make_cloud_providers(
    const JobConfig& config, const std::string& label, const std::vector<std::string>& local_argv,
    std::size_t count) {
  const Common common;
  std::vector<std::unique_ptr<Provider>> providers;
  for (std::size_t i = 0; i < count; ++i) {
    Made one = make_one(config, label, local_argv, common);
    if (!one.ok()) {
      return std::move(one).error();
    }
    providers.push_back(std::move(one).value());
  }
  return providers;
}

Result<std::vector<std::string>> split_words(const std::string& text) {
  std::vector<std::string> words;
  std::string word;
  bool in_word = false;
  char quote = 0;
  for (const char c : text) {
    if (quote != 0) {
      quote = c == quote ? char{0} : quote;
      if (quote != 0) {
        word += c;
      }
    } else if (c == '"' || c == '\'') {
      quote = c;
      in_word = true;
    } else if (c != ' ') {
      word += c;
      in_word = true;
    } else if (in_word) {
      words.push_back(std::move(word));
      word.clear();
      in_word = false;
    }
  }
  if (quote != 0) {
    return Error{Errc::kInvalidInput, "a quote is not closed"};
  }
  if (in_word) {
    words.push_back(std::move(word));
  }
  return words;
}

}  // namespace mayfly::engine
