#pragma once

// Runs a program to its end, with a text as input and as output, and with a time-out. Any thread.

#include <cstddef>
#include <functional>
#include <string>
#include <utility>
#include <vector>

#include "base/result.hpp"
#include "base/time.hpp"

namespace mayfly {

struct ProgramCall {
  std::vector<std::string> argv;  ///< argv[0] is searched in PATH
  std::string input;              ///< for its standard input, which is then closed
  std::vector<std::pair<std::string, std::string>> environment;  ///< additions
  std::vector<std::string> without;  ///< variables that it does not inherit
  Duration timeout = seconds(30);
  std::size_t output_bytes_max = std::size_t{1} << 20;  ///< of standard output; more: it is killed
  /// Called several times a second: if it returns true, the program is killed. Empty = never.
  std::function<bool()> is_called_off;
};

struct ProgramResult {
  enum class End { kExited, kSignalled, kTimedOut, kTooMuchOutput, kCalledOff };
  End end = End::kExited;
  int code = 0;        ///< exit code or signal
  std::string output;  ///< standard output
  std::string errors;  ///< the last few KiB of standard error

  [[nodiscard]] bool succeeded() const { return end == End::kExited && code == 0; }
  /// A message of one line, without control characters: how the program ended, and its last line of
  /// output.
  [[nodiscard]] std::string summary() const;
};

/// The program inherits no descriptor and gets signal handling as in SpawnPlan and a process group
/// of its own, which is killed as a whole if it exceeds the time-out or the size of the output, or
/// is called off. kNotFound if the program does not exist, kInvalidInput for an empty argv, kIo if
/// no process can be created.
[[nodiscard]] Result<ProgramResult> run_program(const ProgramCall& call);

/// The last non-empty line of a text, without control characters, at most 300 characters.
[[nodiscard]] std::string last_line(const std::string& text);

}  // namespace mayfly
