/* Mayfly as a library: elastic data-parallel training of a model that is the program's own.
 *
 * The program registers its tensors, says how long the job is, and then does what it is asked for,
 * one task after the other: compute a microbatch, update the parameters with the mean gradients,
 * evaluate a chunk of the test set, take a state that has come. Losses of workers, joins, steps
 * that are done again and states that are sent happen behind mf_next(): the program has no code for
 * failures, and no ranks. After each step all workers have the same bits, for any number of them,
 * if a microbatch computes the same bits wherever it is computed.
 *
 * How to start it, the promises and the conditions: docs/library.md. MAYFLY_SLOT in the
 * environment is the number of the worker on its host, from 0, for the choice of a device.
 *
 * Rules. One job per process: mf_open() is refused until the one before has ended and was closed,
 * and in processes that were forked meanwhile. All functions are called by the thread that called
 * mf_open(), but for mf_leave(), which any thread may call until mf_close() is called. Functions
 * return a value of mf_code unless stated otherwise; mf_error() has one line about the last
 * failure. Texts are UTF-8. Structures that are no elements of an array begin with their size,
 * which the caller sets; one that is smaller than the library's is refused. No exception crosses
 * this interface.
 */
#ifndef MAYFLY_H
#define MAYFLY_H

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

#define MF_API __attribute__((visibility("default")))

/** Of this header; mf_abi_version() must say the same. */
#define MF_ABI_VERSION 1

typedef struct mf_job mf_job;

