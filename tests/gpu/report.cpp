#include "tests/gpu/report.hpp"

#include <cuda_runtime_api.h>
#include <dlfcn.h>
#include <fmt/format.h>

#include <cctype>
#include <ctime>
#include <fstream>

#include "base/file.hpp"
#include "collectives/transport_module.hpp"

namespace mayfly::collectives::gpu_test {
namespace {

// A JSON string, with a space in place of each character that is not printable ASCII.
std::string quoted(const std::string& text) {
  std::string out = "\"";
  for (const char c : text) {
    const bool printable = std::isprint(static_cast<unsigned char>(c)) != 0;
    if (c == '"' || c == '\\') {
      out += '\\';
    }
    out += printable ? c : ' ';
  }
  return out + '"';
}

std::string field(const char* name, const std::string& value) {
  return fmt::format("{}: {}", quoted(name), quoted(value));
}

std::string cuda_version(int version) {
  return fmt::format("{}.{}", version / 1000, version % 1000 / 10);
}

// The version of NCCL, which the module has loaded; this program is not linked to it.
std::string nccl_version() {
  void* const library = ::dlopen("libnccl.so.2", RTLD_LAZY | RTLD_NOLOAD);
  if (library == nullptr) {
    return "unknown";
  }
  const auto get_version = reinterpret_cast<int (*)(int*)>(::dlsym(library, "ncclGetVersion"));
  int version = 0;
  if (get_version == nullptr || get_version(&version) != 0) {
    return "unknown";
  }
  return fmt::format("{}.{}.{}", version / 10000, version % 10000 / 100, version % 100);
}

std::string driver_version() {
  std::ifstream facts("/proc/driver/nvidia/version");
  std::string line;
  std::getline(facts, line);
  return line.empty() ? "unknown" : line;
}

std::string now_utc() {
  const std::time_t now = std::time(nullptr);
  char text[32];
  std::strftime(text, sizeof text, "%Y-%m-%dT%H:%M:%SZ", std::gmtime(&now));
  return text;
}

std::string failure_text(const testing::TestResult& result) {
  for (int i = 0; i < result.total_part_count(); ++i) {
    const testing::TestPartResult& part = result.GetTestPartResult(i);
    if (part.failed()) {
      return part.message();
    }
  }
  return "";
}

std::string values_of(const testing::TestResult& result) {
  std::string out;
  for (int i = 0; i < result.test_property_count(); ++i) {
    const testing::TestProperty& property = result.GetTestProperty(i);
    out += fmt::format("{}{}: {}", i == 0 ? "" : ", ", quoted(property.key()), property.value());
  }
  return "{" + out + "}";
}

}  // namespace

MachineFacts read_machine_facts() {
  MachineFacts facts;
  cudaDeviceProp properties{};
  int driver_cuda = 0;
  if (cudaGetDeviceProperties(&properties, 0) == cudaSuccess) {
    facts.device = properties.name;
  }
  (void)cudaDriverGetVersion(&driver_cuda);
  facts.build = transport_module_build();
  facts.driver = driver_version();
  facts.driver_cuda = cuda_version(driver_cuda);
  facts.cuda = cuda_version(CUDART_VERSION);
  facts.nccl = nccl_version();
  return facts;
}

void ReportWriter::OnTestEnd(const testing::TestInfo& info) {
  const testing::TestResult& result = *info.result();
  const bool passed = result.Passed();
  tests_.push_back(
      fmt::format("{{{}, {}, \"seconds\": {:.2f}, \"values\": {}{}}}",
                  field("name", fmt::format("{}.{}", info.test_suite_name(), info.name())),
                  field("result", passed ? "passed" : "failed"),
                  static_cast<double>(result.elapsed_time()) / 1e3, values_of(result),
                  passed ? "" : ", " + field("failure", failure_text(result))));
  passed_ += passed ? 1 : 0;
  write();
}

void ReportWriter::write() const {
  if (path_.empty()) {
    return;
  }
  std::string text = fmt::format(
      "{{\n  {},\n  {},\n  {},\n  {},\n  {},\n  {},\n  {},\n  \"planned\": {},\n"
      "  \"passed\": {},\n  \"failed\": {},\n  \"tests\": [\n",
      field("finished", now_utc()), field("build", facts_.build), field("device", facts_.device),
      field("driver", facts_.driver), field("driver_cuda", facts_.driver_cuda),
      field("built_with_cuda", facts_.cuda), field("nccl", facts_.nccl),
      testing::UnitTest::GetInstance()->test_to_run_count(), passed_,
      static_cast<int>(tests_.size()) - passed_);
  for (std::size_t i = 0; i < tests_.size(); ++i) {
    text += "    " + tests_[i] + (i + 1 < tests_.size() ? ",\n" : "\n");
  }
  text += "  ]\n}\n";
  const Result<void> written = write_file_atomic(path_, std::string_view(text));
  if (!written.ok()) {
    fmt::print(stderr, "no report: {}\n", written.error().detail);
  }
}

}  // namespace mayfly::collectives::gpu_test
