#include "collectives/nccl/nccl_transport.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <functional>
#include <string>

namespace mayfly::collectives {
namespace {

using testing::AllOf;
using testing::HasSubstr;

std::string complaint(const std::function<void(NcclFacts&)>& spoil) {
  NcclFacts facts{.gpu = {.driver_cuda = 13000,
                          .built_cuda = 13000,
                          .devices = 1,
                          .device_error = "",
                          .capability = 90,
                          .name = "NVIDIA H200",
                          .uuid = "1a"},
                  .built_nccl = 22809,
                  .found_nccl = 22809,
                  .blocking_forced = false};
  spoil(facts);
  const Result<void> verdict = judge(facts);
  if (verdict.ok()) {
    return "";
  }
  EXPECT_EQ(verdict.error().code, Errc::kUnsupported);
  EXPECT_EQ(verdict.error().detail.find('\n'), std::string::npos);
  return verdict.error().detail;
}

TEST(NcclFacts, AFitMachineIsFit) {
  EXPECT_EQ(complaint([](NcclFacts&) {}), "");
  EXPECT_EQ(complaint([](NcclFacts& f) { f.found_nccl = 23001; }), "");
  EXPECT_EQ(complaint([](NcclFacts& f) { f.found_nccl = 22803; }), "");
}

TEST(NcclFacts, EachLackIsOneLineThatSaysWhatToDo) {
  EXPECT_THAT(complaint([](NcclFacts& f) { f.found_nccl = 22703; }),
              AllOf(HasSubstr("2.27.3"), HasSubstr("2.28.0")));
  EXPECT_THAT(complaint([](NcclFacts& f) { f.blocking_forced = true; }),
              HasSubstr("NCCL_COMM_BLOCKING"));
}

TEST(NcclFacts, TheGpuIsJudgedFirst) {
  EXPECT_THAT(complaint([](NcclFacts& f) {
                f.gpu.driver_cuda = 0;
                f.found_nccl = 0;
              }),
              HasSubstr("no NVIDIA driver"));
}

}  // namespace
}  // namespace mayfly::collectives
