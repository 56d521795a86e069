#pragma once

// Writes what the GPU tests found as one JSON file: the machine, each test with its result, time
// and recorded values.

#include <gtest/gtest.h>

#include <string>
#include <vector>

namespace mayfly::collectives::gpu_test {

/// What the report says about the machine.
struct MachineFacts {
  std::string build;        ///< of this program
  std::string device;       ///< name of the GPU
  std::string driver;       ///< version of the driver
  std::string driver_cuda;  ///< CUDA that the driver supports
  std::string cuda;         ///< CUDA that was built with
  std::string nccl;         ///< NCCL that was loaded
};
[[nodiscard]] MachineFacts read_machine_facts();

/// Listens to all tests; writes the file after each, so that a run that is cut short has told what
/// it found. An empty path writes nothing.
class ReportWriter final : public testing::EmptyTestEventListener {
 public:
  ReportWriter(std::string path, MachineFacts facts)
      : path_(std::move(path)), facts_(std::move(facts)) {}

  void OnTestEnd(const testing::TestInfo& info) override;

 private:
  void write() const;

  std::string path_;
  MachineFacts facts_;
  std::vector<std::string> tests_;  // as JSON
  int passed_ = 0;
};

}  // namespace mayfly::collectives::gpu_test
