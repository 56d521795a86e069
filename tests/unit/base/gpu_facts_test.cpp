#include "base/gpu_facts.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <functional>
#include <string>

namespace mayfly {
namespace {

using testing::HasSubstr;

GpuFacts fit_machine() {
  return {.driver_cuda = 13000,
          .built_cuda = 13000,
          .devices = 2,
          .device_error = "",
          .device = 1,
          .capability = 90,
          .name = "NVIDIA H200",
          .uuid = "1a"};
}

std::string complaint(const std::function<void(GpuFacts&)>& spoil) {
  GpuFacts facts = fit_machine();
  spoil(facts);
  const Result<void> verdict = judge_gpu(facts);
  if (verdict.ok()) {
    return "";
  }
  EXPECT_EQ(verdict.error().code, Errc::kUnsupported);
  EXPECT_EQ(verdict.error().detail.find('\n'), std::string::npos);
  return verdict.error().detail;
}

TEST(GpuFacts, AFitMachineIsFit) {
  EXPECT_EQ(complaint([](GpuFacts&) {}), "");
  EXPECT_EQ(complaint([](GpuFacts& f) { f.driver_cuda = 13020; }), "");
  EXPECT_EQ(complaint([](GpuFacts& f) { f.built_cuda = 13020; }), "");
  EXPECT_EQ(complaint([](GpuFacts& f) { f.capability = 80; }), "");
}

TEST(GpuFacts, EachLackIsOneLineThatSaysWhatToDo) {
  EXPECT_THAT(complaint([](GpuFacts& f) { f.driver_cuda = 0; }), HasSubstr("no NVIDIA driver"));
  EXPECT_THAT(complaint([](GpuFacts& f) { f.driver_cuda = 12080; }),
              HasSubstr("it supports CUDA 12.8, this build needs 13.0"));
  EXPECT_THAT(complaint([](GpuFacts& f) { f.devices = 0; }), HasSubstr("finds no GPU"));
  EXPECT_THAT(complaint([](GpuFacts& f) { f.device_error = "out of luck"; }),
              HasSubstr("out of luck"));
  EXPECT_THAT(complaint([](GpuFacts& f) { f.device = 2; }),
              HasSubstr("there is no GPU 2: this machine shows 2, counted from 0"));
  EXPECT_THAT(complaint([](GpuFacts& f) { f.device = -1; }), HasSubstr("no GPU -1"));
  EXPECT_THAT(complaint([](GpuFacts& f) { f.capability = 75; }),
              HasSubstr("compute capability 7.5, needed is 8.0"));
}

TEST(GpuFacts, TheDriverIsNamedBeforeWhatDependsOnIt) {
  EXPECT_THAT(complaint([](GpuFacts& f) {
                f = GpuFacts();
                f.built_cuda = 13000;
              }),
              HasSubstr("no NVIDIA driver"));
}

TEST(GpuFacts, VersionsOfLibrariesReadAsTheirMakersWriteThem) {
  EXPECT_EQ(library_version(91900), "9.19.0");
  EXPECT_EQ(library_version(22809), "2.28.9");
}

}  // namespace
}  // namespace mayfly
