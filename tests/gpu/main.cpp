// gpu_tests [--report FILE]: every test that needs a GPU, in one program beside libmayfly_nccl.so.
// Without a GPU it prints "no GPU: ..." in one line and ends with exit code 0.
// gpu_tests --member FOLDER is a member of a group, started by the tests.

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <csignal>
#include <string>
#include <vector>

#include "collectives/transport_module.hpp"
#include "tests/gpu/nccl_member.hpp"
#include "tests/gpu/report.hpp"

namespace {

using namespace mayfly::collectives;  // NOLINT: the main of a test

// Why this machine cannot run the tests, or "".
std::string lack_of_a_gpu() {
  const mayfly::Result<const TransportModule*> module = load_transport_module("nccl");
  if (!module.ok()) {
    return module.error().detail;
  }
  const mayfly::Result<void> fit = module.value()->probe();
  return fit.ok() ? "" : fit.error().detail;
}

int run_tests(const std::string& report) {
  if (const std::string lack = lack_of_a_gpu(); !lack.empty()) {
    fmt::print("no GPU: {}\n", lack);
    return 0;
  }
  const gpu_test::MachineFacts facts = gpu_test::read_machine_facts();
  fmt::print("{}, driver for CUDA {}, NCCL {}\n", facts.device, facts.driver_cuda, facts.nccl);
  testing::UnitTest::GetInstance()->listeners().Append(
      new gpu_test::ReportWriter(report, facts));  // owned by GoogleTest
  return RUN_ALL_TESTS();
}

}  // namespace

int main(int argc, char** argv) {
  std::signal(SIGPIPE, SIG_IGN);  // killed members do not read their commands
  testing::InitGoogleTest(&argc, argv);
  const std::vector<std::string> arguments(argv + 1, argv + argc);
  if (arguments.size() == 2 && arguments[0] == "--member") {
    return gpu_test::run_member(arguments[1]);
  }
  if (arguments.empty()) {
    return run_tests("");
  }
  if (arguments.size() == 2 && arguments[0] == "--report") {
    return run_tests(arguments[1]);
  }
  fmt::print(stderr, "usage: gpu_tests [--report FILE] [--gtest_filter=...]\n");
  return 2;
}
