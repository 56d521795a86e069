#include "engine/cloud/cloud_provider.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cctype>
#include <cstdlib>
#include <filesystem>
#include <iterator>
#include <map>
#include <optional>
#include <set>
#include <span>
#include <string>
#include <string_view>

#include "base/digest.hpp"
#include "base/file.hpp"
#include "base/parse.hpp"
#include "base/time.hpp"
#include "base/try_assign.hpp"
#include "cloud_hooks/bundle/program_bundle.hpp"
#include "cloud_hooks/core/machine_gpu.hpp"
#include "cloud_hooks/ec2/ec2_provider.hpp"
#include "cloud_hooks/exec/exec_provider.hpp"
#include "cloud_hooks/gce/gce_provider.hpp"
#include "cloud_hooks/http/http_client.hpp"
#include "cloud_hooks/local_provider.hpp"
#include "cloud_hooks/slurm/slurm_provider.hpp"
#include "engine/cloud/hosts.hpp"
#include "engine/config/cloud_offers.hpp"
#include "engine/config/setting_variables.hpp"

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

/// Whether squeue and scancel, as they are called, would not find a job with this option of sbatch:
/// one of another cluster, or of an array, whose number has two parts.
bool hides_job(const std::string& word) {
  constexpr std::array<std::string_view, 4> kBeginnings = {"-M", "--clusters", "-a", "--array"};
  return std::ranges::any_of(
      kBeginnings, [&](std::string_view beginning) { return word.starts_with(beginning); });
}

Made make_slurm(const JobConfig& config, const std::string& label) {
  Result<std::vector<std::string>> words = split_words(config.cloud_sbatch);
  if (!words.ok()) {
    return Error{Errc::kInvalidInput, "cloud_sbatch: " + words.error().detail};
  }
  if (const auto word = std::ranges::find_if(words.value(), hides_job);
      word != words.value().end()) {
    return Error{Errc::kInvalidInput,
                 fmt::format("cloud_sbatch: with {} squeue would not list the workers' jobs "
                             "(SLURM_CLUSTERS in the environment selects another cluster)",
                             *word)};
  }
  cloud_hooks::SlurmProviderOptions options;
  options.job = label;
  options.log_dir = config.cloud_bundle.empty() ? logs_of(config) : "/tmp";  // on the node itself
  options.sbatch_words = std::move(words).value();
  return cloud_hooks::make_slurm_provider(std::move(options));
}

Made make_ssh(const JobConfig& config, const std::string& label,
              const std::shared_ptr<cloud_hooks::SshMemory>& memory) {
  TRY_ASSIGN(cloud_hooks::SshProviderOptions options, ssh_options(config, label));
  options.log_dir = logs_of(config);
  return std::unique_ptr<Provider>(cloud_hooks::make_ssh_provider(std::move(options), memory));
}

Made make_local(const JobConfig& config, std::vector<std::string> argv) {
  cloud_hooks::LocalProviderOptions options;
  options.argv = std::move(argv);
  options.log_dir = logs_of(config);
  options.without = setting_variables();
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
  TRY_ASSIGN(options.proxies, cloud_hooks::ProxyRules::from_environment(variable));
  return std::unique_ptr<cloud_hooks::HttpSender>(
      std::make_unique<cloud_hooks::HttpClient>(std::move(options)));
}

/// Assigns the words KEY=VALUE of cloud_options to the strings that `places` names.
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

/// The offers that `mayfly cloud doctor` checks.
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

/// A subnet is in one zone, so offers of several zones cannot use it.
Result<void> check_zones(const std::vector<cloud_hooks::Offer>& offers, const std::string& subnet) {
  std::set<std::string> zones;
  for (const cloud_hooks::Offer& offer : offers) {
    if (!offer.zone.empty() && !offer.zone.starts_with("subnet-")) {
      zones.insert(offer.zone);
    }
  }
  if (!subnet.empty() && zones.size() > 1) {
    return Error{
        Errc::kInvalidInput,
        fmt::format("cloud_options: subnet {} is in one zone, but the offers name {} and {}: "
                    "write the subnets of your zones as the zones of the offers",
                    subnet, *zones.begin(), *std::next(zones.begin()))};
  }
  return {};
}

/// The state that all provider objects of one job share.
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
  TRY_ASSIGN(options.offers, offers_of(config));
  std::string disk_gb = std::to_string(options.disk_gb);
  std::string external = "yes";
  TRY(take_options(config.cloud_options, {{"project", &options.project},
                                          {"zone", &options.zone},
                                          {"image", &options.image},
                                          {"disk_gb", &disk_gb},
                                          {"network", &options.network},
                                          {"subnetwork", &options.subnetwork},
                                          {"external_address", &external},
                                          {"service_account", &options.service_account},
                                          {"endpoint", &options.endpoint}}));
  const std::optional<std::uint32_t> disk = number_in<std::uint32_t>(disk_gb);
  if (!disk) {
    return Error{Errc::kInvalidInput, "cloud_options: disk_gb '" + disk_gb + "' is not a number"};
  }
  if (external != "yes" && external != "no") {
    return Error{Errc::kInvalidInput, "cloud_options: external_address is yes or no"};
  }
  options.disk_gb = *disk;
  options.external_address = external == "yes";
  TRY_ASSIGN(std::unique_ptr<cloud_hooks::HttpSender> sender, make_sender());
  return cloud_hooks::make_gce_provider(std::move(options),
                                        cloud_hooks::google_token_options(variable),
                                        std::move(sender), unix_seconds, common.token);
}

