#include "engine/run/records.hpp"

#include <array>
#include <concepts>

namespace mayfly::engine {
namespace {

constexpr std::size_t kTextBytesMax = LogRecord::kBytesMax;
constexpr std::size_t kEntriesMax = std::size_t{1} << 20;  // of a map
constexpr std::array<std::string_view, 4> kOutcomes = {"done", "stopped", "failed",
                                                       "too_few_workers"};

class ReportWriter {
 public:
  void operator()(const char* /*name*/, const auto& field) { wire(field); }
  void newer(const char* /*name*/, const auto& field) { wire(field); }
  void unless(const auto& /*usual*/, const char* /*name*/, const auto& field) { wire(field); }

  template <typename T>
  requires std::is_arithmetic_v<T>
  void wire(const T& number) { out_.put(number); }
  void wire(const bool& flag) { out_.put(static_cast<std::uint8_t>(flag)); }
  void wire(const std::string& text) {
    out_.put_string(std::string_view(text).substr(0, kTextBytesMax));
  }
  template <typename T>
  void wire(const std::optional<T>& field) {
    wire(field.has_value());
    if (field) {
      wire(*field);
    }
  }
  void wire(const std::map<std::uint64_t, std::uint64_t>& counts) {
    out_.put(static_cast<std::uint32_t>(counts.size()));
    for (const auto& [key, count] : counts) {
      wire(key);
      wire(count);
    }
  }

  [[nodiscard]] Bytes take() { return out_.take(); }

 private:
  WireWriter out_;
};

/// There is one encoding for each record: other values of flags are refused.
class ReportReader {
 public:
  explicit ReportReader(ByteSpan bytes) : in_(bytes) {}

  void operator()(const char* /*name*/, auto& field) { wire(field); }
  void newer(const char* /*name*/, auto& field) { wire(field); }
  void unless(const auto& /*usual*/, const char* /*name*/, auto& field) { wire(field); }

  template <typename T>
  requires std::is_arithmetic_v<T>
  void wire(T& number) { number = in_.get<T>(); }
  void wire(bool& flag) {
    const auto byte = in_.get<std::uint8_t>();
    refuse(byte > 1);
    flag = byte == 1;
  }
  void wire(std::string& text) { text = in_.get_string(kTextBytesMax); }
  template <typename T>
  void wire(std::optional<T>& field) {
    bool is_there = false;
    wire(is_there);
    field.reset();
    if (is_there) {
      wire(field.emplace());
    }
  }
  void wire(std::map<std::uint64_t, std::uint64_t>& counts) {
    const std::size_t size = in_.get_count(kEntriesMax, 2 * sizeof(std::uint64_t));
    for (std::size_t i = 0; i < size; ++i) {
      const auto key = in_.get<std::uint64_t>();
      refuse(!counts.empty() && key <= counts.rbegin()->first);
      counts[key] = in_.get<std::uint64_t>();
    }
  }

  [[nodiscard]] std::uint8_t kind() { return in_.get<std::uint8_t>(); }
  [[nodiscard]] bool complete() const { return in_.complete(); }

 private:
  void refuse(bool is_wrong) {
    if (is_wrong) {
      in_.fail();
    }
  }

  WireReader in_;
};

/// The record of the kind with this index, or of a later one.
template <std::size_t kIndex = 0>
Result<Record> read_kind(std::size_t kind, ReportReader& in) {
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
  ReportWriter out;
  out.wire(static_cast<std::uint8_t>(record.index()));
  std::visit([&out](const auto& r) { r.fields(out, r); }, record);
  return out.take();
}

Result<Record> decode_record(ByteSpan bytes) {
  ReportReader in(bytes);
  return read_kind(in.kind(), in);
}

const char* to_text(elastic::Outcome outcome) {
  return kOutcomes.at(static_cast<std::size_t>(outcome)).data();
}

std::optional<elastic::Outcome> outcome_named(std::string_view name) {
  for (std::size_t i = 0; i < kOutcomes.size(); ++i) {
    if (kOutcomes[i] == name) {
      return static_cast<elastic::Outcome>(i);
    }
  }
  return std::nullopt;
}

}  // namespace mayfly::engine
