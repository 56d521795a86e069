/* Mayfly as a library: elastic data-parallel training of the program's own model.
 *
 * The program registers its tensors, sets the length of the job, and then carries out one task
 * after the other: compute a microbatch, update the parameters with the mean gradients, evaluate a
 * chunk of the test set, load a received state. mf_next() handles lost and joining workers,
 * repeated steps and the transfer of states, so the program needs no code for failures and has no
 * rank. After each step all workers have the same bits, for any number of workers, if a microbatch
 * computes the same bits on every worker.
 *
 * How to start it, the promises and the conditions: docs/library.md. MAYFLY_SLOT in the
 * environment is the number of the worker on its host, from 0, for the choice of a device.
 *
 * Rules. One job per process: mf_open() is refused until the previous job has ended and was closed.
 * In a process that was forked while there was a job, mf_open() and all functions of that job are
 * refused, and mf_close() does nothing. Only the thread that called mf_open() may call the other
 * functions, except mf_leave(), which any thread may call until mf_close() is called. Functions
 * return a value of mf_code unless stated otherwise; mf_error() returns one line about the last
 * failure. Texts are UTF-8. A structure that is not an element of an array begins with its size,
 * which the caller sets; a smaller size than the library's is refused. No exception crosses this
 * interface.
 */
#ifndef MAYFLY_H
#define MAYFLY_H

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

#define MF_API __attribute__((visibility("default")))

/** The version of this header's interface; mf_abi_version() must return the same. */
#define MF_ABI_VERSION 1

typedef struct mf_job mf_job;

typedef enum mf_code {
  MF_OK = 0,
  MF_TIMEOUT = 1, /**< nothing has happened yet; call again */
  MF_REFUSED = 2, /**< wrong use, a wrong setting, or a job that does not want this worker */
  MF_FAILED = 3,  /**< the job or a connection has failed */
  MF_ABSENT = 4   /**< no coordinator is named in the environment */
} mf_code;

typedef enum mf_type {
  MF_F32 = 0,
  MF_F64 = 1,
  MF_F16 = 2,
  MF_BF16 = 3,
  MF_I64 = 4,
  MF_I32 = 5,
  MF_I16 = 6,
  MF_I8 = 7,
  MF_U8 = 8,
  MF_BOOL = 9
} mf_type;

/** A contiguous tensor in the program's memory. The library copies name and shape; the memory at
 * `data` must not be moved or freed until the tensor is replaced or the job is closed. */
typedef struct mf_tensor {
  const char* name; /**< UTF-8, distinct among all tensors */
  mf_type type;
  const int64_t* shape;
  size_t dimensions; /**< at most 8 */
  void* data;
} mf_tensor;

/** The program's description of its job; equal on all workers. */
typedef struct mf_options {
  size_t size;              /**< sizeof(mf_options) */
  const char* data_name;    /**< of the data set, for messages, in UTF-8; may be null */
  uint64_t train_samples;   /**< of the training set, at most 2^62; ids are 0 to this - 1 */
  uint64_t test_samples;    /**< 0 = nothing is evaluated */
  uint32_t test_chunk;      /**< samples of the test set that are evaluated at once */
  uint64_t steps;           /**< of the whole job */
  uint32_t global_batch;    /**< samples of a step, over all workers */
  uint32_t microbatch;      /**< samples of a microbatch; divides global_batch */
  uint64_t optimizer_bytes; /**< upper bound on tensors and blob of mf_set_optimizer_state() */
} mf_options;

typedef enum mf_task_kind {
  MF_MICROBATCH = 1, /**< compute it, then mf_add() */
  MF_UPDATE = 2,   /**< update the parameters with the mean gradients; the next mf_next() completes
                        the task */
  MF_LOAD = 3,     /**< a state was received: parameters and buffers are written; load the rest,
                        which mf_loaded() returns; the next mf_next() completes the task, or refuses
                        it if a worker sent the state and the optimizer's tensors differ from its */
  MF_EVALUATE = 4, /**< evaluate these samples of the test set, then mf_evaluated() */
  MF_END = 5       /**< this process has left the job: see `outcome` */
} mf_task_kind;

typedef enum mf_outcome {
  MF_DONE = 0,    /**< the job has committed its last step */
  MF_DRAINED = 1, /**< this worker was asked to leave; other workers may continue */
  MF_STOPPED = 2, /**< the job was stopped, and can be resumed from its newest checkpoint */
  MF_LOST = 3     /**< the job has failed, or cannot use this worker any more */
} mf_outcome;

