#pragma once

// A job behind the handle of the C interface, and its tasks as that interface has them.

#include <cstddef>
#include <memory>
#include <optional>
#include <set>
#include <span>
#include <string>
#include <vector>

#include "engine/program/program_worker.hpp"
#include "library/include/mayfly/mayfly.h"

/// Everything behind the handle. What mf_next() and mf_loaded() point to is here.
struct mf_job {
  std::unique_ptr<mayfly::engine::ProgramWorker> worker;
  std::string error;
  std::string detail;  // of the end
  mayfly::engine::ProgramJob job;
  mayfly::engine::ProgramTensors tensors;
  std::set<std::string> names;               // of parameters and buffers
  mayfly::engine::OptimizerState optimizer;  // before mf_start()
  bool start_was_tried = false;
  bool started = false;
  std::optional<mayfly::engine::ProgramTask::Kind> at_hand;
  mayfly::engine::ProgramComputer::Samples samples;
  std::vector<const float*> gradients;
  std::vector<mf_tensor> loaded;
  const mayfly::engine::LoadedState* loaded_state = nullptr;
  std::vector<std::size_t> parameter_elements;
  std::vector<double> metrics;     // of the microbatch at hand
  float weight = 1;                // the same
  std::vector<double> sums;        // of the chunk at hand
  std::vector<double> total_sums;  // of the evaluation that was taken last
};

namespace mayfly::library {

/// Fills in a task; `out.size` stays. The program's thread.
void describe(mf_job& job, const engine::ProgramTask& task, mf_task& out);

/// As much of the text as there is room for, in UTF-8, and a zero. `out` has room for that.
void put_text(const std::string& text, std::span<char> out);

}  // namespace mayfly::library