Made make_ec2(const JobConfig& config, const std::string& label, const Common& common) {
  cloud_hooks::Ec2Options options;
  options.job = label;
  TRY_ASSIGN(const std::vector<cloud_hooks::Offer> offers, offers_of(config));
  options.machine_type = offers.empty() ? "" : offers.front().machine_type;
  std::string group;
  TRY(take_options(config.cloud_options, {{"region", &options.region},
                                          {"image", &options.image},
                                          {"subnet", &options.subnet},
                                          {"security_group", &group},
                                          {"key_name", &options.key_name},
                                          {"instance_profile", &options.instance_profile},
                                          {"endpoint", &options.endpoint}}));
  TRY(check_zones(offers, options.subnet));
  if (!group.empty()) {
    options.security_groups.push_back(group);
  }
  TRY_ASSIGN(std::unique_ptr<cloud_hooks::HttpSender> sender, make_sender());
  return cloud_hooks::make_ec2_provider(
      std::move(options), cloud_hooks::aws_credential_options(variable), std::move(sender),
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

}  // namespace

std::string token_mark(const JobConfig& config) {
  constexpr std::size_t kTokenBytesMax = 4096;
  constexpr std::size_t kDigits = 8;
  const std::string path =
      config.token_file.empty() ? config.run_dir + "/token" : config.token_file;
  const Result<std::string> token = read_text_file(path, kTokenBytesMax);
  if (!token.ok()) {
    return {};
  }
  const std::string_view text = trimmed(token.value());  // as readers of the token file do
  return to_string(digest_of(std::as_bytes(std::span(text)))).substr(0, kDigits);
}

namespace {

using cloud_hooks::Finding;

Finding finding_about_bundle(const std::string& bundle) {
  const Result<bool> has_module = cloud_hooks::has_cuda_module(bundle);
  if (!has_module.ok()) {
    return {false, "bundle " + has_module.error().detail};
  }
  return has_module.value()
             ? Finding{true, "bundle " + bundle + " has the module for device cuda"}
             : Finding{false, "bundle " + bundle +
                                  " has no libmayfly_cuda.so; make it with `mayfly bundle` of a "
                                  "program that was built where CUDA and cuDNN are"};
}

}  // namespace

std::string cloud_label(const JobConfig& config) {
  constexpr std::size_t kCharactersMax = 40;
  // Hosts are shared by jobs of several coordinators, whose run directories may have the same name.
  const bool is_for_hosts = config.cloud_provider == "ssh" && config.cloud_job.empty();
  const std::string digits = is_for_hosts ? token_mark(config) : "";
  const std::string mark = digits.empty() ? "" : "-" + digits;
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
    std::size_t threads) {
  // Local servers are child processes of one object, and Slurm's object knows its own requests.
  const bool is_one = config.cloud_provider == "local" || config.cloud_provider == "slurm";
  const Common common;
  std::vector<std::unique_ptr<Provider>> providers;
  for (std::size_t i = 0; i < (is_one ? 1 : threads); ++i) {
    Made one = make_one(config, label, local_argv, common);
    if (!one.ok()) {
      return std::move(one).error();
    }
    providers.push_back(std::move(one).value());
  }
  return providers;
}

namespace {

/// Whether the backslash at this place inside `quote` (0 = outside of quotes) protects the next
/// character.
bool protects_next(const std::string& text, std::size_t at, char quote) {
  const char next = at + 1 < text.size() ? text[at + 1] : char{0};
  return next != 0 && (quote == 0 || (quote == '"' &&
                                      std::string_view("\"\\$`").find(next) != std::string::npos));
}

}  // namespace

Result<std::vector<std::string>> split_words(const std::string& text) {
  std::vector<std::string> words;
  std::string word;
  bool in_word = false;
  char quote = 0;
  for (std::size_t at = 0; at < text.size(); ++at) {
    const char c = text[at];
    if (c == '\\' && protects_next(text, at, quote)) {
      word += text[++at];
      in_word = true;
    } else if (quote != 0) {
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

std::vector<Finding> examine_gpus(const JobConfig& config) {
  std::vector<Finding> findings;
  const auto offers = parse_offers(config.cloud_offers);
  if (!servers_use_cuda(config) || !offers.ok()) {
    return findings;
  }
  std::set<std::string> seen;
  for (const cloud_hooks::OfferTerms& terms : offers.value()) {
    const std::string& type = terms.offer.machine_type;
    if (!names_cloud_machines(config) || type.empty() || !seen.insert(type).second) {
      continue;
    }
    const std::optional<cloud_hooks::MachineGpu> gpu = cloud_hooks::gpu_of_machine(type);
    findings.push_back(
        {true,
         gpu ? fmt::format("{} has {}, compute capability {}.{}", type, gpu->name,
                           gpu->capability / 10, gpu->capability % 10)
             : fmt::format("the GPU of {} is not known here; its workers will report it", type)});
  }
  if (!config.cloud_bundle.empty()) {
    findings.push_back(finding_about_bundle(config.cloud_bundle));
  }
  return findings;
}

}  // namespace mayfly::engine
