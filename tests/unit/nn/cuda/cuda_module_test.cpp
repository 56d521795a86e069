// libmayfly_cuda.so as the program loads it, on machines with and without a GPU.

#include <dlfcn.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <memory>
#include <string>
#include <vector>

#include "base/module_file.hpp"
#include "nn/cuda/cuda_module.hpp"
#include "tests/unit/base/loaded_libraries.hpp"

namespace mayfly::nn::cuda {
namespace {

using mayfly::test_support::is_loaded;

const CudaModule* load() {
  void* const library = ::dlopen(CUDA_MODULE, RTLD_NOW | RTLD_LOCAL);
  EXPECT_NE(library, nullptr) << ::dlerror();
  return reinterpret_cast<CudaModuleFunction>(::dlsym(library, kCudaModuleSymbol))();
}

TEST(CudaModule, LoadsWithoutADriverAndLinksNone) {
  const CudaModule* const module = load();
  EXPECT_STREQ(module->build, module_build());
  EXPECT_TRUE(is_loaded("libcudnn.so"));
  EXPECT_FALSE(is_loaded("libcuda.so"));
  EXPECT_FALSE(is_loaded("libcudart.so")) << "the runtime is linked statically";
}

TEST(CudaModule, SaysInOneLineWhatIsMissing) {
  const CudaModule* const module = load();
  const Result<std::vector<std::string>> identity = module->probe(kAnyDevice);
  if (identity.ok()) {
    return;  // there is a GPU
  }
  EXPECT_EQ(identity.error().code, Errc::kUnsupported);
  EXPECT_EQ(identity.error().detail.find('\n'), std::string::npos);
  if (!std::filesystem::exists("/proc/driver/nvidia/version")) {
    EXPECT_NE(identity.error().detail.find("no NVIDIA driver"), std::string::npos)
        << identity.error().detail;
  }
  const Model model = make_usual_model("resnet20").value();
  const Result<std::unique_ptr<DeviceEngine>> made = module->make(model, {.microbatch = 8});
  ASSERT_FALSE(made.ok());
  EXPECT_EQ(made.error().detail, identity.error().detail);
}

}  // namespace
}  // namespace mayfly::nn::cuda
