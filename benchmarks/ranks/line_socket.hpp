#pragma once

// Lines of text over a Unix-domain stream socket: the connection between the driver of a benchmark
// and its rank processes. One thread at a time may receive and one may send.

#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/result.hpp"
#include "base/time.hpp"
#include "base/unique_fd.hpp"

namespace mayfly::bench {

/// Extracts lines from a stream that arrives in chunks. Pure.
class LineBuffer {
 public:
  void append(std::string_view chunk) { text_ += chunk; }
  /// The next complete line without its end, or nothing.
  [[nodiscard]] std::optional<std::string> next();

 private:
  std::string text_;
  std::size_t searched_ = 0;  // no line ends before here
};

class LineSocket {
 public:
  /// Connects to the socket at `path`. kIo with the path if no process listens there.
  static Result<LineSocket> connect(const std::string& path);
  explicit LineSocket(UniqueFd fd) : fd_(std::move(fd)) {}

  /// Sends a line, which must not contain the end of a line. kPeerLost if the other side has ended.
  [[nodiscard]] Result<void> send(const std::string& line);
  /// Blocks until a line has arrived: kDeadline after the deadline (nothing is lost, call it
  /// again), kPeerLost if the other side has ended. Without a deadline it waits for ever.
  [[nodiscard]] Result<std::string> receive(std::optional<Instant> deadline = {});

 private:
  UniqueFd fd_;
  LineBuffer buffer_;
};

/// The words of a line, which are separated by single spaces.
[[nodiscard]] std::vector<std::string> words_of(const std::string& line);
/// The line from word `index` on.
[[nodiscard]] std::string rest_of_line(const std::string& line, std::size_t index);

}  // namespace mayfly::bench
