#include "collectives/nccl/device_facts.hpp"

#include <gtest/gtest.h>

#include <functional>
#include <string>

namespace mayfly::collectives {
namespace {

DeviceFacts fit_machine() {
  return {.driver_cuda = 13000,
          .built_cuda = 13000,
          .built_nccl = 22809,
          .found_nccl = 22809,
          .devices = 2,
          .device_error = "",
          .device = 1,
          .capability = 90,
          .blocking_forced = false};
}

std::string complaint(const std::function<void(DeviceFacts&)>& spoil) {
  DeviceFacts facts = fit_machine();
  spoil(facts);
  const Result<void> verdict = judge(facts);
  if (verdict.ok()) {
    return "";
  }
  EXPECT_EQ(verdict.error().code, Errc::kUnsupported);
  EXPECT_EQ(verdict.error().detail.find('\n'), std::string::npos);
  return verdict.error().detail;
}

TEST(DeviceFacts, AFitMachineIsFit) {
  EXPECT_EQ(complaint([](DeviceFacts&) {}), "");
  EXPECT_EQ(complaint([](DeviceFacts& f) { f.driver_cuda = 13020; }), "");
  EXPECT_EQ(complaint([](DeviceFacts& f) { f.built_cuda = 13020; }), "");
  EXPECT_EQ(complaint([](DeviceFacts& f) { f.found_nccl = 23001; }), "");
  EXPECT_EQ(complaint([](DeviceFacts& f) { f.found_nccl = 22803; }), "");
  EXPECT_EQ(complaint([](DeviceFacts& f) { f.capability = 80; }), "");
}

TEST(DeviceFacts, EachLackIsOneLineThatSaysWhatToDo) {
  const auto has = [](const std::string& text, const std::string& part) {
    return text.find(part) != std::string::npos;
  };
  EXPECT_TRUE(has(complaint([](DeviceFacts& f) { f.driver_cuda = 0; }), "no NVIDIA driver"));
  const std::string old_driver = complaint([](DeviceFacts& f) { f.driver_cuda = 12080; });
  EXPECT_TRUE(has(old_driver, "CUDA 12.8")) << old_driver;
  EXPECT_TRUE(has(old_driver, "13.0")) << old_driver;
  EXPECT_TRUE(has(complaint([](DeviceFacts& f) { f.devices = 0; }), "finds no GPU"));
  EXPECT_TRUE(has(complaint([](DeviceFacts& f) { f.device_error = "out of luck"; }), "of luck"));
  EXPECT_TRUE(has(complaint([](DeviceFacts& f) { f.device = 2; }), "no GPU 2"));
  EXPECT_TRUE(has(complaint([](DeviceFacts& f) { f.device = -1; }), "no GPU -1"));
  const std::string old_gpu = complaint([](DeviceFacts& f) { f.capability = 75; });
  EXPECT_TRUE(has(old_gpu, "7.5")) << old_gpu;
  EXPECT_TRUE(has(old_gpu, "8.0")) << old_gpu;
  const std::string old_nccl = complaint([](DeviceFacts& f) { f.found_nccl = 22703; });
  EXPECT_TRUE(has(old_nccl, "2.27.3")) << old_nccl;
  EXPECT_TRUE(has(old_nccl, "2.28.0")) << old_nccl;
  EXPECT_TRUE(
      has(complaint([](DeviceFacts& f) { f.blocking_forced = true; }), "NCCL_COMM_BLOCKING"));
}

TEST(DeviceFacts, TheDriverIsNamedBeforeWhatDependsOnIt) {
  const std::string text = complaint([](DeviceFacts& f) {
    f = DeviceFacts();
    f.built_cuda = 13000;
  });
  EXPECT_NE(text.find("no NVIDIA driver"), std::string::npos) << text;
}

}  // namespace
}  // namespace mayfly::collectives
