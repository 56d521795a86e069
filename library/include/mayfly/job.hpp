// Mayfly for C++20: the loop over steps and microbatches on top of the C interface (mayfly.h). It
// is header only, so that compiler and standard library need not be those of libmayfly.so. It
// throws no exceptions: functions that can fail return whether they have succeeded, and error()
// returns one line about the last failure. One thread.
//
//   mayfly::Job job;
//   job.parameters({{"weight", MF_F32, {10}, weight}});
//   if (!job.start(options)) {
//     return complain(job.error());
//   }
//   while (auto step = job.next_step()) {
//     while (auto microbatch = step->next_microbatch()) {
//       compute(microbatch->samples, gradient);
//       step->add({gradient}, loss);
//     }
//     update(step->gradient(0));  // the mean over the batch, the same bits on all workers
//   }
//
// docs/library.md describes how a program finds its job, the guarantees and their conditions.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <initializer_list>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include <mayfly/mayfly.h>

namespace mayfly {

/// A contiguous tensor in the program's memory; see mf_tensor.
struct Tensor {
  std::string name;
  mf_type type = MF_F32;
  std::vector<std::int64_t> shape;
  void* data = nullptr;
};

/// See mf_options.
struct Options {
  std::string data_name = "data of its own";
  std::uint64_t train_samples = 0;
  std::uint64_t test_samples = 0;  ///< ignored without on_evaluate()
  std::uint32_t test_chunk = 256;
  std::uint64_t steps = 0;
  std::uint32_t global_batch = 0;
  std::uint32_t microbatch = 0;
  std::uint64_t optimizer_bytes = 64 << 10;
};

/// Pointers are valid until the next call of next_microbatch() or next_step().
struct Microbatch {
  std::uint64_t step = 0;
  std::uint32_t number = 0;
  std::uint64_t seed = 0;  ///< the same on every worker
  std::span<const std::uint64_t> samples;
  std::span<const std::uint64_t> epochs;
};

/// The number of correct predictions, the sum of the losses, and the registered further sums, over
/// the samples of a chunk.
struct Evaluation {
  std::uint64_t correct = 0;
  double loss_sum = 0;
  std::vector<double> sums = {};
};

class Job;

/// One step; Job::next_step() returns it.
class Step {
 public:
  /// The number of the step that is computed; a state that is received meanwhile may raise it.
  [[nodiscard]] std::uint64_t number() const;
  /// This worker's next microbatch; after the loss of a worker there may be more. Nothing if all
  /// microbatches of the step are done, if the job has ended, or after a failure.
  [[nodiscard]] std::optional<Microbatch> next_microbatch();
  /// Passes the result of the present microbatch: the gradients of its mean loss, one for each
  /// parameter in their order; null = zeros. `weight`: of loss and gradients in the means, such as
  /// the number of tokens over which the loss is the mean. A refused result ends the loop; error()
  /// returns the reason.
  bool add(std::span<const float* const> gradients, double loss, std::uint32_t correct = 0,
           double weight = 1);
  bool add(std::initializer_list<const float*> gradients, double loss, std::uint32_t correct = 0,
           double weight = 1) {
    return add(std::span(gradients.begin(), gradients.size()), loss, correct, weight);
  }
  /// Whether all microbatches are done and the parameters must be updated. If it is false after the
  /// last microbatch, the job of this process is over.
  [[nodiscard]] bool updates() const;
  // Only if updates():
  /// The mean gradient over the batch, of a parameter by its place; valid until the next step.
  [[nodiscard]] const float* gradient(std::size_t parameter) const;
  /// The mean loss over the batch.
  [[nodiscard]] double loss() const;
  /// True on exactly one worker of the job, which may print results.
  [[nodiscard]] bool speaks() const;

 private:
  friend class Job;
  explicit Step(Job& job) : job_(&job) {}
  Job* job_;
};

class Job {
 public:
  /// Finds the job and asks for its settings; ok() returns whether that has succeeded. A process
  /// can have one job at a time: another one is not ok() until this one has ended and is destroyed.
  Job() : task_{} {
    char text[1000];
    mf_job* job = nullptr;
    code_ = mf_open(&job, text, sizeof text);
    handle_.reset(job);
    error_ = code_ == MF_OK ? "" : text;
    task_.size = sizeof task_;
  }

