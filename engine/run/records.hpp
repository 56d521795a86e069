#pragma once

// The records of a run. Each is described once, by its fields(): the same list writes and reads the
// binary reports that workers send to the coordinator's process (encode_record()) and the JSON of
// the run directory's files (engine/run/record_json.hpp). To add a field, add the member and its
// entry in fields(). An entry is one of
//   io("name", r.member)                 a field that every line of a file has
//   io.unless(usual, "name", r.member)   a field that is left out of a file if it equals `usual`
//   io.wire(r.member)                    a field that only reports have
//
// Workers' reports are opaque to elastic. The reporter sends them; after a change of view the new
// reporter repeats the last ones, and the receiver drops those that it has already. So the loss of
// a worker loses no report.

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <type_traits>
#include <utility>
#include <variant>
#include <vector>

#include "base/bytes.hpp"
#include "base/result.hpp"
#include "base/time.hpp"
#include "elastic/core/coordinator_events.hpp"

namespace mayfly::engine {

/// The member that was late in an exchange.
struct HeldUp {
  std::uint64_t member = 0;
  double ms = 0;  ///< another member waited so much longer for others than this one

  static void fields(auto& io, auto& r) {
    io("member", r.member);
    io("ms", r.ms);
  }
};

/// The parts of the time between two commits, without evaluations and checkpoints; they add up to
/// it.
struct StepTimes {
  std::uint64_t slowest = 0;  ///< the member that was ready for the reduction last
  double compute_ms = 0;      ///< until then, of that member, without the next two
  // The mean time that its compute threads waited for data before then:
  double fetch_ms = 0;            ///< because images were read
  double prep_ms = 0;             ///< because images were decoded and augmented
  double exchange_ms = 0;         ///< from then until the sums were complete
  double update_ms = 0;           ///< of the state
  std::optional<HeldUp> held_up;  ///< in the exchange, if the transport measures it

  static void fields(auto& io, auto& r) {
    io("slowest", r.slowest);
    io("compute_ms", r.compute_ms);
    io("fetch_ms", r.fetch_ms);
    io("prep_ms", r.prep_ms);
    io("exchange_ms", r.exchange_ms);
    io("update_ms", r.update_ms);
    io.unless(std::nullopt, "held_up", r.held_up);
  }
};

/// A figure of the user's own program, the mean over the microbatches of a step.
struct OwnMetric {
  std::string name;
  double value = 0;

  static void fields(auto& io, auto& r) {
    io("name", r.name);
    io("value", r.value);
  }
  friend bool operator==(const OwnMetric&, const OwnMetric&) = default;
};

/// One committed step: a report, and a line of metrics.jsonl.
struct StepRecord {
  std::uint64_t step = 0;
  std::uint64_t samples = 0;  ///< used by this step
  double epoch = 0;           ///< passes completed after this step
  double loss = 0;
  double accuracy = 0;  ///< on the training batch, 0 to 1
  double learning_rate = 0;
  double images_per_second = 0;  ///< since the reporter's previous commit; 0 = none
  double data_wait_ms = 0;       ///< waiting for data in this time; mean of its compute threads
  std::uint32_t members = 0;
  std::uint64_t view = 0;
  std::string sample_hash;  ///< order-free hash of the sample ids in the reduced sum, hex
  std::string digest;       ///< of the state after the step, hex; empty except every digest_every
  std::optional<double> loss_scale;  ///< in this step; fp16 only
  bool skipped = false;              ///< a gradient was not finite, so there was no update
  std::uint32_t attempts = 1;        ///< how often it was computed (ADR 1)
  /// The time since the reporter's previous commit in which it copied the state for a checkpoint,
  /// which another thread writes.
  double checkpoint_ms = 0;
  std::optional<double> t;  ///< when it was committed, on the time axis; filled in by the receiver
  Instant committed_at;     ///< the same by the reporter's clock; not recorded
  std::optional<StepTimes> before;  ///< of the step before, if its slowest member is known
  std::vector<OwnMetric> own;       ///< of a program of the user's own

