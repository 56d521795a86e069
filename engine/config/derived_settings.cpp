#include "engine/config/derived_settings.hpp"

#include <charconv>
#include <optional>

#include "base/check.hpp"

namespace mayfly::engine {
namespace {

constexpr std::size_t kDefaultBucketKib = 512;
constexpr std::uint64_t kBucketKibMin = 4;
constexpr std::uint64_t kBucketKibMax = std::uint64_t{1} << 20;
constexpr std::size_t kElementsPerKib = 1024 / sizeof(float);

std::optional<std::uint64_t> number_of(std::string_view text) {
  std::uint64_t number = 0;
  const auto [end, failure] = std::from_chars(text.data(), text.data() + text.size(), number);
  const bool whole = failure == std::errc{} && end == text.data() + text.size();
  return whole ? std::optional(number) : std::nullopt;
}

Error invalid(std::string text) {
  return {Errc::kInvalidInput, std::move(text)};
}

}  // namespace

Result<TraceWindow> parse_trace_window(std::string_view text) {
  const std::size_t colon = text.find(':');
  if (colon != std::string_view::npos) {
    const std::optional<std::uint64_t> first = number_of(text.substr(0, colon));
    const std::optional<std::uint64_t> last = number_of(text.substr(colon + 1));
    if (first.has_value() && last.has_value() && *first < *last) {
      return TraceWindow{*first, *last};
    }
  }
  return invalid("trace_steps '" + std::string(text) +
                 "' is not FIRST:END with FIRST below END, for example 0:50");
}

Result<BucketSize> parse_bucket_kib(std::string_view text) {
  if (text == "auto") {
    return BucketSize{true, kDefaultBucketKib * kElementsPerKib};
  }
  const std::optional<std::uint64_t> kib = number_of(text);
  if (!kib.has_value() || *kib < kBucketKibMin || *kib > kBucketKibMax) {
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
      return invalid("wire " + std::string(wire) + " does not go with reduction " +
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

}  // namespace mayfly::engine
