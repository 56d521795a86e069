#include "engine/run/tensorboard.hpp"

#include <gtest/gtest.h>

#include <cstring>
#include <filesystem>
#include <map>
#include <vector>

#include "base/file.hpp"
#include "tests/unit/engine/temporary_folder.hpp"

namespace mayfly::engine::tensorboard {
namespace {

/// The fields of an Event that we use, as a reader sees them.
struct Event {
  double wall_time = 0;
  std::uint64_t step = 0;
  std::string file_version;
  std::map<std::string, float> scalars;
};

/// A reader of the protobuf wire format, written from its specification.
class ProtoReader {
 public:
  explicit ProtoReader(std::string_view bytes) : bytes_(bytes) {}

  [[nodiscard]] bool done() const { return bytes_.empty(); }
  std::uint64_t varint() {
    std::uint64_t number = 0;
    for (int shift = 0;; shift += 7) {
      const auto byte = static_cast<unsigned char>(bytes_.at(0));
      bytes_.remove_prefix(1);
      number |= std::uint64_t{byte & 0x7fu} << shift;
      if ((byte & 0x80) == 0) {
        return number;
      }
    }
  }
  std::string_view bytes() { return take(varint()); }
  template <typename T>
  T fixed() {
    T out;
    std::memcpy(&out, take(sizeof(T)).data(), sizeof(T));
    return out;
  }

 private:
  std::string_view take(std::size_t size) {
    EXPECT_LE(size, bytes_.size());
    const std::string_view out = bytes_.substr(0, size);
    bytes_.remove_prefix(out.size());
    return out;
  }
  std::string_view bytes_;
};

void decode_value(std::string_view bytes, Event& event) {
  ProtoReader reader(bytes);
  std::string tag;
  while (!reader.done()) {
    switch (reader.varint()) {
      case (1 << 3) | 2: tag = reader.bytes(); break;
      case (2 << 3) | 5: event.scalars[tag] = reader.fixed<float>(); break;
      default: FAIL() << "unexpected field in Summary.Value";
    }
  }
}

Event decode_event(std::string_view bytes) {
  ProtoReader reader(bytes);
  Event event;
  while (!reader.done()) {
    switch (reader.varint()) {
      case (1 << 3) | 1: event.wall_time = reader.fixed<double>(); break;
      case (2 << 3) | 0: event.step = reader.varint(); break;
      case (3 << 3) | 2: event.file_version = reader.bytes(); break;
      case (5 << 3) | 2: {
        ProtoReader summary(reader.bytes());
        while (!summary.done()) {
          EXPECT_EQ(summary.varint(), (1u << 3) | 2u);
          decode_value(summary.bytes(), event);
        }
        break;
      }
      default: ADD_FAILURE() << "unexpected field in Event"; return event;
    }
  }
  return event;
}

std::vector<Event> decode_file(std::string_view content) {
  std::vector<Event> events;
  ProtoReader reader(content);
  while (!reader.done()) {
    std::string_view header = content.substr(0, 8);
    std::uint64_t size = 0;
    std::memcpy(&size, header.data(), 8);
    ProtoReader record(content);
    record.fixed<std::uint64_t>();
    EXPECT_EQ(record.fixed<std::uint32_t>(), masked(crc32c(header)));
    const std::string_view data = content.substr(12, size);
    std::uint32_t checksum = 0;
    std::memcpy(&checksum, content.data() + 12 + size, 4);
    EXPECT_EQ(checksum, masked(crc32c(data)));
    events.push_back(decode_event(data));
    content.remove_prefix(16 + size);
    reader = ProtoReader(content);
  }
  return events;
}

// The values are those of RFC 3720, appendix B.4, and the usual check value of CRC-32C.
TEST(Crc32c, AgreesWithPublishedVectors) {
  EXPECT_EQ(crc32c("123456789"), 0xe3069283u);
  EXPECT_EQ(crc32c(std::string(32, '\0')), 0x8a9136aau);
  EXPECT_EQ(crc32c(std::string(32, '\xff')), 0x62a8ab43u);
  EXPECT_EQ(crc32c(""), 0u);
}

TEST(EventFile, ReadsBackAsWritten) {
  const test_support::TemporaryFolder folder;
  Result<std::unique_ptr<EventFile>> file = EventFile::create(folder.path(), 1700000000.5);
  ASSERT_TRUE(file.ok());
  const Scalar first[] = {{"train/loss", 2.25F}, {"train/accuracy", 0.125F}};
  const Scalar second[] = {{"test/top1", 0.9F}};
  ASSERT_TRUE(file.value()->add(1700000001.0, 1, first).ok());
  ASSERT_TRUE(file.value()->add(1700000002.0, 300000, second).ok());

  std::string path;
  for (const auto& entry : std::filesystem::directory_iterator(folder.path())) {
    path = entry.path().string();
  }
  EXPECT_NE(path.find("/events.out.tfevents.1700000000."), std::string::npos) << path;
  const Result<std::string> content = read_text_file(path, 1 << 20);
  ASSERT_TRUE(content.ok());
  const std::vector<Event> events = decode_file(content.value());
  ASSERT_EQ(events.size(), 3u);
  EXPECT_EQ(events[0].file_version, "brain.Event:2");
  EXPECT_EQ(events[0].wall_time, 1700000000.5);
  EXPECT_EQ(events[1].step, 1u);
  EXPECT_EQ(events[1].scalars,
            (std::map<std::string, float>{{"train/loss", 2.25F}, {"train/accuracy", 0.125F}}));
  EXPECT_EQ(events[2].step, 300000u);
  EXPECT_EQ(events[2].wall_time, 1700000002.0);
  EXPECT_EQ(events[2].scalars, (std::map<std::string, float>{{"test/top1", 0.9F}}));
}

TEST(EventFile, InAMissingFolderIsAnError) {
  const Result<std::unique_ptr<EventFile>> file = EventFile::create("/nonexistent/folder", 1);
  ASSERT_FALSE(file.ok());
  EXPECT_EQ(file.error().code, Errc::kIo);
}

}  // namespace
}  // namespace mayfly::engine::tensorboard