  [[nodiscard]] bool ok() const { return code_ == MF_OK; }
  [[nodiscard]] mf_code code() const { return code_; }
  [[nodiscard]] const std::string& error() const { return error_; }
  [[nodiscard]] std::uint64_t seed() const { return mf_seed(handle_.get()); }

  // To be called before start(); see the functions of mayfly.h.
  bool require_equal(const std::string& name, const std::string& value) {
    return take(mf_require_equal(handle_.get(), name.c_str(), value.c_str()));
  }
  bool parameters(const std::vector<Tensor>& tensors) {
    parameter_count_ += tensors.size();
    return take(with(tensors, mf_register_parameters));
  }
  bool buffers(const std::vector<Tensor>& tensors) {
    return take(with(tensors, mf_register_buffers));
  }
  bool sums(const std::vector<const char*>& names) {
    sum_count_ = names.size();
    return take(mf_register_sums(handle_.get(), names.data(), names.size()));
  }
  /// Also to be called when tensors or blob have been replaced, between the last microbatch and the
  /// next step.
  bool optimizer_state(const std::vector<Tensor>& tensors, const std::string& blob = {},
                       double learning_rate = 0) {
    return take(with(tensors, [&](mf_job* job, const mf_tensor* all, std::size_t count) {
      return mf_set_optimizer_state(job, all, count, blob.data(), blob.size(), learning_rate);
    }));
  }
  /// Sets the function that loads the optimizer's tensors, in the order in which they were passed
  /// to optimizer_state(), and the blob of a received state; parameters and buffers are already
  /// written.
  void on_load(std::function<void(const mf_loaded_state&)> take_state) {
    on_load_ = std::move(take_state);
  }
  /// Sets the function that evaluates samples of the test set.
  void on_evaluate(std::function<Evaluation(std::span<const std::uint64_t>)> evaluate) {
    on_evaluate_ = std::move(evaluate);
  }
  /// Joins the job. To be called once: after a failure only another Job, made after this one was
  /// destroyed, can be started.
  bool start(const Options& options) {
    mf_options given{};
    given.size = sizeof given;
    given.data_name = options.data_name.c_str();
    given.train_samples = options.train_samples;
    given.test_samples = on_evaluate_ ? options.test_samples : 0;
    given.test_chunk = options.test_chunk;
    given.steps = options.steps;
    given.global_batch = options.global_batch;
    given.microbatch = options.microbatch;
    given.optimizer_bytes = options.optimizer_bytes;
    return take(mf_start(handle_.get(), &given));
  }

  /// The next step of this worker; nothing at the end, or after a failure (ok()).
  [[nodiscard]] std::optional<Step> next_step() {
    return advance() && task_.kind != MF_END ? std::optional(Step(*this)) : std::nullopt;
  }
  /// Why this process has left the job, after the last step. After MF_LOST a program must end with
  /// another exit code than 0, so that its launcher replaces it.
  [[nodiscard]] mf_outcome outcome() const {
    return task_.kind == MF_END ? task_.outcome : MF_LOST;
  }
  /// The reason, for messages.
  [[nodiscard]] std::string detail() const { return task_.detail == nullptr ? "" : task_.detail; }

  /// Asks the coordinator to release this worker after the present step. Any thread.
  void leave(const std::string& reason) { mf_leave(handle_.get(), reason.c_str()); }
  /// Asks the coordinator to stop the whole job, with a checkpoint, for early stopping.
  bool stop() { return take(mf_stop(handle_.get())); }
  /// The last evaluation of the whole test set that this worker has helped to compute; each one is
  /// returned once.
  [[nodiscard]] std::optional<mf_evaluation> take_evaluation() {
    mf_evaluation found{};
    found.size = sizeof found;
    return mf_take_evaluation(handle_.get(), &found) == MF_OK ? std::optional(found) : std::nullopt;
  }
  /// After take_evaluation(): the totals of the registered sums, in their order.
  [[nodiscard]] std::vector<double> total_sums() {
    std::vector<double> totals(sum_count_);
    return take(mf_total_sums(handle_.get(), totals.data(), totals.size())) ? totals
                                                                            : std::vector<double>();
  }
  /// Records an event; see mf_note().
  bool note(const std::string& kind, const std::string& text) {
    return take(mf_note(handle_.get(), kind.c_str(), text.c_str()));
  }

