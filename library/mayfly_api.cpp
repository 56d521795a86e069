// The C interface (library/include/mayfly/mayfly.h) over engine/program.

#include <signal.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cmath>
#include <cstring>
#include <exception>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/environment.hpp"
#include "base/text.hpp"
#include "base/try_assign.hpp"
#include "engine/job/job.hpp"
#include "engine/program/program_worker.hpp"
#include "library/api_job.hpp"
#include "library/api_tensors.hpp"
#include "library/include/mayfly/mayfly.h"
#include "library/process_facts.hpp"

using mayfly::Errc;
using mayfly::Error;
using mayfly::Result;
using mayfly::engine::ProgramComputer;
using mayfly::engine::ProgramTask;
using mayfly::engine::ProgramTensor;
using mayfly::engine::ProgramWorker;
using mayfly::library::find_program;
using mayfly::library::tensors_of;

namespace {

// Lower than the limits of a message (elastic/core/messages).
constexpr std::size_t kEqualsMax = 128;
constexpr std::size_t kEqualNameBytesMax = 100;
constexpr std::size_t kEqualValueBytesMax = 1000;

/// Whether there is a handle. Only one may exist, because its worker handles the signals of the
/// process, and the process has one log.
std::atomic<bool> process_has_job = false;

mf_code code_of(const Error& error) {
  switch (error.code) {
    case Errc::kNotFound: return MF_ABSENT;
    case Errc::kInvalidInput:
    case Errc::kUnsupported:
    case Errc::kRefused: return MF_REFUSED;
    default: return MF_FAILED;
  }
}

mf_code fail(mf_job& job, mf_code code, std::string text) {
  job.error = mayfly::printable(std::move(text));
  return code;
}

mf_code answer(mf_job& job, const Result<void>& result) {
  return result.ok() ? MF_OK : fail(job, code_of(result.error()), result.error().detail);
}

/// Runs `body` and converts exceptions to failures.
template <typename Body>
mf_code guarded(mf_job* job, const Body& body) {
  if (job == nullptr) {
    return MF_REFUSED;
  }
  try {
    return job->is_inherited() ? fail(*job, MF_REFUSED, mf_job::kInherited) : body(*job);
  } catch (const std::exception& failure) {
    return fail(*job, MF_FAILED, failure.what());
  }
}

/// Registers parameters or buffers.
Result<void> register_tensors(mf_job& job, const mf_tensor* given, std::size_t count,
                              bool are_buffers) {
  if (job.started) {
    return Error{Errc::kInvalidInput, "tensors are registered before mf_start()"};
  }
  TRY_ASSIGN(std::vector<ProgramTensor> tensors, tensors_of(given, count));
  for (ProgramTensor& tensor : tensors) {
    if (tensor.elements == 0) {
      return Error{Errc::kInvalidInput, "tensor " + tensor.name + " is empty"};
    }
    if (!job.names.insert(tensor.name).second) {
      return Error{Errc::kInvalidInput, "tensor " + tensor.name + " is registered twice"};
    }
    (are_buffers ? job.tensors.buffers : job.tensors.parameters).push_back(std::move(tensor));
  }
  return {};
}

/// Registers the names of metrics or sums.
Result<void> register_names(mf_job& job, const char* const* given, std::size_t count,
                            std::vector<std::string>& names, std::vector<double>& values) {
  if (job.started) {
    return Error{Errc::kInvalidInput, "metrics and sums are registered before mf_start()"};
  }
  TRY_ASSIGN(names, mayfly::library::names_of(given, count));
  values.assign(count, 0.0);
  return {};
}

/// The caller's structure must have all fields that this version writes or reads.
mf_code check_size(mf_job& job, std::size_t given, std::size_t known) {
  return given >= known ? MF_OK
                        : fail(job, MF_REFUSED,
                               "a structure's size is not set, or is that of an older mayfly.h");
}

mf_code expect(mf_job& job, ProgramTask::Kind kind, const char* what) {
  return job.current_task == kind ? MF_OK : fail(job, MF_REFUSED, what);
}

}  // namespace

unsigned mf_abi_version(void) {
  return MF_ABI_VERSION;
}

const char* mf_version(void) {
  return mayfly::engine::kVersion;
}