typedef enum mf_code {
  MF_OK = 0,
  MF_TIMEOUT = 1, /**< nothing has happened yet; call again */
  MF_REFUSED = 2, /**< wrong use, a wrong setting, or a job that does not want this worker */
  MF_FAILED = 3,  /**< the job or a connection */
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

/** A tensor in the program's memory, contiguous. The library copies name and shape; the memory at
 * `data` must stay where it is until the tensor is replaced or the job is closed. */
typedef struct mf_tensor {
  const char* name; /**< UTF-8, distinct among all tensors */
  mf_type type;
  const int64_t* shape;
  size_t dimensions; /**< at most 8 */
  void* data;
} mf_tensor;

/** What the program says of its job; equal on all workers. */
typedef struct mf_options {
  size_t size;              /**< sizeof(mf_options) */
  const char* data_name;    /**< of the data set, for people, in UTF-8; may be null */
  uint64_t train_samples;   /**< for training, at most 2^62; ids are 0 to train_samples - 1 */
  uint64_t test_samples;    /**< 0 = nothing is evaluated */
  uint32_t test_chunk;      /**< samples of the test set that are evaluated at once */
  uint64_t steps;           /**< of the whole job */
  uint32_t global_batch;    /**< samples of a step, over all workers */
  uint32_t microbatch;      /**< samples of a microbatch; divides global_batch */
  uint64_t optimizer_bytes; /**< upper bound on tensors and blob of mf_set_optimizer_state() */
} mf_options;

typedef enum mf_task_kind {
  MF_MICROBATCH = 1, /**< compute it, then mf_add() */
  MF_UPDATE = 2,   /**< update the parameters with the mean gradients; the next mf_next() says that
                        it is done */
  MF_LOAD = 3,     /**< a state has come: parameters and buffers are in place; take the rest from
                        mf_loaded(); the next mf_next() says that it is done, and refuses it if the
                        optimizer's tensors are not those that came from a worker */
  MF_EVALUATE = 4, /**< evaluate these samples of the test set, then mf_evaluated() */
  MF_END = 5       /**< this process's part is over: see `outcome` */
} mf_task_kind;

typedef enum mf_outcome {
  MF_DONE = 0,    /**< the job has made its last step */
  MF_DRAINED = 1, /**< this worker was asked to leave; others may go on */
  MF_STOPPED = 2, /**< the job was stopped; its newest checkpoint can be resumed */
  MF_LOST = 3     /**< the job has failed, or has no use for this worker any more */
} mf_outcome;

/** Pointers are valid until the next mf_next(). */
typedef struct mf_task {
  size_t size; /**< sizeof(mf_task) */
  mf_task_kind kind;
  uint64_t step;   /**< that is computed or updated, from 1; of the state, for the other kinds */
  uint32_t number; /**< of the microbatch in its step, or of the chunk */
  uint64_t seed;   /**< of the microbatch: the same whoever computes it */
  const uint64_t* samples; /**< ids, in the order of the microbatch */
  const uint64_t* epochs;  /**< in which pass over the data set, from 0, each of them is used */
  size_t sample_count;
  const float* const* gradients; /**< MF_UPDATE: the means, one for each parameter, as registered */
  mf_outcome outcome;            /**< MF_END */
  const char* detail;            /**< MF_END: why, for people; may be empty */
  double loss; /**< MF_UPDATE: the mean over the batch, the same bits on all workers */
  int speaks;  /**< MF_UPDATE: 1 on one worker of the job, for what is to be printed once */
} mf_task;

/** A state that has come (MF_LOAD): what the program takes itself. The tensors are in the order in
 * which mf_set_optimizer_state() was given them where the state comes from; one without elements
 * may have another place. Valid until the next mf_next(). */
typedef struct mf_loaded_state {
  size_t size; /**< sizeof(mf_loaded_state) */
  const mf_tensor* tensors;
  size_t tensor_count;
  const void* blob;
  size_t blob_bytes;
} mf_loaded_state;

/** MF_ABI_VERSION of the library. */
MF_API unsigned mf_abi_version(void);
/** Of the library, such as "0.1.0". */
MF_API const char* mf_version(void);

/** Reads where the job is from the environment (docs/library.md) and asks its coordinator for its
 * settings; waits for a coordinator for up to a minute. Ignores SIGPIPE from then on. MF_REFUSED if
 * this process has a job. On failure the text is written to `error` (at most `error_bytes`, always
 * terminated). */
MF_API mf_code mf_open(mf_job** job, char* error, size_t error_bytes);
/** The last failure, one line. Valid until the next call. Never null. */
MF_API const char* mf_error(const mf_job* job);
/** The job's seed (the setting --seed). */
MF_API uint64_t mf_seed(const mf_job* job);

/** Before mf_start(): what must be equal on all workers, such as a version or a number of threads.
 * At most 128 names of 100 bytes, with values of 1000 bytes, in UTF-8, and each name once. */
MF_API mf_code mf_require_equal(mf_job* job, const char* name, const char* value);
/** Before mf_start(): tensors with gradients, in the order in which mf_add() gives these; the
 * gradients that are ready first belong last. Of any type; gradients are floats of 32 bits. At most
 * 60,000 with the buffers, whose names have at most 1 MiB together. */
MF_API mf_code mf_register_parameters(mf_job* job, const mf_tensor* tensors, size_t count);
/** Before mf_start(): tensors that computing a microbatch changes, such as running means.
 * They are set to the committed values before each microbatch; the mean of the changes of all
 * microbatches of a step is committed. Buffers that are not F32, F64 or I64 are constants. */
MF_API mf_code mf_register_buffers(mf_job* job, const mf_tensor* tensors, size_t count);
/** Before mf_start(): names of figures, such as a norm, of which the mean over the microbatches of
 * each step goes on record (metrics.jsonl, TensorBoard). In UTF-8, and each name once. */
MF_API mf_code mf_register_metrics(mf_job* job, const char* const* names, size_t count);
/** Before mf_start(): names of further sums over the samples of the test set, such as the pixels of
 * an intersection. Their totals over all workers go on record; see mf_total_sums(). In UTF-8, and
 * each name once. */
MF_API mf_code mf_register_sums(mf_job* job, const char* const* names, size_t count);
/** The state that is neither of both, before mf_start() and in MF_UPDATE or MF_LOAD whenever
 * tensors or blob are others: the optimizer's tensors, and a blob of what is no tensor, which the
 * library copies. `learning_rate` goes on record; 0 = none. */
MF_API mf_code mf_set_optimizer_state(mf_job* job, const mf_tensor* tensors, size_t count,
                                      const void* blob, size_t blob_bytes, double learning_rate);
/** Joins the job. Returns when the coordinator has taken this worker in. MF_REFUSED if it does not:
 * the text says what differs. Once: after a failure close the job, and open another one to try
 * again; only a wrong options.size may be put right. */
MF_API mf_code mf_start(mf_job* job, const mf_options* options);

/** The next task, or MF_TIMEOUT if there is none within `timeout_ms`. */
MF_API mf_code mf_next(mf_job* job, mf_task* task, uint32_t timeout_ms);
/** A microbatch that will probably be asked for. */
typedef struct mf_upcoming {
  uint64_t step;
  uint32_t number;
  uint64_t seed;
} mf_upcoming;
/** The next microbatches, at most `max`, in their order, to read their samples ahead; `count` says
 * how many there are. After a change of membership they may be others. */
MF_API mf_code mf_peek(mf_job* job, mf_upcoming* upcoming, size_t max, size_t* count);
/** The samples of a microbatch, as in mf_task; both arrays have room for options.microbatch. */
MF_API mf_code mf_samples(mf_job* job, uint64_t step, uint32_t number, uint64_t* samples,
                          uint64_t* epochs);
/** MF_MICROBATCH, before mf_add(): the value of a figure by its place; 0 if it is not given. */
MF_API mf_code mf_set_metric(mf_job* job, size_t metric, double value);
/** MF_MICROBATCH, before mf_add(): how much its loss and gradients count in the means of the step,
 * such as the number of tokens that its mean loss is over; 1 if it is not given. The means are then
 * over all of these. 0 = nothing is added, also not to metrics and buffers. Finite, at most 1e9. */
MF_API mf_code mf_set_weight(mf_job* job, double weight);
/** MF_MICROBATCH: its result. `gradients`: one for each parameter, of its mean loss; null = zeros.
 * `loss`: mean over the microbatch. `correct`: right predictions, 0 if that has no meaning.
 * MF_REFUSED, with its name, if a metric or the change of a buffer is infinite or NaN although the
 * loss is not. */
MF_API mf_code mf_add(mf_job* job, const float* const* gradients, double loss, uint32_t correct);
/** MF_EVALUATE, before mf_evaluated(): a registered sum, by its place, over the samples of the
 * chunk; 0 if it is not given. From -1e9 to 1e9; added in units of 2^-20, so that the total is the
 * same for any number of workers. */
MF_API mf_code mf_set_sum(mf_job* job, size_t sum, double value);
/** MF_EVALUATE: its result; `loss_sum` over the samples of the chunk. */
MF_API mf_code mf_evaluated(mf_job* job, uint64_t correct, double loss_sum);
/** What an evaluation of the whole test set has found, on all workers together. */
typedef struct mf_evaluation {
  size_t size;   /**< sizeof(mf_evaluation) */
  uint64_t step; /**< after which it was made */
  uint64_t samples;
  uint64_t correct;
  double loss_sum;
} mf_evaluation;
/** The last evaluation in which this worker took part, once; MF_TIMEOUT if there is no new one. */
MF_API mf_code mf_take_evaluation(mf_job* job, mf_evaluation* evaluation);
/** After that: the totals of the sums that were registered, `count` of them, in that evaluation. */
MF_API mf_code mf_total_sums(mf_job* job, double* totals, size_t count);
/** MF_LOAD: what came. */
MF_API mf_code mf_loaded(mf_job* job, mf_loaded_state* state);

/** Asks the job to let this worker go at the next step; mf_next() then ends with MF_DRAINED. At any
 * time from mf_open() on: while this worker is no member, it is kept until it is one. */
MF_API mf_code mf_leave(mf_job* job, const char* reason);
/** Asks the coordinator to stop the whole job after the step at hand, with a checkpoint: for early
 * stopping. All workers' mf_next() then end with MF_STOPPED. Waits for up to 5 s for its answer. */
MF_API mf_code mf_stop(mf_job* job);
/** An event for the job's record: in events.jsonl it has the kind `note`, `kind` as its field `of`,
 * and `text` as its `detail`. `kind`: 1 to 100 letters (a to z), digits and underscores. At any
 * time from mf_open() on: while this worker is no member, up to 1000 are kept until it is one. */
MF_API mf_code mf_note(mf_job* job, const char* kind, const char* text);
/** The program cannot go on and is about to end: `why` goes on record, and the others take over,
 * also if the process has more to do before its end. */
MF_API mf_code mf_fail(mf_job* job, const char* why);
/** Frees the job. Before MF_END that is mf_fail(). */
MF_API void mf_close(mf_job* job);

#ifdef __cplusplus
}
#endif

#endif
