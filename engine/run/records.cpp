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

const char* to_text(elastic::Outcome outcome) {
  return kOutcomes.at(static_cast<std::size_t>(outcome)).data();
}

}  // namespace mayfly::engine