mf_code mf_open(mf_job** job, char* error, size_t error_bytes) {
  const auto complain = [&](const std::string& text) {
    if (error != nullptr && error_bytes > 0) {
      mayfly::library::put_text(text, {error, error_bytes});
    }
  };
  *job = nullptr;
  if (process_has_job.exchange(true)) {
    complain(
        "this process, or the one that it was forked from, has a job already: close that first, or "
        "start another process for this one");
    return MF_REFUSED;
  }
  ::signal(SIGPIPE, SIG_IGN);  // a lost peer is an error value, not the end of this process
  mf_code code = MF_FAILED;
  try {
    Result<std::unique_ptr<ProgramWorker>> worker = ProgramWorker::open(mayfly::environment());
    if (worker.ok()) {
      auto made = std::make_unique<mf_job>();
      made->worker = std::move(worker).value();
      *job = made.release();
      return MF_OK;
    }
    complain(worker.error().detail);
    code = code_of(worker.error());
  } catch (const std::exception& failure) {
    complain(failure.what());
  }
  process_has_job = false;
  return code;
}

const char* mf_error(const mf_job* job) {
  return job == nullptr ? "there is no job" : job->error.c_str();
}

uint64_t mf_seed(const mf_job* job) {
  return job == nullptr ? 0 : job->worker->settings().seed;
}

mf_code mf_require_equal(mf_job* job, const char* name, const char* value) {
  return guarded(job, [&](mf_job& j) {
    if (j.started) {
      return fail(j, MF_REFUSED,
                  "values to be compared between workers must be named before mf_start()");
    }
    if (j.job.equals.size() >= kEqualsMax || std::strlen(name) > kEqualNameBytesMax ||
        std::strlen(value) > kEqualValueBytesMax) {
      return fail(j, MF_REFUSED,
                  "at most 128 values can be compared between workers, with names of at most 100 "
                  "and values of at most 1000 bytes");
    }
    if (!mayfly::is_utf8(name) || !mayfly::is_utf8(value)) {
      return fail(j, MF_REFUSED, "compared values must be UTF-8: " + mayfly::printable(name));
    }
    const auto known = std::ranges::find(
        j.job.equals, name, [](const auto& each) { return std::string_view(each.first); });
    if (known != j.job.equals.end()) {
      return fail(j, MF_REFUSED,
                  std::string(name) + " is already compared between workers: name each value once");
    }
    j.job.equals.emplace_back(name, value);
    return MF_OK;
  });
}

mf_code mf_register_parameters(mf_job* job, const mf_tensor* tensors, size_t count) {
  return guarded(job,
                 [&](mf_job& j) { return answer(j, register_tensors(j, tensors, count, false)); });
}

mf_code mf_register_buffers(mf_job* job, const mf_tensor* tensors, size_t count) {
  return guarded(job,
                 [&](mf_job& j) { return answer(j, register_tensors(j, tensors, count, true)); });
}

mf_code mf_register_metrics(mf_job* job, const char* const* names, size_t count) {
  return guarded(job, [&](mf_job& j) {
    return answer(j, register_names(j, names, count, j.tensors.metrics, j.metrics));
  });
}

mf_code mf_set_metric(mf_job* job, size_t metric, double value) {
  return guarded(job, [&](mf_job& j) {
    if (metric >= j.metrics.size()) {
      return fail(j, MF_REFUSED, "no such metric was registered");
    }
    j.metrics[metric] = value;
    return MF_OK;
  });
}

mf_code mf_register_sums(mf_job* job, const char* const* names, size_t count) {
  return guarded(job, [&](mf_job& j) {
    return answer(j, register_names(j, names, count, j.job.sums, j.sums));
  });
}

mf_code mf_set_sum(mf_job* job, size_t sum, double value) {
  return guarded(job, [&](mf_job& j) {
    if (sum >= j.sums.size()) {
      return fail(j, MF_REFUSED, "no such sum was registered");
    }
    if (!(std::abs(value) <= ProgramComputer::kSumMax)) {
      return fail(j, MF_REFUSED,
                  "the sum " + j.job.sums[sum] + " of an evaluation must be from -1e9 to 1e9");
    }
    j.sums[sum] = value;
    return MF_OK;
  });
}

mf_code mf_set_weight(mf_job* job, double weight) {
  constexpr double kWeightMax = 1e9;
  return guarded(job, [&](mf_job& j) {
    if (!(weight >= 0 && weight <= kWeightMax)) {
      return fail(j, MF_REFUSED, "the weight of a microbatch must be a number from 0 to 1e9");
    }
    j.weight = static_cast<float>(weight);
    return MF_OK;
  });
}