 private:
  friend class Step;
  struct Close {
    void operator()(mf_job* job) const { mf_close(job); }
  };
  static constexpr std::uint32_t kWaitMs = 1000;

  bool take(mf_code code) {
    // code() and error() keep the values of a failed mf_open(), or of the call that ended the loop.
    if (handle_ != nullptr && !has_failed_) {
      code_ = code;
      error_ = code == MF_OK ? "" : mf_error(handle_.get());
    }
    return handle_ != nullptr && code == MF_OK;
  }

  template <typename Function>
  mf_code with(const std::vector<Tensor>& tensors, const Function& function) {
    std::vector<mf_tensor> all;
    for (const Tensor& tensor : tensors) {
      all.push_back({tensor.name.c_str(), tensor.type, tensor.shape.data(), tensor.shape.size(),
                     tensor.data});
    }
    return function(handle_.get(), all.data(), all.size());
  }

  /// Proceeds to the next task of the loop: a microbatch, an update or the end. After a failure,
  /// also one of Step::add(), it requests no task any more.
  bool advance() {
    has_failed_ = has_failed_ || !go_on();
    return !has_failed_;
  }

  bool go_on() {
    while (true) {
      const mf_code code = mf_next(handle_.get(), &task_, kWaitMs);
      if (code == MF_TIMEOUT) {
        continue;
      }
      if (!take(code)) {
        return false;
      }
      if (task_.kind == MF_LOAD) {
        mf_loaded_state state{};
        state.size = sizeof state;
        if (!take(mf_loaded(handle_.get(), &state))) {
          return false;
        }
        if (on_load_) {
          on_load_(state);
        }
      } else if (task_.kind == MF_EVALUATE) {
        const Evaluation found = on_evaluate_(std::span(task_.samples, task_.sample_count));
        for (std::size_t i = 0; i < found.sums.size(); ++i) {
          if (!take(mf_set_sum(handle_.get(), i, found.sums[i]))) {
            return false;
          }
        }
        if (!take(mf_evaluated(handle_.get(), found.correct, found.loss_sum))) {
          return false;
        }
      } else {
        is_new_ = true;
        return true;
      }
    }
  }

  std::unique_ptr<mf_job, Close> handle_;
  mf_code code_ = MF_OK;
  std::string error_;
  mf_task task_;
  std::size_t parameter_count_ = 0;
  std::size_t sum_count_ = 0;
  bool is_new_ = false;      // Step::next_microbatch() has not returned task_ yet
  bool has_failed_ = false;  // the loop is over because of a failure
  std::function<void(const mf_loaded_state&)> on_load_;
  std::function<Evaluation(std::span<const std::uint64_t>)> on_evaluate_;
};

inline std::uint64_t Step::number() const {
  return job_->task_.step;
}

inline std::optional<Microbatch> Step::next_microbatch() {
  if (!job_->is_new_ && (updates() || !job_->advance())) {
    return std::nullopt;
  }
  job_->is_new_ = false;
  const mf_task& task = job_->task_;
  if (task.kind != MF_MICROBATCH) {
    return std::nullopt;
  }
  return Microbatch{task.step, task.number, task.seed, std::span(task.samples, task.sample_count),
                    std::span(task.epochs, task.sample_count)};
}

inline bool Step::add(std::span<const float* const> gradients, double loss, std::uint32_t correct,
                      double weight) {
  if (!job_->has_failed_ && gradients.size() != job_->parameter_count_) {
    job_->code_ = MF_REFUSED;  // the library would read beyond the array
    job_->error_ = "a result has " + std::to_string(gradients.size()) +
                   " gradients, and the job has " + std::to_string(job_->parameter_count_) +
                   " parameters";
    job_->has_failed_ = true;
  }
  job_->has_failed_ = job_->has_failed_ ||
                      !job_->take(mf_set_weight(job_->handle_.get(), weight)) ||
                      !job_->take(mf_add(job_->handle_.get(), gradients.data(), loss, correct));
  return !job_->has_failed_;
}

inline bool Step::updates() const {
  return !job_->has_failed_ && job_->task_.kind == MF_UPDATE;
}

inline double Step::loss() const {
  return job_->task_.loss;
}

inline bool Step::speaks() const {
  return job_->task_.speaks == 1;
}

inline const float* Step::gradient(std::size_t parameter) const {
  return job_->task_.gradients[parameter];
}

}  // namespace mayfly
