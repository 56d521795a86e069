#include "engine/config/device_choice.hpp"

#include <charconv>

namespace mayfly::engine {
namespace {

constexpr int kDevicesMax = 1024;

}  // namespace

Result<DeviceChoice> parse_device(const std::string& text) {
  if (text == "cpu") {
    return DeviceChoice{};
  }
  if (text == "cuda") {
    return DeviceChoice{.is_cuda = true};
  }
  const std::string prefix = "cuda:";
  int number = -1;
  const char* const end = text.data() + text.size();
  if (text.starts_with(prefix)) {
    const auto [stop, failure] = std::from_chars(text.data() + prefix.size(), end, number);
    if (failure == std::errc{} && stop == end && number >= 0 && number < kDevicesMax) {
      return DeviceChoice{.is_cuda = true, .number = number};
    }
  }
  return Error{Errc::kInvalidInput,
               "device '" + text +
                   "' is not known (known: cpu, cuda, cuda:N with the number of a GPU, from 0)"};
}

bool uses_cuda(const std::string& device) {
  const Result<DeviceChoice> choice = parse_device(device);
  return choice.ok() && choice.value().is_cuda;
}

}  // namespace mayfly::engine