/** Pointers are valid until the next mf_next(). */
typedef struct mf_task {
  size_t size; /**< sizeof(mf_task) */
  mf_task_kind kind;
  uint64_t step;   /**< the step that is computed or updated, from 1; for other kinds the state's */
  uint32_t number; /**< of the microbatch in its step, or of the chunk */
  uint64_t seed;   /**< of the microbatch: the same on every worker */
  const uint64_t* samples; /**< ids, in the order of the microbatch */
  const uint64_t* epochs;  /**< in which pass over the data set, from 0, each of them is used */
  size_t sample_count;
  const float* const* gradients; /**< MF_UPDATE: the means, one for each parameter, as registered */
  mf_outcome outcome;            /**< MF_END */
  const char* detail;            /**< MF_END: the reason, for messages; may be empty */
  double loss; /**< MF_UPDATE: the mean over the batch, the same bits on all workers */
  int speaks;  /**< MF_UPDATE: 1 on exactly one worker of the job, which may print results */
} mf_task;

/** The part of a received state (MF_LOAD) that the program loads itself. The tensors are in the
 * order in which the sender passed them to mf_set_optimizer_state(), except those without elements.
 * Valid until the next mf_next(). */
typedef struct mf_loaded_state {
  size_t size; /**< sizeof(mf_loaded_state) */
  const mf_tensor* tensors;
  size_t tensor_count;
  const void* blob;
  size_t blob_bytes;
} mf_loaded_state;

/** MF_ABI_VERSION of the library. */
MF_API unsigned mf_abi_version(void);
/** The version of the library, such as "0.1.0". */
MF_API const char* mf_version(void);

/** Reads the coordinator's address from the environment (docs/library.md) and asks the coordinator
 * for the settings of its job, for up to a minute. From then on SIGPIPE is ignored, and /dev/null
 * is open on those of the descriptors 0, 1 and 2 that were closed. MF_REFUSED if this process has a
 * job. On failure the reason is written to `error` (at most `error_bytes`, always terminated). */
MF_API mf_code mf_open(mf_job** job, char* error, size_t error_bytes);
/** The last failure, one line. Valid until the next call. Never null. */
MF_API const char* mf_error(const mf_job* job);
/** The job's seed (the setting --seed). */
MF_API uint64_t mf_seed(const mf_job* job);

/** Before mf_start(): a property that must be equal on all workers, such as a version or a number
 * of threads. At most 128 names of 100 bytes, with values of 1000 bytes, in UTF-8, and each name
 * once. */
MF_API mf_code mf_require_equal(mf_job* job, const char* name, const char* value);
/** Before mf_start(): tensors with gradients, in the order of the gradients of mf_add(). Those
 * whose gradients are ready first should be last. They may have any type; gradients are floats of
 * 32 bits. At most 60,000 parameters and buffers, whose names have at most 1 MiB together. */
MF_API mf_code mf_register_parameters(mf_job* job, const mf_tensor* tensors, size_t count);
/** Before mf_start(): tensors that the computation of a microbatch changes, such as running means.
 * They are set to the committed values before each microbatch; the mean of the changes of all
 * microbatches of a step is committed. Buffers that are not F32, F64 or I64 are constants. */
MF_API mf_code mf_register_buffers(mf_job* job, const mf_tensor* tensors, size_t count);
/** Before mf_start(): names of metrics, such as a norm, whose means over the microbatches of each
 * step are recorded (metrics.jsonl, TensorBoard). In UTF-8, and each name once. */
MF_API mf_code mf_register_metrics(mf_job* job, const char* const* names, size_t count);
/** Before mf_start(): names of further sums over the samples of the test set, such as the pixels of
 * an intersection. Their totals over all workers are recorded; see mf_total_sums(). In UTF-8, and
 * each name once. */
MF_API mf_code mf_register_sums(mf_job* job, const char* const* names, size_t count);
/** The state besides parameters and buffers: the optimizer's tensors, and a blob of everything that
 * is not a tensor, which the library copies. To be called before mf_start(), and in MF_UPDATE or
 * MF_LOAD whenever tensors or blob have been replaced. `learning_rate` is recorded; 0 = none. */
MF_API mf_code mf_set_optimizer_state(mf_job* job, const mf_tensor* tensors, size_t count,
                                      const void* blob, size_t blob_bytes, double learning_rate);
/** Joins the job. Returns when the coordinator has admitted this worker. MF_REFUSED if it refuses
 * the worker; mf_error() returns the reason. To be called once: after a failure close the job and
 * open another one to try again; only a wrong options.size may be corrected. */
MF_API mf_code mf_start(mf_job* job, const mf_options* options);

