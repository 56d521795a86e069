#include "engine/run/records.hpp"

#include "nn/loss_scale.hpp"

namespace mayfly::engine {
namespace {

constexpr std::size_t kRecordTextBytesMax = 4096;

void put(WireWriter& out, const StepRecord& r) {
  out.put(r.step);
  out.put(r.view);
  out.put(r.members);
  out.put(r.samples);
  out.put(r.correct);
  out.put(r.loss);
  out.put(r.learning_rate);
  out.put(r.seconds);
  out.put(r.wait_ms);
  out.put_string(r.sample_hash);
  out.put_string(r.digest);
  out.put(r.loss_scale);
  out.put(static_cast<std::uint8_t>(r.skipped));
  out.put(r.attempts);
}
void put(WireWriter& out, const EvaluationRecord& r) {
  out.put(r.step);
  out.put(r.samples);
  out.put(r.correct);
  out.put(r.loss);
}
void put(WireWriter& out, const CheckpointRecord& r) {
  out.put(r.step);
  out.put(static_cast<std::uint8_t>(r.ok));
  out.put_string(std::string_view(r.text).substr(0, kRecordTextBytesMax));
}
void put(WireWriter& out, const FatalRecord& r) {
  out.put_string(std::string_view(r.reason).substr(0, kRecordTextBytesMax));
}
void put(WireWriter& out, const WorkerRecord& r) {
  out.put(r.loader_wait_ms);
  out.put(r.steps);
}
void put(WireWriter& out, const NoteRecord& r) {
  out.put_string(std::string_view(r.kind).substr(0, kRecordTextBytesMax));
  out.put_string(std::string_view(r.detail).substr(0, kRecordTextBytesMax));
}
void put(WireWriter& out, const StateRecord& r) {
  out.put(r.step);
  out.put_string(r.digest);
}
void put(WireWriter& out, const FallBackRecord& r) {
  out.put(r.at);
  out.put(r.step);
  out.put_string(std::string_view(r.reason).substr(0, kRecordTextBytesMax));
}

void put(WireWriter& out, const LogRecord& r) {
  out.put(r.first);
  out.put_string(std::string_view(r.lines).substr(0, LogRecord::kBytesMax));
}

void get(WireReader& in, StepRecord& r) {
  r.step = in.get<std::uint64_t>();
  r.view = in.get<std::uint64_t>();
  r.members = in.get<std::uint32_t>();
  r.samples = in.get<std::uint32_t>();
  r.correct = in.get<std::uint32_t>();
  r.loss = in.get<double>();
  r.learning_rate = in.get<double>();
  r.seconds = in.get<double>();
  r.wait_ms = in.get<double>();
  r.sample_hash = in.get_string(kRecordTextBytesMax);
  r.digest = in.get_string(kRecordTextBytesMax);
  r.loss_scale = in.get<std::int32_t>();
  const auto skipped = in.get<std::uint8_t>();
  if (r.loss_scale < StepRecord::kNoScale || r.loss_scale > nn::LossScale::kMost || skipped > 1) {
    in.fail();
  }
  r.skipped = skipped == 1;
  r.attempts = in.get<std::uint32_t>();
}
void get(WireReader& in, EvaluationRecord& r) {
  r.step = in.get<std::uint64_t>();
  r.samples = in.get<std::uint64_t>();
  r.correct = in.get<std::uint64_t>();
  r.loss = in.get<double>();
}
void get(WireReader& in, CheckpointRecord& r) {
  r.step = in.get<std::uint64_t>();
  const auto ok = in.get<std::uint8_t>();
  if (ok > 1) {
    in.fail();  // one encoding per record
  }
  r.ok = ok == 1;
  r.text = in.get_string(kRecordTextBytesMax);
}
void get(WireReader& in, FatalRecord& r) {
  r.reason = in.get_string(kRecordTextBytesMax);
}
void get(WireReader& in, WorkerRecord& r) {
  r.loader_wait_ms = in.get<double>();
  r.steps = in.get<std::uint64_t>();
}
void get(WireReader& in, NoteRecord& r) {
  r.kind = in.get_string(kRecordTextBytesMax);
  r.detail = in.get_string(kRecordTextBytesMax);
}
void get(WireReader& in, StateRecord& r) {
  r.step = in.get<std::uint64_t>();
  r.digest = in.get_string(kRecordTextBytesMax);
}
void get(WireReader& in, FallBackRecord& r) {
  r.at = in.get<std::uint64_t>();
  r.step = in.get<std::uint64_t>();
  r.reason = in.get_string(kRecordTextBytesMax);
}

void get(WireReader& in, LogRecord& r) {
  r.first = in.get<std::uint64_t>();
  r.lines = in.get_string(LogRecord::kBytesMax);
}

template <typename T>
Result<Record> get_whole(WireReader& in) {
  T record;
  get(in, record);
  if (!in.complete()) {
    return Error{Errc::kCorrupt, "a worker's report has the wrong length"};
  }
  return Record(std::move(record));
}

}  // namespace

Bytes encode_record(const Record& record) {
  WireWriter out;
  out.put(static_cast<std::uint8_t>(record.index()));
  std::visit([&out](const auto& r) { put(out, r); }, record);
  return out.take();
}

Result<Record> decode_record(ByteSpan bytes) {
  WireReader in(bytes);
  switch (in.get<std::uint8_t>()) {
    case 0: return get_whole<StepRecord>(in);
    case 1: return get_whole<EvaluationRecord>(in);
    case 2: return get_whole<CheckpointRecord>(in);
    case 3: return get_whole<FatalRecord>(in);
    case 4: return get_whole<WorkerRecord>(in);
    case 5: return get_whole<NoteRecord>(in);
    case 6: return get_whole<StateRecord>(in);
    case 7: return get_whole<FallBackRecord>(in);
    case 8: return get_whole<LogRecord>(in);
    default: return Error{Errc::kCorrupt, "a worker's report is of an unknown kind"};
  }
}

}  // namespace mayfly::engine
