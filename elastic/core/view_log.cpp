#include "elastic/core/view_log.hpp"

#include <algorithm>
#include <type_traits>

#include "base/check.hpp"
#include "base/digest.hpp"
#include "elastic/core/message_codec.hpp"
#include "elastic/core/messages.hpp"

namespace mayfly::elastic {
namespace {

constexpr std::uint64_t kMagic = 0x676f'6c79'6c66'796dULL;  // "myflylog"
constexpr std::uint32_t kVersion = 2;
constexpr std::size_t kFrameBytes = 13;  // length, checksum, type
constexpr std::size_t kPayloadBytesMax = kMessageBytesMax;
constexpr std::size_t kTextBytesMax = 2048;
constexpr std::size_t kPairsMax = 256;
static_assert(kFingerprintPairsMax <= kPairsMax && kFingerprintNameBytesMax <= kTextBytesMax &&
                  kFingerprintValueBytesMax <= kTextBytesMax,
              "the log can hold every value that a Hello can hold");
constexpr std::size_t kCompactionBytes = 1u << 20;

Bytes header() {
  WireWriter writer;
  writer.put(kMagic);
  writer.put(kVersion);
  writer.put(std::uint32_t{0});
  return writer.take();
}

/// The checksum covers the offset, so that a record in the wrong place is not accepted.
std::uint64_t checksum(std::uint64_t offset, std::uint8_t type, ByteSpan payload) {
  Digester digester;
  digester.add_value(offset);
  digester.add_value(type);
  digester.add(payload);
  return digester.finish().low;
}

// --- payloads

/// Each kind of record lists its fields once, in fields(); the same list writes and reads.
template <typename R, typename X>
concept IsRecord = std::is_same_v<std::remove_const_t<R>, X>;

void fields(auto& io, IsRecord<log_record::JobStarted> auto& record) {
  io.plain(record.job, record.microbatches);
  io.list(record.fingerprint, kPairsMax, 8, [&io](auto& pair) {
    io.text(pair.first, kTextBytesMax);
    io.text(pair.second, kTextBytesMax);
  });
}
void fields(auto& io, IsRecord<log_record::IncarnationStarted> auto& record) {
  io.plain(record.incarnation);
}
void fields(auto& io, IsRecord<log_record::ViewPublished> auto& record) {
  view_fields(io, record.view);
}
void fields(auto& io, IsRecord<log_record::Paused> auto& record) {
  io.flag(record.is_paused);
}
void fields(auto& io, IsRecord<log_record::JobEnded> auto& record) {
  io.choice(record.outcome, Outcome::kTooFewWorkers);
  io.readable_text(record.detail);
}

template <std::size_t Type>
LogRecord read_type(WireReader& reader) {
  std::variant_alternative_t<Type, LogRecord> record;
  Decoder decoder(reader);
  fields(decoder, record);
  return record;
}

LogRecord read_any(std::size_t type, WireReader& reader) {
  switch (type) {
    case 0: return read_type<0>(reader);
    case 1: return read_type<1>(reader);
    case 2: return read_type<2>(reader);
    case 3: return read_type<3>(reader);
    case 4: return read_type<4>(reader);
    default: reader.fail(); return {};
  }
}
static_assert(std::variant_size_v<LogRecord> == 5, "read_any() knows every kind of record");

// --- what records mean

bool apply(LogContents& contents, const log_record::JobStarted& record) {
  const bool has_led = contents.view || contents.ended;
  const bool makes_sense = record.job != 0 && record.job != contents.job && !has_led;
  contents.job = record.job;
  contents.microbatches = record.microbatches;
  contents.fingerprint = record.fingerprint;
  return makes_sense;
}
bool apply(LogContents& contents, const log_record::IncarnationStarted& record) {
  const bool grows = record.incarnation > contents.incarnation;
  contents.incarnation = record.incarnation;
  return grows && contents.job != 0;
}
bool apply(LogContents& contents, const log_record::ViewPublished& record) {
  const bool grows = !contents.view || record.view.id > contents.view->id;
  contents.view = record.view;
  return grows && contents.job != 0;
}
bool apply(LogContents& contents, const log_record::Paused& record) {
  contents.is_paused = record.is_paused;
  return contents.job != 0;
}
bool apply(LogContents& contents, const log_record::JobEnded& record) {
  contents.ended = record;
  return contents.job != 0;
}

/// The type and payload of the record at `offset`, if it is complete and intact.
std::optional<std::pair<std::uint8_t, ByteSpan>> record_at(ByteSpan file, std::size_t offset) {
  const ByteSpan rest = file.subspan(offset);
  WireReader frame(rest.first(std::min(rest.size(), kFrameBytes)));
  const std::size_t size = frame.get<std::uint32_t>();
  const auto sum = frame.get<std::uint64_t>();
  const auto type = frame.get<std::uint8_t>();
  if (frame.failed() || size > kPayloadBytesMax || size > rest.size() - kFrameBytes) {
    return std::nullopt;
  }
  const ByteSpan payload = rest.subspan(kFrameBytes, size);
  if (checksum(offset, type, payload) != sum) {
    return std::nullopt;
  }
  return std::pair{type, payload};
}

/// True if an intact record follows at a later offset. A checksum also covers the record's offset,
/// so bytes there that pass for a record were written there, after everything before them.
[[nodiscard]] bool has_record_behind(ByteSpan file, std::size_t offset) {
  constexpr auto kTypes = static_cast<std::byte>(std::variant_size_v<LogRecord>);
  for (std::size_t at = offset + 1; at + kFrameBytes <= file.size(); ++at) {
    if (file[at + kFrameBytes - 1] < kTypes && record_at(file, at)) {
      return true;
    }
  }
  return false;
}

Error not_a_log(const std::string& why) {
  return {Errc::kCorrupt, "this is not a view log of a job: " + why};
}

}  // namespace

Bytes ViewLog::add(const LogRecord& record) {
  Bytes bytes = bytes_ == 0 ? header() : Bytes{};
  WireWriter body;
  Encoder encoder(body);
  std::visit([&encoder](const auto& each) { fields(encoder, each); }, record);
  const Bytes payload = body.take();
  ENSURE(payload.size() <= kPayloadBytesMax, "a record is as long as a message at most");
  const auto type = static_cast<std::uint8_t>(record.index());
  WireWriter frame;
  frame.put(static_cast<std::uint32_t>(payload.size()));
  frame.put(checksum(bytes_ + bytes.size(), type, payload));
  frame.put(type);
  const Bytes head = frame.take();
  bytes.insert(bytes.end(), head.begin(), head.end());
  bytes.insert(bytes.end(), payload.begin(), payload.end());
  bytes_ += bytes.size();
  return bytes;
}

bool ViewLog::wants_compaction() const {
  return bytes_ >= compact_at_;
}

void ViewLog::compacted(std::size_t bytes) {
  bytes_ = bytes;
  compact_at_ = std::max(kCompactionBytes, 2 * bytes);
}

Result<LogContents> ViewLog::replay(ByteSpan file) {
  LogContents contents;
  const Bytes expected = header();
  const std::size_t shared = std::min(file.size(), expected.size());
  if (!std::equal(expected.begin(), expected.begin() + static_cast<std::ptrdiff_t>(shared),
                  file.begin())) {
    return not_a_log("it begins with something else");
  }
  if (file.size() < expected.size()) {  // the coordinator died while it wrote the header
    contents.dropped_bytes = file.size();
    return contents;
  }
  contents.good_bytes = expected.size();
  while (const auto record = record_at(file, contents.good_bytes)) {
    const auto& [type, payload] = *record;
    WireReader reader(payload);
    const LogRecord decoded = read_any(type, reader);
    const auto meaning = [&contents](const auto& each) { return apply(contents, each); };
    if (!reader.complete() || !std::visit(meaning, decoded)) {
      return not_a_log("the record at byte " + std::to_string(contents.good_bytes) +
                       " makes no sense");
    }
    contents.good_bytes += kFrameBytes + payload.size();
  }
  if (has_record_behind(file, contents.good_bytes)) {
    return Error{Errc::kCorrupt, "the record at byte " + std::to_string(contents.good_bytes) +
                                     " is damaged, and intact ones follow it"};
  }
  contents.dropped_bytes = file.size() - contents.good_bytes;
  return contents;
}

Bytes ViewLog::compact(const LogContents& contents) {
  Bytes file;
  if (contents.job == 0) {
    return file;
  }
  ViewLog log;
  const auto add = [&](const LogRecord& record) {
    const Bytes bytes = log.add(record);
    file.insert(file.end(), bytes.begin(), bytes.end());
  };
  add(log_record::JobStarted{contents.job, contents.microbatches, contents.fingerprint});
  if (value(contents.incarnation) > 0) {
    add(log_record::IncarnationStarted{contents.incarnation});
  }
  if (contents.view) {
    add(log_record::ViewPublished{*contents.view});
  }
  if (contents.is_paused) {
    add(log_record::Paused{true});
  }
  if (contents.ended) {
    add(*contents.ended);
  }
  return file;
}

}  // namespace mayfly::elastic
