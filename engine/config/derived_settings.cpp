#include "engine/config/derived_settings.hpp"

#include "base/check.hpp"
#include "base/parse.hpp"

namespace mayfly::engine {
namespace {

constexpr std::size_t kDefaultBucketKib = 512;
constexpr std::uint64_t kBucketKibMin = 4;
constexpr std::uint64_t kBucketKibMax = std::uint64_t{1} << 20;
constexpr std::size_t kElementsPerKib = 1024 / sizeof(float);

Error invalid(std::string text) {
  return {Errc::kInvalidInput, std::move(text)};
}

constexpr int kDevicesMax = 1024;

}  // namespace

Result<TraceWindow> parse_trace_window(std::string_view text) {
  const auto [begin, end] = cut(text, ':');
  const auto first = number_in<std::uint64_t>(begin);
  const auto last = number_in<std::uint64_t>(end);
  if (first && last && *first < *last) {
    return TraceWindow{*first, *last};
  }
  return invalid("trace_steps '" + std::string(text) +
                 "' is not FIRST:END with FIRST below END, for example 0:50");
}

Result<BucketSize> parse_bucket_kib(std::string_view text) {
  if (text == "auto") {
    return BucketSize{true, kDefaultBucketKib * kElementsPerKib};
  }
  const auto kib = number_in(text, kBucketKibMin, kBucketKibMax);
  if (!kib) {
    return invalid("bucket_kib '" + std::string(text) + "' is neither auto nor a number from " +
                   std::to_string(kBucketKibMin) + " to " + std::to_string(kBucketKibMax));
  }
  return BucketSize{false, static_cast<std::size_t>(*kib) * kElementsPerKib};
}

Result<Wire> parse_wire(std::string_view wire, std::string_view reduction) {
  const bool exact = reduction == "exact";
  for (const Wire known : {Wire::kInt32, Wire::kInt16, Wire::kFp32, Wire::kBf16, Wire::kFp16}) {
    if (wire == name_of(known)) {
      if (is_exact(known) == exact) {
        return known;
      }
      return invalid("wire " + std::string(wire) + " cannot be combined with reduction " +
                     std::string(reduction) + "; it has " +
                     (exact ? "auto, int32 and int16" : "auto, fp32, bf16 and fp16"));
    }
  }
  if (wire == "auto") {
    return exact ? Wire::kInt32 : Wire::kFp32;
  }
  return invalid("wire '" + std::string(wire) +
                 "' is not known (known: auto, int32, int16, fp32, bf16, fp16)");
}

const char* name_of(Wire wire) {
  switch (wire) {
    case Wire::kInt32: return "int32";
    case Wire::kInt16: return "int16";
    case Wire::kFp32: return "fp32";
    case Wire::kBf16: return "bf16";
    case Wire::kFp16: return "fp16";
  }
  UNREACHABLE("a Wire outside its enumerators");
}

bool is_exact(Wire wire) {
  return wire == Wire::kInt32 || wire == Wire::kInt16;
}

Result<DeviceChoice> parse_device(const std::string& text) {
  if (text == "cpu") {
    return DeviceChoice{};
  }
  if (text == "cuda") {
    return DeviceChoice{.is_cuda = true};
  }
  constexpr std::string_view kNumbered = "cuda:";
  if (text.starts_with(kNumbered)) {
    const auto gpu = number_in(std::string_view(text).substr(kNumbered.size()), 0, kDevicesMax - 1);
    if (gpu) {
      return DeviceChoice{.is_cuda = true, .number = *gpu};
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