  static void fields(auto& io, auto& r) {
    io("step", r.step);
    io.unless(std::nullopt, "t", r.t);
    io("samples", r.samples);
    io("epoch", r.epoch);
    io("loss", r.loss);
    io("accuracy", r.accuracy);
    io("learning_rate", r.learning_rate);
    io("images_per_second", r.images_per_second);
    io("data_wait_ms", r.data_wait_ms);
    io("members", r.members);
    io("view", r.view);
    io("sample_hash", r.sample_hash);
    io.unless("", "digest", r.digest);
    io.unless(std::nullopt, "loss_scale", r.loss_scale);
    io.unless(false, "skipped", r.skipped);
    io.unless(1U, "attempts", r.attempts);
    io.unless(0.0, "checkpoint_ms", r.checkpoint_ms);
    io.unless(std::nullopt, "before", r.before);
    io.unless(std::vector<OwnMetric>(), "own", r.own);
  }
};

/// The accuracy on the test set after a step.
struct EvaluationRecord {
  static constexpr const char* kKind = "evaluation";
  std::uint64_t step = 0;
  double top1 = 0;                   ///< 0 to 1
  double loss = 0;                   ///< mean cross entropy
  double ms = 0;                     ///< its duration, between two steps
  std::vector<OwnMetric> sums = {};  ///< of a program of the user's own

  static void fields(auto& io, auto& r) {
    io("step", r.step);
    io("test_top1", r.top1);
    io("test_loss", r.loss);
    io("ms", r.ms);
    io.unless(std::vector<OwnMetric>(), "sums", r.sums);
  }
};

/// A checkpoint that was written, or could not be.
struct CheckpointRecord {
  static constexpr const char* kKind = "checkpoint";
  static constexpr const char* kFailedKind = "checkpoint_failed";
  std::uint64_t step = 0;
  bool ok = false;
  std::string text;  ///< its folder, or why it could not be written

  static void fields(auto& io, auto& r) {
    io("step", r.step);
    io.wire(r.ok);
    io("detail", r.text);
  }
};

/// The job cannot continue: the loss is not finite, members disagree, ...
struct FatalRecord {
  static constexpr const char* kKind = "fatal";
  std::string reason;

  static void fields(auto& io, auto& r) { io("detail", r.reason); }
};

/// The resources that one worker has used when it leaves.
struct WorkerRecord {
  static constexpr const char* kKind = "worker_done";
  double loader_wait_ms = 0;
  std::uint64_t steps = 0;
  double prep_seconds = 0;       ///< processor time in which samples were prepared
  std::uint64_t bytes_read = 0;  ///< of samples, from where they are stored

  static void fields(auto& io, auto& r) {
    io("steps", r.steps);
    io("loader_wait_ms", r.loader_wait_ms);
    io("prep_seconds", r.prep_seconds);
    io("bytes_read", r.bytes_read);
  }
};

/// A fact for events.jsonl that only a worker can report.
struct NoteRecord {
  static constexpr const char* kOfProgram = "note";
  std::string kind;
  std::string detail;
  std::optional<std::uint64_t> member = {};  ///< the member that it is about, if any
  /// With kOfProgram: the kind that the user's own program gave its note. It is kept apart from
  /// Mayfly's kinds, whose events have fields that are read back.
  std::string of = {};

  static void fields(auto& io, auto& r) {
    io.wire(r.kind);
    io.unless(std::string(), "of", r.of);
    io("detail", r.detail);
    io("member", r.member);
  }
};

/// The user's own program cannot continue.
struct ProgramFailureRecord {
  static constexpr const char* kKind = "program_failed";
  std::uint64_t member = 0;
  std::string detail;  ///< why, such as a traceback
  /// The work that it was computing: "microbatch 3 of step 17"; empty if none.
  std::string at;
  std::vector<std::uint64_t> samples;  ///< that it was computing, the first 10,000

  static void fields(auto& io, auto& r) {
    io("member", r.member);
    io("detail", r.detail);
    io.unless(std::string(), "at", r.at);
    io.unless(std::vector<std::uint64_t>(), "samples", r.samples);
  }
};

/// The state was complete after this step, without an update in between (parameter servers).
struct StateRecord {
  static constexpr const char* kKind = "state";
  std::uint64_t step = 0;
  std::string digest;  ///< hex

  static void fields(auto& io, auto& r) {
    io("step", r.step);
    io("digest", r.digest);
  }
};

/// Training diverged; the steps after `step` are undone and done again (parameter servers).
struct FallBackRecord {
  static constexpr const char* kKind = "fell_back";
  std::uint64_t at = 0;  ///< slices that had been done; identifies a repeated record
  std::uint64_t step = 0;
  std::string reason{};
  std::uint64_t undone_steps = 0;    ///< filled in by the receiver, like the next field
  std::uint64_t undone_samples = 0;  ///< their samples