mf_code mf_set_optimizer_state(mf_job* job, const mf_tensor* tensors, size_t count,
                               const void* blob, size_t blob_bytes, double learning_rate) {
  return guarded(job, [&](mf_job& j) {
    Result<std::vector<ProgramTensor>> given = tensors_of(tensors, count);
    if (!given.ok()) {
      return answer(j, given.error());
    }
    const auto* const first = static_cast<const std::byte*>(blob);
    mayfly::Bytes copy(first, first + blob_bytes);
    if (!j.started) {
      j.optimizer = {std::move(given).value(), std::move(copy), learning_rate};
      return MF_OK;
    }
    if (j.current_task != ProgramTask::Kind::kUpdate &&
        j.current_task != ProgramTask::Kind::kLoad) {
      return fail(j, MF_REFUSED, "the state may be changed only in MF_UPDATE and MF_LOAD");
    }
    return answer(j, j.worker->state().set_optimizer_state(std::move(given).value(),
                                                           std::move(copy), learning_rate));
  });
}

mf_code mf_start(mf_job* job, const mf_options* options) {
  return guarded(job, [&](mf_job& j) {
    if (j.started) {
      return fail(j, MF_REFUSED, "the job has been started already");
    }
    if (check_size(j, options->size, sizeof(mf_options)) != MF_OK) {
      return MF_REFUSED;
    }
    j.job.data_name = options->data_name == nullptr ? "data of its own" : options->data_name;
    if (!mayfly::is_utf8(j.job.data_name)) {
      return fail(j, MF_REFUSED,
                  "the name of the data set must be UTF-8: " + mayfly::printable(j.job.data_name));
    }
    if (std::exchange(j.start_was_tried, true)) {
      return fail(j, MF_REFUSED,
                  "mf_start() has failed for this job, and is called once: close it and open "
                  "another one");
    }
    j.job.train_samples = options->train_samples;
    j.job.test_samples = options->test_samples;
    j.job.test_chunk = options->test_samples == 0 ? 1 : options->test_chunk;
    j.job.steps = options->steps;
    j.job.global_batch = options->global_batch;
    j.job.microbatch = options->microbatch;
    j.job.optimizer_bytes_max = options->optimizer_bytes;
    for (const ProgramTensor& parameter : j.tensors.parameters) {
      j.parameter_elements.push_back(parameter.elements);
    }
    const Result<std::string> program = find_program();
    if (!program.ok()) {
      return fail(j, MF_REFUSED, program.error().detail);
    }
    const Result<void> begun =
        j.worker->start(j.job, j.tensors, std::move(j.optimizer), program.value());
    j.started = begun.ok();
    return answer(j, begun);
  });
}

mf_code mf_next(mf_job* job, mf_task* task, uint32_t timeout_ms) {
  return guarded(job, [&](mf_job& j) {
    if (!j.started) {
      return fail(j, MF_REFUSED, "mf_start() must be called first");
    }
    if (check_size(j, task->size, sizeof(mf_task)) != MF_OK) {
      return MF_REFUSED;
    }
    if (j.current_task == ProgramTask::Kind::kMicrobatch ||
        j.current_task == ProgramTask::Kind::kEvaluate) {
      return fail(j, MF_REFUSED, "the result of the previous task was not passed");
    }
    if (j.current_task == ProgramTask::Kind::kLoad) {
      const Result<void> taken = j.worker->state().was_taken();
      if (!taken.ok()) {
        j.worker->abandon(taken.error().detail);
        return answer(j, taken);
      }
    }
    const auto next = j.worker->next(std::chrono::milliseconds(timeout_ms));
    if (!next) {
      j.current_task.reset();
      return MF_TIMEOUT;
    }
    j.current_task = next->kind;
    mayfly::library::describe(j, *next, *task);
    return MF_OK;
  });
}

mf_code mf_peek(mf_job* job, mf_upcoming* upcoming, size_t max, size_t* count) {
  return guarded(job, [&](mf_job& j) {
    *count = 0;
    if (!j.started) {
      return fail(j, MF_REFUSED, "mf_start() must be called first");
    }
    for (const auto& [step, number] : j.worker->feed().upcoming()) {
      if (*count < max) {
        const ProgramTask task{ProgramTask::Kind::kMicrobatch, step, number};
        upcoming[(*count)++] = {step, number, j.worker->computer().seed_of(task)};
      }
    }
    return MF_OK;
  });
}

mf_code mf_samples(mf_job* job, uint64_t step, uint32_t number, uint64_t* samples,
                   uint64_t* epochs) {
  return guarded(job, [&](mf_job& j) {
    if (!j.started || step == 0 || number >= j.job.global_batch / j.job.microbatch) {
      return fail(j, MF_REFUSED, "the job has no such microbatch");
    }
    const auto found =
        j.worker->computer().samples_of({ProgramTask::Kind::kMicrobatch, step, number});
    std::ranges::copy(found.ids, samples);
    std::ranges::copy(found.epochs, epochs);
    return MF_OK;
  });
}

