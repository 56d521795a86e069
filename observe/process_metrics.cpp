#include "observe/process_metrics.hpp"

#include <sys/resource.h>
#include <unistd.h>

#include <fstream>
#include <string>

#include "base/file.hpp"

namespace mayfly::observe {
namespace {

/// The number after a word that begins a line.
double number_in_file(const char* path, const std::string& word) {
  std::ifstream file(path);
  std::string line;
  while (std::getline(file, line)) {
    if (line.starts_with(word)) {
      return std::strtod(line.c_str() + word.size(), nullptr);
    }
  }
  return 0;
}

/// Seconds since 1970: the time since the system started is the 22nd word about a process.
double start_time() {
  std::ifstream file("/proc/self/stat");
  std::string text;
  std::getline(file, text);
  std::size_t at = text.rfind(')');  // the name before it may have blanks
  for (int word = 2; word < 22 && at != std::string::npos; ++word) {
    at = text.find(' ', at + 1);
  }
  if (at == std::string::npos) {
    return 0;
  }
  const double ticks = std::strtod(text.c_str() + at, nullptr);
  return number_in_file("/proc/stat", "btime") +
         ticks / static_cast<double>(::sysconf(_SC_CLK_TCK));
}

}  // namespace

std::vector<ProcessMetric> process_metrics() {
  rusage used{};
  ::getrusage(RUSAGE_SELF, &used);
  const auto seconds_of = [](const timeval& time) {
    return static_cast<double>(time.tv_sec) + static_cast<double>(time.tv_usec) / 1e6;
  };
  rlimit descriptors{};
  ::getrlimit(RLIMIT_NOFILE, &descriptors);
  constexpr double kKib = 1024;
  return {
      {"process_cpu_seconds", "Processor time of the process that serves these metrics.", true,
       seconds_of(used.ru_utime) + seconds_of(used.ru_stime)},
      {"process_resident_memory_bytes", "Resident memory of that process.", false,
       kKib * number_in_file("/proc/self/status", "VmRSS:")},
      {"process_virtual_memory_bytes", "Virtual memory of that process.", false,
       kKib * number_in_file("/proc/self/status", "VmSize:")},
      {"process_start_time_seconds", "Start time of that process.", false, start_time()},
      {"process_open_fds", "Open descriptors of that process.", false,
       static_cast<double>(names_in("/proc/self/fd").size())},
      {"process_max_fds", "Largest number of descriptors of that process.", false,
       static_cast<double>(descriptors.rlim_cur)},
  };
}

}  // namespace mayfly::observe
