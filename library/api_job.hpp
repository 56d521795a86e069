#pragma once

// The job behind the handle of the C interface, and the conversion of its tasks.

#include <unistd.h>

#include <cstddef>
#include <memory>
#include <optional>
#include <set>
#include <span>
#include <string>
#include <vector>

#include "engine/program/program_worker.hpp"
#include "library/include/mayfly/mayfly.h"

/// The data of a handle. It owns the memory to which the results of mf_next() and mf_loaded()
/// point.
struct mf_job {
  static constexpr const char* kInherited =
      "the job is that of the process from which this one was forked";
  [[nodiscard]] bool is_inherited() const { return process != ::getpid(); }

  const pid_t process = ::getpid();
  std::unique_ptr<mayfly::engine::ProgramWorker> worker;
  std::string error;
  std::string detail;  // the reason of the end
  mayfly::engine::ProgramJob job;
  mayfly::engine::ProgramTensors tensors;
  std::set<std::string> names;               // of parameters and buffers
  mayfly::engine::OptimizerState optimizer;  // set before mf_start()
  bool start_was_tried = false;
  bool started = false;
  std::optional<mayfly::engine::ProgramTask::Kind> current_task;
  mayfly::engine::ProgramComputer::Samples samples;
  std::vector<const float*> gradients;
  std::vector<mf_tensor> loaded;
  const mayfly::engine::LoadedState* loaded_state = nullptr;
  std::vector<std::size_t> parameter_elements;
  std::vector<double> metrics;     // of the present microbatch
  float weight = 1;                // of the present microbatch
  std::vector<double> sums;        // of the present chunk
  std::vector<double> total_sums;  // of the last evaluation that mf_take_evaluation() returned
};

namespace mayfly::library {

/// Converts a task; `out.size` is not changed. The program's thread.
void describe(mf_job& job, const engine::ProgramTask& task, mf_task& out);

/// Writes as much of the text as fits, in UTF-8, and a zero. `out` must have room for the zero.
void put_text(const std::string& text, std::span<char> out);

}  // namespace mayfly::library
