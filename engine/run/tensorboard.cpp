#include "engine/run/tensorboard.hpp"

#include <array>
#include <cstring>

#include "base/net/addresses.hpp"
#include "base/try_assign.hpp"

namespace mayfly::engine::tensorboard {
namespace {

constexpr std::array<std::uint32_t, 256> make_crc_table() {
  constexpr std::uint32_t kReversedPolynomial = 0x82f63b78;
  std::array<std::uint32_t, 256> table{};
  for (std::uint32_t i = 0; i < 256; ++i) {
    std::uint32_t crc = i;
    for (int bit = 0; bit < 8; ++bit) {
      crc = (crc & 1) != 0 ? (crc >> 1) ^ kReversedPolynomial : crc >> 1;
    }
    table[i] = crc;
  }
  return table;
}
constexpr std::array<std::uint32_t, 256> kCrcTable = make_crc_table();

template <typename T>
void append_little_endian(std::string& out, T number) {
  char raw[sizeof(T)];
  std::memcpy(raw, &number, sizeof(T));
  out.append(raw, sizeof(T));
}

// Protobuf wire format: a key is (field number << 3) | wire type.
constexpr std::uint64_t kVarint = 0;
constexpr std::uint64_t kFixed64 = 1;
constexpr std::uint64_t kBytes = 2;
constexpr std::uint64_t kFixed32 = 5;

void append_varint(std::string& out, std::uint64_t number) {
  while (number >= 0x80) {
    out.push_back(static_cast<char>((number & 0x7f) | 0x80));
    number >>= 7;
  }
  out.push_back(static_cast<char>(number));
}

void append_key(std::string& out, std::uint64_t field, std::uint64_t wire_type) {
  append_varint(out, (field << 3) | wire_type);
}

void append_bytes(std::string& out, std::uint64_t field, std::string_view bytes) {
  append_key(out, field, kBytes);
  append_varint(out, bytes.size());
  out.append(bytes);
}

std::string event_at(double wall_time) {
  std::string event;
  append_key(event, 1, kFixed64);  // Event.wall_time
  append_little_endian(event, wall_time);
  return event;
}

}  // namespace

std::uint32_t crc32c(std::string_view bytes) {
  std::uint32_t crc = 0xffffffff;
  for (const char c : bytes) {
    crc = kCrcTable[(crc ^ static_cast<unsigned char>(c)) & 0xff] ^ (crc >> 8);
  }
  return ~crc;
}

std::uint32_t masked(std::uint32_t crc) {
  return ((crc >> 15) | (crc << 17)) + 0xa282ead8U;
}

std::string frame_record(std::string_view data) {
  std::string record;
  append_little_endian(record, static_cast<std::uint64_t>(data.size()));
  append_little_endian(record, masked(crc32c(record)));
  record.append(data);
  append_little_endian(record, masked(crc32c(data)));
  return record;
}

std::string encode_scalars(double wall_time, std::uint64_t step, std::span<const Scalar> scalars) {
  std::string summary;
  for (const Scalar& scalar : scalars) {
    std::string entry;
    append_bytes(entry, 1, scalar.tag);  // Value.tag
    append_key(entry, 2, kFixed32);      // Value.simple_value
    append_little_endian(entry, scalar.number);
    append_bytes(summary, 1, entry);  // Summary.value
  }
  std::string event = event_at(wall_time);
  append_key(event, 2, kVarint);  // Event.step
  append_varint(event, step);
  append_bytes(event, 5, summary);  // Event.summary
  return event;
}

std::string encode_file_version(double wall_time) {
  std::string event = event_at(wall_time);
  append_bytes(event, 3, "brain.Event:2");  // Event.file_version
  return event;
}

Result<std::unique_ptr<EventFile>> EventFile::create(const std::string& folder, double wall_time) {
  const std::string path = folder + "/events.out.tfevents." +
                           std::to_string(static_cast<std::int64_t>(wall_time)) + "." +
                           host_name() + "." + std::to_string(::getpid());
  TRY_ASSIGN(std::unique_ptr<LineFile> file, LineFile::open(path, LineFile::Content::kBinary));
  TRY(file->append(frame_record(encode_file_version(wall_time))));
  return std::unique_ptr<EventFile>(new EventFile(std::move(file)));
}

Result<void> EventFile::add(double wall_time, std::uint64_t step, std::span<const Scalar> scalars) {
  return file_->append(frame_record(encode_scalars(wall_time, step, scalars)));
}

}  // namespace mayfly::engine::tensorboard
