#pragma once

// Writes the results of the GPU tests as one JSON file: the machine, each test with its result,
// time and recorded values.

#include <gtest/gtest.h>

#include <string>
#include <vector>

namespace mayfly::collectives::gpu_test {

/// The description of the machine in the report.
struct MachineFacts {
  std::string build;        ///< of this program
  std::string device;       ///< name of the GPU
  std::string driver;       ///< version of the driver
  std::string driver_cuda;  ///< CUDA that the driver supports
  std::string cuda;         ///< CUDA that was built with
  std::string nccl;         ///< NCCL that was loaded
};
[[nodiscard]] MachineFacts read_machine_facts();

/// Listens to all tests and writes the file after each, so that the file of an interrupted run has
/// the results so far. With an empty path it writes nothing.
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