/** The next task, or MF_TIMEOUT if there is none within `timeout_ms`. */
MF_API mf_code mf_next(mf_job* job, mf_task* task, uint32_t timeout_ms);
/** A microbatch that this worker will probably have to compute. */
typedef struct mf_upcoming {
  uint64_t step;
  uint32_t number;
  uint64_t seed;
} mf_upcoming;
/** The next microbatches, at most `max`, in their order, to read their samples ahead. `count` is
 * set to their number. A change of membership may replace them by others. */
MF_API mf_code mf_peek(mf_job* job, mf_upcoming* upcoming, size_t max, size_t* count);
/** The samples of a microbatch, as in mf_task; both arrays have room for options.microbatch. */
MF_API mf_code mf_samples(mf_job* job, uint64_t step, uint32_t number, uint64_t* samples,
                          uint64_t* epochs);
/** MF_MICROBATCH, before mf_add(): sets the value of a metric by its place; the default is 0. */
MF_API mf_code mf_set_metric(mf_job* job, size_t metric, double value);
/** MF_MICROBATCH, before mf_add(): sets the weight of its loss and gradients in the means of the
 * step, such as the number of tokens over which its loss is the mean; the means of the step are
 * then over all tokens. The default is 1. With 0 nothing is added, and the microbatch counts as 0
 * in the means of metrics and of the changes of buffers, which have no weights. Finite, at most
 * 1e9. */
MF_API mf_code mf_set_weight(mf_job* job, double weight);
/** MF_MICROBATCH: passes the result. `gradients`: one for each parameter, of the microbatch's mean
 * loss; null = zeros. `loss`: mean over the microbatch. `correct`: number of correct predictions, 0
 * if that has no meaning. MF_REFUSED, with the name, if a metric or the change of a buffer is
 * infinite or NaN although the loss is finite. */
MF_API mf_code mf_add(mf_job* job, const float* const* gradients, double loss, uint32_t correct);
/** MF_EVALUATE, before mf_evaluated(): sets a registered sum, by its place, over the samples of the
 * chunk; the default is 0. From -1e9 to 1e9; added in units of 2^-20, so that the total is the same
 * for any number of workers. */
MF_API mf_code mf_set_sum(mf_job* job, size_t sum, double value);
/** MF_EVALUATE: passes the result; `loss_sum` is over the samples of the chunk. */
MF_API mf_code mf_evaluated(mf_job* job, uint64_t correct, double loss_sum);
/** The result of an evaluation on the whole test set, over all workers. */
typedef struct mf_evaluation {
  size_t size;   /**< sizeof(mf_evaluation) */
  uint64_t step; /**< after which the state was evaluated */
  uint64_t samples;
  uint64_t correct;
  double loss_sum;
} mf_evaluation;
/** The last evaluation that this worker has helped to compute, once; MF_TIMEOUT if there is no new
 * one. */
MF_API mf_code mf_take_evaluation(mf_job* job, mf_evaluation* evaluation);
/** After mf_take_evaluation(): the totals of the `count` registered sums in that evaluation. */
MF_API mf_code mf_total_sums(mf_job* job, double* totals, size_t count);
/** MF_LOAD: the part of the received state that the program loads. */
MF_API mf_code mf_loaded(mf_job* job, mf_loaded_state* state);

/** Asks the coordinator to release this worker after the present step; mf_next() then ends with
 * MF_DRAINED. May be called at any time after mf_open(): if this worker is not a member, the
 * request is kept until it is one. */
MF_API mf_code mf_leave(mf_job* job, const char* reason);
/** Asks the coordinator to stop the whole job after the present step, with a checkpoint: for early
 * stopping. mf_next() of all workers then ends with MF_STOPPED. Waits for up to 5 s for the
 * coordinator's answer. */
MF_API mf_code mf_stop(mf_job* job);
/** Records an event: in events.jsonl it has the kind `note`, `kind` as its field `of`, and `text`
 * as its `detail`. `kind`: 1 to 100 letters (a to z), digits and underscores. May be called at any
 * time after mf_open(): while this worker is not a member, up to 1000 events are kept. */
MF_API mf_code mf_note(mf_job* job, const char* kind, const char* text);
/** To be called when the program cannot continue and is about to end: `why` is recorded, and other
 * workers compute this one's microbatches when the process has ended. */
MF_API mf_code mf_fail(mf_job* job, const char* why);
/** Frees the job. If it was started and has not ended (MF_END), only calls mf_fail(). */
MF_API void mf_close(mf_job* job);

#ifdef __cplusplus
}
#endif

#endif
