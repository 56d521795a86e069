#include "tests/integration/cloud_net/provider_sites.hpp"

#include <gtest/gtest.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <boost/json.hpp>
#include <filesystem>
#include <fstream>
#include <map>

#include "base/check.hpp"
#include "base/file.hpp"
#include "cloud_hooks/exec/exec_provider.hpp"
#include "cloud_hooks/local_provider.hpp"
#include "cloud_hooks/slurm/slurm_provider.hpp"
#include "tests/integration/cloud_net/fake_cloud.hpp"
#include "tests/integration/cloud_net/sites.hpp"

namespace mayfly::cloud_hooks {
namespace {

namespace fs = std::filesystem;

/// A folder that is removed with its site.
class SiteFolder {
 public:
  SiteFolder() {
    std::string pattern = (fs::temp_directory_path() / "mayfly-site-XXXXXX").string();
    path_ = ::mkdtemp(pattern.data());
  }
  ~SiteFolder() {
    std::error_code ignored;
    fs::remove_all(path_, ignored);
  }
  SiteFolder(const SiteFolder&) = delete;
  SiteFolder& operator=(const SiteFolder&) = delete;

  [[nodiscard]] std::string operator/(const std::string& name) const { return path_ / name; }
  [[nodiscard]] const fs::path& path() const { return path_; }
  void write(const std::string& name, const std::string& text) const {
    std::ofstream(path_ / name) << text << "\n";
  }

 private:
  fs::path path_;
};

class LocalSite final : public ProviderSite {
 public:
  std::unique_ptr<Provider> provider(const std::string& /*job*/) override {
    LocalProviderOptions options;
    options.argv = {"sleep", "1000"};
    auto made = std::make_unique<LocalProvider>(options);
    all_.push_back(made.get());
    return made;
  }
  [[nodiscard]] Offer offer() const override { return {"process", "", Market::kOnDemand}; }
  std::size_t alive() override {
    std::size_t count = 0;
    for (LocalProvider* provider : all_) {
      for (const ServerStatus& server : provider->poll()) {
        count += server.alive() ? 1 : 0;
      }
    }
    return count;
  }
  void vanish(const std::string& id) override {
    for (LocalProvider* provider : all_) {
      (void)provider->signal(id, SIGKILL).ok();
    }
  }

 private:
  std::vector<LocalProvider*> all_;  // the test owns them, and keeps them as long as this site
};

class ExecSite final : public ProviderSite {
 public:
  ~ExecSite() override {
    for (const auto& [id, pid] : processes()) {
      ::killpg(pid, SIGKILL);
    }
  }
  std::unique_ptr<Provider> provider(const std::string& job) override {
    ExecProviderOptions options;
    options.argv = {PYTHON_PROGRAM, PROCESS_CLOUD_PROGRAM, folder_.path()};
    options.job = job;
    options.count_max = 10;
    return make_exec_provider(std::move(options));
  }
  [[nodiscard]] Offer offer() const override { return {"x", "a", Market::kSpot}; }
  std::size_t alive() override {
    const auto all = processes();
    return static_cast<std::size_t>(std::count_if(
        all.begin(), all.end(), [](const auto& entry) { return runs(entry.second); }));
  }
  [[nodiscard]] bool knows_uptime() const override { return false; }
  void vanish(const std::string& id) override { ::killpg(processes().at(id), SIGKILL); }
  bool lose_next_answer() override {
    folder_.write("lose-answers", "1");
    return true;
  }
  bool refuse(ProviderErrorKind kind) override {
    folder_.write("refuse", to_string(kind));
    return true;
  }

 private:
  static bool runs(int pid) {
    std::ifstream file("/proc/" + std::to_string(pid) + "/stat");
    std::string stat;
    std::getline(file, stat);
    const std::size_t name_end = stat.rfind(')');
    return name_end != std::string::npos && stat.find_first_of("ZX", name_end) != name_end + 2;
  }
  [[nodiscard]] std::map<std::string, int> processes() const {
    std::map<std::string, int> all;
    for (const auto& entry : fs::directory_iterator(folder_.path())) {
      if (entry.path().filename().string().starts_with("server-")) {
        const boost::json::value server =
            boost::json::parse(read_text_file(entry.path(), 10'000).value());
        all[std::string(server.at("id").as_string())] = server.at("pid").to_number<int>();
      }
    }
    return all;
  }

  SiteFolder folder_;
};

/// Imitations of sbatch, squeue and scancel, first in PATH, with a queue in a file.
class SlurmSite final : public ProviderSite {
 public:
  SlurmSite() : old_path_(::getenv("PATH")) {
    ::setenv("PATH", (folder_.path().string() + ":" + old_path_).c_str(), 1);
    program("sbatch", R"(
      [ ! -e "$D/refuse" ] || { cat "$D/refuse" >&2; exit 1; }
      case "$1" in --version) echo slurm 23; exit;; esac
      for w; do case "$w" in --comment=*) c=${w#--comment=};; --partition=*) p=${w#*=};;
        --job-name=*) n=${w#*=};; esac; done
      id=$(($(cat "$D/queue" | wc -l) + 41)); cat >/dev/null
      echo "$n $id|RUNNING|0:05|$p|(null)|None|n1|$c" >> "$D/queue"
      [ ! -e "$D/lose" ] || { rm "$D/lose"; echo "sbatch: error: Socket timed out" >&2; exit 1; }
      echo "$id")");
    program("squeue", R"(
      case "$1" in --version) echo slurm 23; exit;; esac
      for w; do case "$w" in --name=*) n=${w#--name=};; esac; done
      sed -n "s/^$n //p" "$D/queue")");
    program("scancel", R"(
      case "$1" in --version) echo slurm 23; exit;; esac
      grep -q " $1|" "$D/queue" || {
        echo "scancel: error: Kill job error on job id $1: Invalid job id specified" >&2; exit 1; }
      sed -i "s/ $1|[A-Z]*/ $1|CANCELLED/" "$D/queue")");
    program("sinfo", "echo 'spot up, 4 nodes idle, time limit infinite'");
    std::ofstream(folder_ / "queue").close();
  }
  ~SlurmSite() override { ::setenv("PATH", old_path_.c_str(), 1); }

