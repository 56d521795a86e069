#include "engine/cloud_provider.hpp"

#include <cctype>
#include <filesystem>

#include "cloud_hooks/exec/exec_provider.hpp"
#include "cloud_hooks/local_provider.hpp"
#include "cloud_hooks/slurm/slurm_provider.hpp"

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
  options.log_dir = logs_of(config);
  options.sbatch_words = std::move(words).value();
  return cloud_hooks::make_slurm_provider(std::move(options));
}

Made make_local(const JobConfig& config, std::vector<std::string> argv) {
  cloud_hooks::LocalProviderOptions options;
  options.argv = std::move(argv);
  options.log_dir = logs_of(config);
  return std::unique_ptr<Provider>(
      std::make_unique<cloud_hooks::LocalProvider>(std::move(options)));
}

}  // namespace

std::vector<std::string> cloud_provider_names() {
  return {"local", "exec", "slurm"};
}

std::string cloud_label(const JobConfig& config) {
  constexpr std::size_t kCharactersMax = 40;
  std::string name = config.cloud_job;
  if (name.empty()) {
    name = std::filesystem::path(config.run_dir).lexically_normal().filename().string();
  }
  std::string label;
  for (const char c : name.substr(0, kCharactersMax)) {
    const auto byte = static_cast<unsigned char>(c);
    label += std::isalnum(byte) != 0 ? static_cast<char>(std::tolower(byte)) : '-';
  }
  return label.empty() ? "job" : label;
}

Made make_cloud_provider(const JobConfig& config, const std::string& label,
                         std::vector<std::string> local_argv) {
  if (config.cloud_provider == "local") {
    return make_local(config, std::move(local_argv));
  }
  if (config.cloud_provider == "exec") {
    return make_exec(config, label);
  }
  if (config.cloud_provider == "slurm") {
    return make_slurm(config, label);
  }
  return Error{Errc::kInvalidInput, "there is no cloud provider '" + config.cloud_provider + "'"};
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
