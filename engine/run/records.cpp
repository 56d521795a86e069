#include "engine/run/records.hpp"

#include <array>

#include "engine/run/record_wire.hpp"
#include "engine/run/summary.hpp"

namespace mayfly::engine {
namespace {

constexpr std::array<std::string_view, 4> kOutcomes = {"done", "stopped", "failed",
                                                       "too_few_workers"};

/// The record of the kind with this index, or of a later one.
template <std::size_t kIndex = 0>
Result<Record> read_kind(std::size_t kind, RecordReader& in) {
  if constexpr (kIndex == std::variant_size_v<Record>) {
    return Error{Errc::kCorrupt, "a worker's report is of an unknown kind"};
  } else if (kind != kIndex) {
    return read_kind<kIndex + 1>(kind, in);
  } else {
    std::variant_alternative_t<kIndex, Record> record;
    record.fields(in, record);
    return in.complete()
               ? Result<Record>(std::move(record))
               : Result<Record>(Error{Errc::kCorrupt, "a worker's report has the wrong length"});
  }
}

}  // namespace

Bytes encode_record(const Record& record) {
  RecordWriter out(LogRecord::kBytesMax);
  out.wire(static_cast<std::uint8_t>(record.index()));
  std::visit([&out](const auto& r) { r.fields(out, r); }, record);
  return out.take();
}

Result<Record> decode_record(ByteSpan bytes) {
  RecordReader in(bytes, LogRecord::kBytesMax);
  std::uint8_t kind = 0;
  in.wire(kind);
  return read_kind(kind, in);
}

RecoveryRecord recovery_record(const elastic::Recovery& recovery, double detected) {
  const auto since_detected = [&recovery](Instant t) { return to_ms(t - recovery.detected); };
  RecoveryRecord record;
  record.cause = recovery.cause;
  for (const MemberId member : recovery.members) {
    record.members.push_back(value(member));
  }
  record.step = value(recovery.committed);
  record.view = value(recovery.new_view);
  record.redone_microbatches = recovery.redone_microbatches;
  record.detail = recovery.detail;
  record.detected = detected;
  record.told_ms = since_detected(recovery.told);
  record.stopped_ms = since_detected(recovery.stopped);
  record.formed_ms = since_detected(recovery.formed);
  record.synced_ms = since_detected(recovery.synced);
  record.step_ms = since_detected(recovery.step);
  return record;
}

JoinRecord join_record(const elastic::Join& join, double connected) {
  const auto since_connected = [&join](Instant t) { return to_ms(t - join.connected); };
  JoinRecord record;
  record.member = value(join.member);
  record.admitted_after = value(join.admitted_after);
  record.started_after = value(join.started_after);
  record.snapshots = join.snapshots;
  record.connected = connected;
  record.ready_ms = since_connected(join.ready);
  record.admitted_ms = since_connected(join.admitted);
  record.caught_up_ms = since_connected(join.caught_up);
  record.promoted_ms = since_connected(join.promoted);
  record.step_ms = since_connected(join.step);
  return record;
}

const char* to_text(elastic::Outcome outcome) {
  return kOutcomes.at(static_cast<std::size_t>(outcome)).data();
}

}  // namespace mayfly::engine