  static void fields(auto& io, auto& r) {
    io("step", r.step);
    io("at", r.at);
    io("undone_steps", r.undone_steps);
    io("undone_samples", r.undone_samples);
    io("detail", r.reason);
  }
};

/// The counters of a shard of a parameter server at the end of the job.
struct ShardRecord {
  static constexpr const char* kKind = "shard_done";
  std::uint32_t shard = 0;
  std::uint64_t updates = 0;
  std::uint64_t committed = 0;  ///< slices, like the next seven
  std::uint64_t repeats = 0;
  std::uint64_t late = 0;
  std::uint64_t leased_again = 0;
  std::uint64_t mixed = 0;
  std::uint64_t at_once = 0;
  std::uint64_t undone = 0;
  std::uint64_t probes = 0;
  std::uint64_t bytes_in = 0;
  std::uint64_t bytes_out = 0;
  std::uint64_t bytes_shared = 0;    ///< the part of both in shared memory
  std::uint64_t bytes_followed = 0;  ///< sent to its follower
  /// By staleness: the number of updates computed with parameters that were so many updates old.
  std::map<std::uint64_t, std::uint64_t> staleness;
  std::string detail;  ///< the same in words; filled in by the receiver

  static void fields(auto& io, auto& r) {
    io("shard", r.shard);
    io("updates", r.updates);
    io("committed", r.committed);
    io("repeats", r.repeats);
    io("late", r.late);
    io("leased_again", r.leased_again);
    io("mixed", r.mixed);
    io("at_once", r.at_once);
    io("undone", r.undone);
    io("probes", r.probes);
    io("bytes_in", r.bytes_in);
    io("bytes_out", r.bytes_out);
    io("bytes_shared", r.bytes_shared);
    io("bytes_followed", r.bytes_followed);
    io("staleness", r.staleness);
    io("detail", r.detail);
  }
};

/// Lines of a member's log, each with its end of line; see log::take_kept_lines().
struct LogRecord {
  static constexpr std::size_t kBytesMax = 4096;  ///< of the text; longer ones are cut off

  std::uint64_t first = 0;  ///< number of the first line; identifies repeated lines
  std::string lines;

  static void fields(auto& io, auto& r) {
    io.wire(r.first);
    io.wire(r.lines);
  }
};

/// A report of a worker.
using Record = std::variant<StepRecord, EvaluationRecord, CheckpointRecord, FatalRecord,
                            WorkerRecord, NoteRecord, StateRecord, FallBackRecord, ShardRecord,
                            LogRecord, ProgramFailureRecord>;

/// The binary form of a report. Texts are cut off after LogRecord::kBytesMax bytes.
[[nodiscard]] Bytes encode_record(const Record& record);
/// kCorrupt if the bytes are not exactly one record.
[[nodiscard]] Result<Record> decode_record(ByteSpan bytes);

/// A part of a job begins; earlier lines belong to parts that have ended.
struct StartedEvent {
  static constexpr const char* kKind = "started";
  std::uint64_t metrics_bytes = 0;  ///< the size of metrics.jsonl
  std::uint64_t resumed_step = 0;   ///< of the checkpoint that it is resumed from
  std::string resumed_digest{};     ///< of that checkpoint; empty: it is resumed from none

  static void fields(auto& io, auto& r) {
    io("metrics_bytes", r.metrics_bytes);
    io.unless(std::uint64_t{0}, "resumed_step", r.resumed_step);
    io.unless("", "resumed_digest", r.resumed_digest);
  }
};

/// The cost of the job so far, in the currency of its prices, and its cost per hour.
struct Spending {
  double spent = 0;
  double per_hour = 0;
  std::uint32_t billing = 0;  ///< servers, or workers that are priced

  static void fields(auto& io, auto& r) {
    io("spent", r.spent);
    io("per_hour", r.per_hour);
    io("billing", r.billing);
  }
};

/// The same in an event of a job whose workers have a price; else nothing.
struct OptionalSpending {
  std::optional<Spending> now;

  static void fields(auto& io, auto& r) {
    std::optional<double> spent = r.now ? std::optional(r.now->spent) : std::nullopt;
    std::optional<double> per_hour = r.now ? std::optional(r.now->per_hour) : std::nullopt;
    std::optional<std::uint32_t> billing = r.now ? std::optional(r.now->billing) : std::nullopt;
    io.unless(std::nullopt, "spent", spent);
    io.unless(std::nullopt, "per_hour", per_hour);
    io.unless(std::nullopt, "billing", billing);
    if constexpr (!std::is_const_v<std::remove_reference_t<decltype(r)>>) {
      r.now = spent ? std::optional(Spending{*spent, per_hour.value_or(0), billing.value_or(0)})
                    : std::nullopt;
    }
  }
};

/// A note of the coordinator about one member or the job; see coordinator_effect::Note.
struct NoteEvent {
  std::optional<std::uint64_t> member;
  std::string detail;
  OptionalSpending spending;  ///< if the note changes which members are billed

