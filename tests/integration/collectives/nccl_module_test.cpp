// libmayfly_nccl.so as the program loads it, on machines with and without a GPU.

#include <dlfcn.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <memory>
#include <string>

#include "collectives/transport_module.hpp"
#include "tests/unit/base/loaded_libraries.hpp"

namespace mayfly::collectives {
namespace {

using mayfly::test_support::is_loaded;

const TransportModule* load() {
  void* const library = ::dlopen(NCCL_MODULE, RTLD_NOW | RTLD_LOCAL);
  EXPECT_NE(library, nullptr) << ::dlerror();
  const auto function =
      reinterpret_cast<TransportModuleFunction>(::dlsym(library, kTransportModuleSymbol));
  return function();
}

bool has_driver() {
  return std::filesystem::exists("/proc/driver/nvidia/version");
}

TEST(NcclModule, LoadsWithoutADriverAndLinksNone) {
  const TransportModule* const module = load();
  EXPECT_STREQ(module->build, transport_module_build());
  EXPECT_TRUE(is_loaded("libnccl.so"));
  EXPECT_FALSE(is_loaded("libcuda.so"));
  EXPECT_FALSE(is_loaded("libcudart.so")) << "the runtime is linked statically";
}

TEST(NcclModule, SaysInOneLineWhatIsMissing) {
  const TransportModule* const module = load();
  const Result<void> fit = module->probe();
  if (fit.ok()) {
    return;  // there is a GPU, for which tests/gpu has the tests
  }
  EXPECT_EQ(fit.error().code, Errc::kUnsupported);
  EXPECT_EQ(fit.error().detail.find('\n'), std::string::npos);
  if (!has_driver()) {
    EXPECT_NE(fit.error().detail.find("no NVIDIA driver"), std::string::npos) << fit.error().detail;
  }
  const Result<std::unique_ptr<Transport>> made = module->make({});
  ASSERT_FALSE(made.ok());
  EXPECT_EQ(made.error().code, Errc::kUnsupported);
  EXPECT_EQ(made.error().detail, fit.error().detail);
}

}  // namespace
}  // namespace mayfly::collectives
