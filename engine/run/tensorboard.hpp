#pragma once

// TensorBoard's event files: records framed as TFRecord (length and data each with a masked
// CRC-32C) that hold a protobuf `Event` with scalar summaries. Only the fields that scalars need
// are encoded, without a protobuf library.

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>

#include "base/result.hpp"
#include "engine/run/line_file.hpp"

namespace mayfly::engine::tensorboard {

/// One value of one curve.
struct Scalar {
  std::string_view tag;  ///< the curve's name, for example "train/loss"
  float number = 0;
};

/// CRC-32C (Castagnoli) of the bytes.
[[nodiscard]] std::uint32_t crc32c(std::string_view bytes);
/// TFRecord stores checksums rotated and shifted, so that a CRC over data with CRCs stays useful.
[[nodiscard]] std::uint32_t masked(std::uint32_t crc);

/// A framed record: length, its checksum, data, its checksum.
[[nodiscard]] std::string frame_record(std::string_view data);
/// Event{wall_time, step, summary}.
[[nodiscard]] std::string encode_scalars(double wall_time, std::uint64_t step,
                                         std::span<const Scalar> scalars);
/// Event{wall_time, file_version}, the first record of each file.
[[nodiscard]] std::string encode_file_version(double wall_time);

/// An event file that is being written. Records reach the file whole, one write each. One thread
/// at a time.
class EventFile {
 public:
  /// Creates events.out.tfevents.<seconds>.<host>.<pid> in `folder`. kIo.
  [[nodiscard]] static Result<std::unique_ptr<EventFile>> create(const std::string& folder,
                                                                 double wall_time);
  /// Appends one event. kIo if the file system refuses.
  [[nodiscard]] Result<void> add(double wall_time, std::uint64_t step,
                                 std::span<const Scalar> scalars);

 private:
  explicit EventFile(std::unique_ptr<LineFile> file) : file_(std::move(file)) {}

  std::unique_ptr<LineFile> file_;
};

}  // namespace mayfly::engine::tensorboard