  static void fields(auto& io, auto& r) {
    io.unless(std::nullopt, "member", r.member);
    io("detail", r.detail);
    r.spending.fields(io, r.spending);
  }
};

/// A view was published.
struct ViewEvent {
  static constexpr const char* kKind = "view";
  std::uint64_t view = 0;
  std::uint64_t committed = 0;
  std::vector<std::uint64_t> members;
  std::vector<std::string> hosts;  ///< of the members, as far as they are known
  OptionalSpending spending{};

  static void fields(auto& io, auto& r) {
    io("view", r.view);
    io("committed", r.committed);
    io("members", r.members);
    io("hosts", r.hosts);
    r.spending.fields(io, r.spending);
  }
};

/// The job continues from an earlier step, because all members with later states are lost.
struct RestartEvent {
  static constexpr const char* kKind = "restarted";
  std::uint64_t step = 0;
  std::uint64_t undone_steps = 0;
  std::uint64_t undone_samples = 0;
  std::string detail;

  static void fields(auto& io, auto& r) {
    io("step", r.step);
    io("undone_steps", r.undone_steps);
    io("undone_samples", r.undone_samples);
    io("detail", r.detail);
  }
};

/// One change of membership, with milliseconds since it was detected.
struct RecoveryRecord {
  elastic::ChangeCause cause = elastic::ChangeCause::kLost;
  std::vector<std::uint64_t> members;
  std::uint64_t step = 0;  ///< committed when it happened
  std::uint64_t view = 0;  ///< the new one
  std::uint32_t redone_microbatches = 0;
  std::string detail;   ///< why the first of the members was lost, or what broke
  double detected = 0;  ///< on the time axis
  double told_ms = 0, stopped_ms = 0, formed_ms = 0, synced_ms = 0, step_ms = 0;

  static void fields(auto& io, auto& r) {
    io("cause", r.cause);
    io("members", r.members);
    io("step", r.step);
    io("view", r.view);
    io("redone_microbatches", r.redone_microbatches);
    io("detail", r.detail);
    io("detected", r.detected);
    io("told_ms", r.told_ms);
    io("stopped_ms", r.stopped_ms);
    io("formed_ms", r.formed_ms);
    io("synced_ms", r.synced_ms);
    io("step_ms", r.step_ms);
  }
};

/// `detected` is that instant on the run's time axis.
[[nodiscard]] RecoveryRecord recovery_record(const elastic::Recovery& recovery, double detected);

/// The event that contains a RecoveryRecord.
struct RecoveryEvent {
  static constexpr const char* kKind = "recovery";
  RecoveryRecord recovery;

  static void fields(auto& io, auto& r) { io("recovery", r.recovery); }
};

/// A worker joined the running job; the times are milliseconds since it connected.
struct JoinRecord {
  static constexpr const char* kKind = "join";
  std::uint64_t member = 0;
  std::uint64_t admitted_after = 0;  ///< the last step before its first view
  std::uint64_t started_after = 0;   ///< the last step before it had work
  std::uint32_t snapshots = 0;       ///< see elastic::Join
  double connected = 0;              ///< on the time axis
  double ready_ms = 0, admitted_ms = 0, caught_up_ms = 0, promoted_ms = 0, step_ms = 0;

  static void fields(auto& io, auto& r) {
    io("member", r.member);
    io("admitted_after", r.admitted_after);
    io("started_after", r.started_after);
    io("snapshots", r.snapshots);
    io("connected", r.connected);
    io("ready_ms", r.ready_ms);
    io("admitted_ms", r.admitted_ms);
    io("caught_up_ms", r.caught_up_ms);
    io("promoted_ms", r.promoted_ms);
    io("step_ms", r.step_ms);
  }
};

/// `connected` is that instant on the run's time axis.
[[nodiscard]] JoinRecord join_record(const elastic::Join& join, double connected);

/// The steps that a member computed: those after `first_step`, up to `last_step`.
struct WorkerStay {
  std::uint64_t member = 0;
  std::string host;  ///< as it calls itself
  std::uint64_t first_step = 0;
  std::uint64_t last_step = 0;

  static void fields(auto& io, auto& r) {
    io("member", r.member);
    io("host", r.host);
    io("first_step", r.first_step);
    io("last_step", r.last_step);
  }
};

/// Recognises a failure that repeats the previous one by its cause: the text after the last colon,
/// where errors of the operating system are. One thread.
class ReportedFailure {
 public:
  [[nodiscard]] bool is_new(const std::string& text) {
    const std::string cause = text.substr(text.rfind(':') + 1);
    return std::exchange(cause_, cause) != cause;
  }
  /// The operation has succeeded again.
  void is_over() { cause_.reset(); }

 private:
  std::optional<std::string> cause_;
};

}  // namespace mayfly::engine
