/* Linear regression with momentum, elastic: `mayfly run --workers 3 -- ./linear 200`.
 *
 * cc -std=c99 linear.c $(pkg-config --cflags --libs mayfly) -o linear
 */
#include <mayfly/mayfly.h>
#include <stdio.h>
#include <stdlib.h>

enum { kInputs = 4, kSamples = 256 };

static float parameters[kInputs + 1]; /* weights, then the bias */
static float velocity[kInputs + 1];

/* Fills in the inputs of a sample and returns its target; both depend only on its number. */
static float target_of(uint64_t sample, float* inputs) {
  float target = 3;
  for (int k = 0; k < kInputs; ++k) {
    inputs[k] = (float)((sample * (2 * (uint64_t)k + 3)) % 17) / 17 - 0.5f;
    target += (float)k * inputs[k];
  }
  return target;
}

static double compute(const mf_task* task, float* gradient) {
  double loss = 0;
  for (int k = 0; k <= kInputs; ++k) gradient[k] = 0;
  for (size_t i = 0; i < task->sample_count; ++i) {
    float inputs[kInputs];
    float error = parameters[kInputs] - target_of(task->samples[i], inputs);
    for (int k = 0; k < kInputs; ++k) error += parameters[k] * inputs[k];
    for (int k = 0; k < kInputs; ++k) gradient[k] += 2 * error * inputs[k] / (float)task->sample_count;
    gradient[kInputs] += 2 * error / (float)task->sample_count;
    loss += (double)(error * error) / (double)task->sample_count;
  }
  return loss;
}

/* A checkpoint may be that of a version of this program with another optimizer. */
static int has_velocity(const mf_loaded_state* state) {
  return state->tensor_count == 1 && state->tensors[0].type == MF_F32 &&
         state->tensors[0].dimensions == 1 && state->tensors[0].shape[0] == kInputs + 1;
}

static int fail(const char* text) {
  fprintf(stderr, "linear: %s\n", text);
  return 2;
}

int main(int argc, char** argv) {
  char error[500];
  mf_job* job;
  if (mf_open(&job, error, sizeof error) != MF_OK) return fail(error);
  const int64_t shape[] = {kInputs + 1};
  const mf_tensor model = {"parameters", MF_F32, shape, 1, parameters};
  const mf_tensor momentum = {"velocity", MF_F32, shape, 1, velocity};
  mf_options options = {0};
  options.size = sizeof options;
  options.data_name = "a line";
  options.train_samples = kSamples;
  options.steps = argc > 1 ? strtoull(argv[1], NULL, 10) : 200;
  options.global_batch = 32;
  options.microbatch = 4;
  options.optimizer_bytes = 4096;
  if (mf_register_parameters(job, &model, 1) != MF_OK ||
      mf_set_optimizer_state(job, &momentum, 1, NULL, 0, 0.05) != MF_OK ||
      mf_start(job, &options) != MF_OK) {
    return fail(mf_error(job));
  }
  mf_task task = {0};
  task.size = sizeof task;
  float gradient[kInputs + 1];
  const float* const gradients[] = {gradient};
  while (task.kind != MF_END) {
    const mf_code code = mf_next(job, &task, 1000);
    if (code == MF_TIMEOUT) continue;
    if (code != MF_OK) return fail(mf_error(job));
    if (task.kind == MF_MICROBATCH) {
      const double loss = compute(&task, gradient);
      if (mf_add(job, gradients, loss, 0) != MF_OK) return fail(mf_error(job));
    } else if (task.kind == MF_UPDATE) {
      for (int k = 0; k <= kInputs; ++k) {
        velocity[k] = 0.9f * velocity[k] + task.gradients[0][k];
        parameters[k] -= 0.05f * velocity[k];
      }
    } else if (task.kind == MF_LOAD) { /* the parameters are in place, the momentum is ours to take */
      mf_loaded_state state = {0};
      state.size = sizeof state;
      if (mf_loaded(job, &state) != MF_OK) return fail(mf_error(job));
      if (!has_velocity(&state)) return fail("the received state has another optimizer");
      for (int k = 0; k <= kInputs; ++k) velocity[k] = ((const float*)state.tensors[0].data)[k];
    }
  }
  printf("outcome %d, bias %.6f\n", (int)task.outcome, parameters[kInputs]);
  const int is_lost = task.outcome == MF_LOST;
  if (is_lost) fprintf(stderr, "linear: %s\n", task.detail);
  mf_close(job);
  return is_lost ? 1 : 0; /* so that whoever has started this worker replaces it */
}