mf_code mf_add(mf_job* job, const float* const* gradients, double loss, uint32_t correct) {
  return guarded(job, [&](mf_job& j) {
    mf_code code = expect(j, ProgramTask::Kind::kMicrobatch,
                          "a microbatch has one result, and this one has its result already");
    if (code == MF_OK) {
      code = answer(
          j, j.worker->computer().add({std::span(gradients, j.parameter_elements.size()), j.metrics,
                                       static_cast<float>(loss), correct, j.weight}));
    }
    if (code == MF_OK) {
      std::ranges::fill(j.metrics, 0.0);
      j.weight = 1;
      j.current_task.reset();
    }
    return code;
  });
}

mf_code mf_evaluated(mf_job* job, uint64_t correct, double loss_sum) {
  return guarded(job, [&](mf_job& j) {
    const mf_code code = expect(j, ProgramTask::Kind::kEvaluate, "no evaluation was requested");
    if (code == MF_OK) {
      j.worker->computer().evaluated(correct, loss_sum, j.sums);
      std::ranges::fill(j.sums, 0.0);
      j.current_task.reset();
    }
    return code;
  });
}

mf_code mf_take_evaluation(mf_job* job, mf_evaluation* evaluation) {
  return guarded(job, [&](mf_job& j) {
    if (!j.started) {
      return fail(j, MF_REFUSED, "mf_start() must be called first");
    }
    if (check_size(j, evaluation->size, sizeof(mf_evaluation)) != MF_OK) {
      return MF_REFUSED;
    }
    const auto found = j.worker->computer().take_evaluation();
    if (!found) {
      return MF_TIMEOUT;
    }
    j.total_sums = found->sums;
    *evaluation = {evaluation->size, found->step, found->samples, found->correct, found->loss_sum};
    return MF_OK;
  });
}

mf_code mf_total_sums(mf_job* job, double* totals, size_t count) {
  return guarded(job, [&](mf_job& j) {
    if (count != j.total_sums.size()) {
      return fail(j, MF_REFUSED, "no evaluation with this number of sums was returned");
    }
    std::ranges::copy(j.total_sums, totals);
    return MF_OK;
  });
}

mf_code mf_loaded(mf_job* job, mf_loaded_state* state) {
  return guarded(job, [&](mf_job& j) {
    if (check_size(j, state->size, sizeof(mf_loaded_state)) != MF_OK ||
        expect(j, ProgramTask::Kind::kLoad, "no state has been received") != MF_OK) {
      return MF_REFUSED;
    }
    j.loaded.clear();
    for (const mayfly::nn::NamedTensor& tensor : j.loaded_state->tensors) {
      j.loaded.push_back({tensor.name.c_str(), mayfly::library::type_named(tensor.tensor.type),
                          tensor.tensor.shape.data(), tensor.tensor.shape.size(),
                          const_cast<std::byte*>(tensor.tensor.bytes.data())});
    }
    state->tensors = j.loaded.data();
    state->tensor_count = j.loaded.size();
    state->blob = j.loaded_state->blob.data();
    state->blob_bytes = j.loaded_state->blob.size();
    return MF_OK;
  });
}

mf_code mf_leave(mf_job* job, const char* reason) {
  return guarded(job, [&](mf_job& j) {
    j.worker->leave(reason);
    return MF_OK;
  });
}

mf_code mf_stop(mf_job* job) {
  return guarded(job, [&](mf_job& j) {
    return j.started ? answer(j, j.worker->stop())
                     : fail(j, MF_REFUSED, "mf_start() must be called first");
  });
}

mf_code mf_note(mf_job* job, const char* kind, const char* text) {
  constexpr const char* kAllowed =
      "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_";
  constexpr std::size_t kBytesMax = 100;
  return guarded(job, [&](mf_job& j) {
    const std::size_t size = std::strlen(kind);
    if (size == 0 || size > kBytesMax || std::strspn(kind, kAllowed) != size) {
      return fail(j, MF_REFUSED,
                  "the kind of a note must be 1 to 100 letters (a to z), digits and underscores");
    }
    j.worker->note(kind, text);
    return MF_OK;
  });
}

mf_code mf_fail(mf_job* job, const char* why) {
  return guarded(job, [&](mf_job& j) {
    j.worker->abandon(why);
    return MF_OK;
  });
}

void mf_close(mf_job* job) {
  if (job == nullptr || job->is_inherited()) {
    return;
  }
  if (job->started && !job->worker->is_over()) {
    (void)mf_fail(job, "the program has closed its job before its end");
    return;  // the worker's threads use the job until the process ends
  }
  delete job;
  process_has_job = false;
}