  std::unique_ptr<Provider> provider(const std::string& job) override {
    SlurmProviderOptions options;
    options.job = job;
    return make_slurm_provider(std::move(options));
  }
  [[nodiscard]] Offer offer() const override { return {"", "spot", Market::kSpot}; }
  std::size_t alive() override {
    const std::string queue = read_text_file(folder_ / "queue", 100'000).value();
    std::size_t count = 0;
    for (std::size_t at = queue.find("|RUNNING|"); at != std::string::npos;
         at = queue.find("|RUNNING|", at + 1)) {
      ++count;
    }
    return count;
  }
  void vanish(const std::string& id) override {
    const std::string command =
        "sed -i 's/ " + id + "|[A-Z]*/ " + id + "|NODE_FAIL/' '" + (folder_ / "queue") + "'";
    ENSURE(std::system(command.c_str()) == 0, "the queue is a file");
  }
  bool lose_next_answer() override {
    folder_.write("lose", "");
    return true;
  }
  bool refuse(ProviderErrorKind kind) override {
    const std::map<ProviderErrorKind, const char*> complaints = {
        {ProviderErrorKind::kCapacity,
         "sbatch: error: Requested node configuration is not "
         "available"},
        {ProviderErrorKind::kQuota, "sbatch: error: QOSMaxSubmitJobPerUserLimit"},
        {ProviderErrorKind::kAuth, "sbatch: error: Batch job submission failed: Access denied"},
        {ProviderErrorKind::kRate, "sbatch: error: Socket timed out on send/recv"},
        {ProviderErrorKind::kConfig, "sbatch: error: invalid partition specified: nope"}};
    folder_.write("refuse", complaints.at(kind));
    return true;
  }

 private:
  void program(const std::string& name, const std::string& body) const {
    const std::string path = folder_ / name;
    std::ofstream(path) << "#!/bin/sh\nD='" << folder_.path().string() << "'\n" << body << "\n";
    ::chmod(path.c_str(), 0755);
  }

  SiteFolder folder_;
  std::string old_path_;
};

class CloudSite final : public ProviderSite {
 public:
  explicit CloudSite(const Site& site) : site_(site) { cloud_.reset(); }
  ~CloudSite() override { cloud_.reset(); }

  std::unique_ptr<Provider> provider(const std::string& job) override {
    SiteOptions options;
    options.job = job;
    return site_.provider(options);
  }
  [[nodiscard]] Offer offer() const override {
    return {site_.machine_type, "zone-b", Market::kSpot};
  }
  std::size_t alive() override {
    const boost::json::value all = boost::json::parse(cloud_.control("machines"));
    return static_cast<std::size_t>(std::count_if(
        all.as_array().begin(), all.as_array().end(),
        [](const auto& machine) { return machine.as_object().at("state") != "gone"; }));
  }
  void vanish(const std::string& id) override {
    cloud_.control("vanish", R"({"machine": ")" + id.substr(id.find('/') + 1) + "\"}");
  }
  bool lose_next_answer() override {
    fault(R"("kind": "lose")", 3);  // a request is sent three times at most
    return true;
  }
  bool refuse(ProviderErrorKind kind) override {
    const std::map<ProviderErrorKind, const char*> faults = {
        {ProviderErrorKind::kCapacity, R"("kind": "stock_out")"},
        {ProviderErrorKind::kQuota, R"("kind": "quota")"},
        {ProviderErrorKind::kAuth, R"("kind": "forbidden")"},
        {ProviderErrorKind::kRate, R"("kind": "throttle")"},
        {ProviderErrorKind::kConfig,
         R"("kind": "status", "status": 400, "code": "InvalidParameterValue")"}};
    cloud_.control("clear_faults");
    fault(faults.at(kind), 100);
    return true;
  }

 private:
  void fault(const std::string& rest, int times) {
    cloud_.control("fault", R"({"service": ")" + site_.name + R"(", "operation": ")" + site_.make +
                                R"(", "times": )" + std::to_string(times) + ", " + rest + "}");
  }

  FakeCloud& cloud_ = FakeCloud::get();
  const Site& site_;
};

}  // namespace

const std::vector<std::string>& provider_site_names() {
  static const std::vector<std::string> names = {"local", "exec", "slurm", "gce", "ec2"};
  return names;
}

std::unique_ptr<ProviderSite> make_provider_site(const std::string& name) {
  ::signal(SIGPIPE, SIG_IGN);  // as the program's main() does
  if (name == "local") {
    return std::make_unique<LocalSite>();
  }
  if (name == "exec") {
    return std::make_unique<ExecSite>();
  }
  if (name == "slurm") {
    return std::make_unique<SlurmSite>();
  }
  return std::make_unique<CloudSite>(
      *std::find_if(sites().begin(), sites().end(), [&](const Site& s) { return s.name == name; }));
}

}  // namespace mayfly::cloud_hooks
