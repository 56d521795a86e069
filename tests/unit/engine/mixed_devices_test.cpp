// Which jobs accept workers with different devices, and the error of a worker that is refused.

#include <gtest/gtest.h>

#include "engine/membership/worker_join.hpp"
#include "engine/network/device.hpp"

namespace mayfly::engine {
namespace {

Job job_with(Wire wire) {
  Job job;
  job.wire = wire;
  return job;
}

TEST(MixedDevices, OnlyWhereNobodyComparesWhatDevicesCompute) {
  for (const Wire exact : {Wire::kInt32, Wire::kInt16}) {
    EXPECT_FALSE(takes_any_device(job_with(exact)));
  }
  for (const Wire rounded : {Wire::kFp32, Wire::kBf16}) {
    EXPECT_TRUE(takes_any_device(job_with(rounded)));
    Job audited = job_with(rounded);
    audited.config.audit_every = 100;
    EXPECT_FALSE(takes_any_device(audited));
    Job with_servers = job_with(rounded);
    with_servers.config.sync = "bsp";
    EXPECT_FALSE(takes_any_device(with_servers));
  }
}

TEST(MixedDevices, WhoIsRefusedIsToldWhereAndWhatToDo) {
  JobConfig config;
  config.coordinator = "10.0.0.1:7000";
  const Error other{Errc::kRefused, "device: the job has cpu, this worker has cuda, sm_90"};
  const Error told = with_advice(config, other);
  EXPECT_EQ(told.code, Errc::kRefused);
  EXPECT_TRUE(told.detail.starts_with(other.detail)) << told.detail;
  for (const char* const words : {"10.0.0.1:7000", "--reduction fp32"}) {
    EXPECT_NE(told.detail.find(words), std::string::npos) << told.detail;
  }
  EXPECT_EQ(told.detail.find('\n'), std::string::npos);
  for (const Error& as_it_is : {Error{Errc::kRefused, "model: the job has resnet20"},
                                Error{Errc::kPeerLost, "device: gone"}}) {
    EXPECT_EQ(with_advice(config, as_it_is).detail, as_it_is.detail);
  }
}

}  // namespace
}  // namespace mayfly::engine
